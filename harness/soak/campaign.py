"""Round after round until the time is over: drawn from one seed after the other, played, judged, and stored.

``results/<target>/soak/<run id>/`` has ``soak.json``: the options, the faults that rounds do not draw, and a line for
each round, written again each time, so that ``--resume`` continues after it, and first judges the rounds that were
played and have no verdict; and a folder for each round, with the files of a run folder: ``round.json`` (the schedule),
``history.jsonl``, ``verdict.json``, and where anything was found, or is unknown, the logs of all replicas.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from harness.console import print_progress
from harness.errors import HarnessError, UsageError, interruptible, raised_as
from harness.host.cache import owned
from harness.host.clock import RealClock
from harness.host.workspace import Workspace
from harness.json_codec import from_json, to_json
from harness.judge.progress import Progress
from harness.judge.sessions import CHECKS
from harness.judge.verdict import ANOMALY, CLEAN, EXIT_CODES, UNKNOWN, RepeatedFinding, RoundLine, SoakVerdict, worst
from harness.run_folder.store import ROUND, SCHEDULE, SCHEMA, SOAK_STATE, RunFolder, create_run_folder, new_run_id
from harness.runtimes import AUTO
from harness.schedules.generators import Generator, fixed
from harness.schedules.replay import why_not_replayable
from harness.schedules.schedule import RoundPlan, Schedule, write_schedule
from harness.soak.draw.plan import Shape, draw_plan, fitted
from harness.soak.draw.workload import generator_of
from harness.soak.evidence.internal_topics import serves_groups
from harness.soak.judge_queue import JudgeQueue
from harness.soak.play.rig import Rig, Setup, booted, find_setup
from harness.soak.play.round import PlayedRound, play_round, read_played, read_round, write_round
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import session_of
from harness.targets import SIM_KAFKA, find_target

SOAK: Final = "soak"
MOST_BOOTS: Final = 3
"""Clusters that are started for a round, one after another, before a soak gives up."""
SHAPE: Final = ("partitions", "clients", "play_s", "rate_hz", "broker_settings")
STORED: Final = ("target", "minutes", "seed", "runtime", "gate", "expected")
"""The options that ``soak.json`` has under their names."""


@dataclass(frozen=True)
class SoakOptions:
    """The options of a soak. ``schedule``: a round to play again, ``rounds`` times, instead of drawn ones."""

    target: str
    minutes: float
    seed: int
    results: Path
    spark: SparkOptions
    rounds: int | None = None
    runtime: str = AUTO
    gate: bool = False
    shape: Shape = field(default_factory=Shape)
    expected: Mapping[str, str] = field(default_factory=dict)
    schedule: Schedule | None = None


@dataclass
class Soak:
    """A soak. ``rounds``: the lines of judged rounds, in order. ``took_s``: of all processes of the soak."""

    folder: RunFolder
    options: SoakOptions
    setup: Setup
    rounds: list[RoundLine] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def verdict(self) -> str:
        """The worst of all rounds; unknown without any."""
        return worst(line.verdict for line in self.rounds) if self.rounds else UNKNOWN

    def result(self) -> SoakVerdict:
        """Return the content of ``soak.json``, which is printed, too."""
        options, schedule = self.options, self.options.schedule
        finding = schedule.finding if schedule else ""
        verdicts = Counter(line.verdict for line in self.rounds)
        reason = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in EXIT_CODES if verdicts[verdict])
        worst_rounds = [f"; {line.name}: {line.reason}" for line in self.rounds if line.verdict == self.verdict]
        repeats = sum(finding in line.findings for line in self.rounds)
        return SoakVerdict(
            verdict=self.verdict,
            reason=(reason or "no round") + "".join(worst_rounds[:1]),
            folder=str(self.folder.path),
            **{name: getattr(options, name) for name in STORED},
            shape={name: getattr(self.setup.shape, name) for name in SHAPE},
            drawn=tuple(sorted(self.setup.faults)),
            not_drawn=self.setup.left_out,
            took_s=round(self.took_s, 1),
            findings=dict(sorted(_sum(line.findings for line in self.rounds).items())),
            unexplained=sum(line.unexplained for line in self.rounds),
            audit=_sum(line.audit for line in self.rounds),
            groups=_sum(line.groups for line in self.rounds),
            gates=_sum(line.gates for line in self.rounds),
            shown=RepeatedFinding(finding=finding, in_=repeats, of=len(self.rounds)) if finding else None,
            rounds=tuple(self.rounds),
            most_rounds=options.rounds,
        )

    def write(self) -> None:
        """Write ``soak.json``."""
        self.folder.write_json(self.folder.path / SOAK_STATE, to_json(self.result()))


def _sum(counts_of_rounds: Iterable[Mapping[str, int] | None]) -> dict[str, int]:
    sums = Counter[str]()
    for counts in counts_of_rounds:
        sums.update(counts or {})
    return dict(sums)


def soak(options: SoakOptions, progress: Progress, on_round: Callable[[RoundLine], None]) -> Soak:
    """Soak, and call ``on_round`` with each line.

    Raises `UsageError`, or `HarnessError` once no cluster comes up, unless a round had a finding before.
    """
    setup = find_setup(options.target, options.shape, progress, gate=options.gate, runtime=options.runtime)
    schedule = options.schedule and fitted(options.schedule, setup.shape, setup.faults)
    folder = create_run_folder(options.results, setup.target.name, SOAK, new_run_id())
    # The name of a build's copy: a soak is resumed with the same classes.
    options = replace(options, target=setup.target.name, schedule=schedule)
    with owned(folder.path):
        if schedule:
            write_schedule(folder.path / SCHEDULE, schedule)
        return _continue(Soak(folder, options, setup), progress, on_round)


def resume(path: Path, spark: SparkOptions, progress: Progress, on_round: Callable[[RoundLine], None]) -> Soak:
    """Continue a soak that was cut off, for the rest of its minutes. Raises as `soak` does."""
    with owned(path) if path.is_dir() else nullcontext():
        with raised_as(
            UsageError, f"--resume {path} is not the folder of a soak: {SOAK_STATE}", OSError, ValueError, TypeError
        ):
            state = from_json(SoakVerdict, json.loads((path / SOAK_STATE).read_text()))
            stored = {name: getattr(state, name) for name in STORED}
            schedule = read_round(path / SCHEDULE) if (path / SCHEDULE).exists() else None
            given: dict[str, Any] = {"rounds": state.most_rounds, "schedule": schedule, "shape": Shape(**state.shape)}
            options = SoakOptions(**stored, results=path, spark=spark, **given)
        setup = find_setup(options.target, options.shape, progress, gate=options.gate, runtime=options.runtime)
        return _continue(Soak(RunFolder(path), options, setup, list(state.rounds), state.took_s), progress, on_round)


def shrink_file(target: str, path: Path, name: str, minutes: float, progress: Progress) -> dict[str, Any]:
    """Shrink a stored round, for so many minutes at most, and write the smallest round next to it.

    Returns the content to print, with ``run_schedule`` if ``harness run`` can replay it. Raises `UsageError` for a
    target that is not simulated, `HarnessError` where the round does not show the finding.
    """
    from harness.soak.draw.shrink import CONFIRMATIONS, ShrinkStage, shrink  # noqa: PLC0415  (with the judge, and that with pyspark)

    if find_target(target).system != SIM_KAFKA:
        raise UsageError(f"--target {target}: rounds are shrunk on simulated brokers: give --target {SIM_KAFKA}")
    setup = find_setup(target, Shape(), progress)
    schedule = fitted(read_round(path), setup.shape, setup.faults)
    began_s = time.monotonic()
    with Workspace(f"shrink-{new_run_id()}", path.parent) as workspace:
        stage = ShrinkStage(setup, workspace.path / "round")
        smallest, shown = shrink(
            stage,
            schedule,
            name,
            lambda steps, tried: progress.stage(f"{steps} steps after {tried} rounds"),
            lambda: time.monotonic() - began_s >= minutes * 60,
        )
    smallest_path = path.with_name(f"{path.stem}-{name}.json")
    write_schedule(smallest_path, smallest)
    return {
        "schema": SCHEMA,
        "finding": name,
        "target": setup.target.name,
        "words": [f"{step.at_s:g} s: {step.operation}" for step in smallest.steps],
        "tried": stage.plays,
        "shown": shown,
        "of": CONFIRMATIONS,
        "took_s": round(time.monotonic() - began_s, 1),
        "schedule": str(smallest_path),
        "run_schedule": None if why_not_replayable(smallest) else str(smallest_path),
    }


def _continue(soak: Soak, progress: Progress, on_round: Callable[[RoundLine], None]) -> Soak:
    began_s, took_s = time.monotonic(), soak.took_s
    path, run_id = soak.folder.path, f"{SOAK}-{new_run_id()}"
    soak.write()  # before any round is judged: this process may be ended sooner

    def note(line: RoundLine) -> None:
        soak.rounds.append(line)
        soak.write()
        on_round(line)
        from harness.report.soak_pages import write_pages  # noqa: PLC0415  (matplotlib)

        if problem := write_pages(path, line.name):
            print_progress(problem)

    java, spark = soak.setup.equipment.java, soak.options.spark
    with (
        interruptible(lambda: f"the results so far are in {path}/; `harness soak --resume {path}` continues"),
        Workspace(run_id, path) as workspace,
        closing(_Clusters(soak.setup, workspace, path / "logs" / run_id)) as clusters,
        session_of(workspace, java, spark, [path], CHECKS, outlives_jobs=True) as session,
        closing(JudgeQueue(soak.options.expected.keys(), session, note)) as queue,
    ):
        failure: HarnessError | None = None
        try:
            for name, plan, generator in _rounds(soak):
                soak.took_s = took_s + time.monotonic() - began_s
                folder = RunFolder(path / name)
                played = _unjudged(folder)
                if played is None:
                    if soak.took_s >= soak.options.minutes * 60:
                        break
                    progress.stage(f"round {name}")
                    played = _play(clusters, plan, generator, folder)
                queue.add(folder, played)
        except HarnessError as error:
            failure = error  # raised once all rounds that were played are judged
        clusters.close()
        queue.finish()
    soak.took_s = took_s + time.monotonic() - began_s
    soak.write()
    if failure is not None:
        if soak.verdict != ANOMALY:
            raise failure
        print_progress(f"the soak ended early: {failure}")  # a finding stands, and so does its exit code
    return soak


def _unjudged(folder: RunFolder) -> PlayedRound | None:
    """Return a round without a line that was played before the soak was cut off; None for a round to play.

    A round with a verdict is judged again, except a clean one, as its logs are deleted.
    """
    with suppress(UsageError):
        played = read_played(folder.path / ROUND)
        stored = json.loads(folder.verdict_path.read_text()) if folder.verdict_path.exists() else {}
        if stored.get("verdict") != CLEAN:
            return played
    return None


def _play(clusters: _Clusters, plan: RoundPlan, generator: Generator, folder: RunFolder) -> PlayedRound:
    """Play and store a round, in place of one that was cut off; a cluster that it leaves in doubt ends with it."""
    shutil.rmtree(folder.path, ignore_errors=True)
    folder.path.mkdir()
    played = play_round(clusters.for_round(plan.seed), plan, generator, folder)
    write_round(folder.path / ROUND, played)
    if played.failure is not None or not serves_groups(folder):
        clusters.close()
    return played


def _rounds(soak: Soak) -> Iterator[tuple[str, RoundPlan, Generator]]:
    """Yield name, plan and generator of each round to play, without an end where no number is given."""
    options = soak.options
    first, last = len(soak.rounds) + 1, options.rounds
    for number in itertools.count(first) if last is None else range(first, last + 1):
        name, seed = f"soak-{number}", options.seed + number - 1
        if options.schedule is None:
            plan = draw_plan(seed, name, soak.setup.shape)
            yield name, plan, generator_of(plan, soak.setup.shape, soak.setup.faults)
        else:
            yield name, replace(options.schedule.plan, seed=seed), fixed(*options.schedule.steps)


@dataclass
class _Clusters:
    """One cluster for all rounds, until a round leaves it in doubt; a simulated one for each round."""

    setup: Setup
    workspace: Workspace
    logs_dir: Path
    _owned: ExitStack = field(default_factory=ExitStack)
    _rig: Rig | None = None
    _count: int = 0

    def for_round(self, seed: int) -> Rig:
        """Return the cluster for a round. Raises `HarnessError` where several, one after another, do not come up."""
        if not self.setup.shape.is_real:
            self.close()
        attempts = itertools.count(1)
        while self._rig is None:
            self._count += 1
            work_dir = self.workspace.path / f"cluster-{self._count}"
            logs_dir = self.logs_dir / str(self._count)
            for folder in (work_dir, logs_dir):
                folder.mkdir(parents=True)
            try:
                self._rig = self._owned.enter_context(
                    booted(self.setup, self.workspace.run_id, work_dir, logs_dir, RealClock(), seed)
                )
            except HarnessError as error:
                if next(attempts) == MOST_BOOTS:
                    raise
                print_progress(f"cluster {self._count} did not come up: {error}; its logs are in {logs_dir}/")
        return self._rig

    def close(self) -> None:
        """End the cluster: the next round boots another cluster."""
        self._rig = None
        self._owned.close()
