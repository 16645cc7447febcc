"""The smallest round that still shows a finding: steps are left out for as long as it stays.

Candidates are played on `sim-kafka` and judged by what their clients know (`harness.soak.judge.truth`), without Spark.
What a candidate leaves to chance differs with every step that is left out, so each is given a few seeds.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from harness.errors import HarnessError
from harness.host.clock import RealClock
from harness.run_folder.store import RunFolder
from harness.schedules.generators import Fixed
from harness.schedules.operations.clients import Write
from harness.schedules.operations.faults import Heal, Inject
from harness.schedules.shrink import reduced
from harness.soak.causes import diagnose
from harness.soak.causes.cause import RoundEvidence, symptoms_of
from harness.soak.judge.judge_rounds import truth_of
from harness.soak.play.rig import booted
from harness.soak.play.round import play_round

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from harness.kafka_api.messages import TopicPartition
    from harness.schedules.schedule import Schedule, Step
    from harness.soak.play.rig import Setup

ROOM_S: Final = 15.0
"""How long a witness goes on after its last step: real brokers elect leaders, and their cleaners pass, meanwhile."""
APART_S: Final = 3.0
"""Between the steps of a witness: simulated brokers do at once what real ones take a second or two for."""
MOST_APART: Final = 14
"""A witness with more steps stays as it was drawn."""
SEEDS: Final = 2
"""Tries of a candidate."""
CONFIRMATIONS: Final = 10
"""Seeds with which the smallest round is played again."""


@dataclass(frozen=True)
class Shrunk:
    """The smallest round that was found, how many were tried, and with how many of how many seeds it shows it."""

    smallest: Schedule
    tried: int
    shown: int
    of: int = CONFIRMATIONS


@dataclass
class Stage:
    """Plays candidates on simulated clusters, in a folder that it empties each time."""

    setup: Setup
    work_dir: Path
    plays: int = 0

    def places(self, round_: Schedule, seed: int) -> dict[str, set[TopicPartition]]:
        """Play a round, and return the partitions of each finding by name; none where it does not go to its end."""
        self.plays += 1
        shutil.rmtree(self.work_dir, ignore_errors=True)
        self.work_dir.mkdir(parents=True)
        folder, plan = RunFolder(self.work_dir), replace(round_.plan, seed=seed)
        with booted(self.setup, "shrink", self.work_dir, self.work_dir / "logs", RealClock(), seed) as rig:
            try:
                played = play_round(rig, plan, Fixed(round_.steps), folder, lambda _: None)
            except HarnessError:
                return {}  # topics that cannot be created: no such round
        found: dict[str, set[TopicPartition]] = {}
        if played.failure is None:
            truth = truth_of(folder, played)
            for symptom, diagnosis in diagnose(RoundEvidence(truth), symptoms_of(truth)).items():
                found.setdefault(diagnosis.name, set()).add(symptom.partition)
        return found


def shrink(
    stage: Stage,
    schedule: Schedule,
    name: str,
    on_progress: Callable[[int, int], None],
    is_over: Callable[[], bool] = lambda: False,
) -> Shrunk:
    """Return the smallest round within reach that shows a finding of that name, or within the time: ``is_over``.

    ``on_progress`` is called with the number of steps and of tries, each time that there is a smaller one. Raises
    `HarnessError` where the round itself does not show it.
    """
    seeds = range(schedule.plan.seed, schedule.plan.seed + SEEDS)

    def shows(steps: Sequence[Step]) -> bool:
        candidate = trimmed(replace(schedule, steps=tuple(steps)))
        return any(name in stage.places(candidate, seed) for seed in seeds)

    steps = list(schedule.steps)
    places = next((found[name] for seed in seeds if name in (found := stage.places(schedule, seed))), None)
    if places is None:
        raise HarnessError(f"{name} is not found again when this round is played on {stage.setup.target.name}")
    transactional = schedule.plan.transactional
    for tp in sorted(places):
        if shows(alone := _of_partition(steps, tp, transactional)):
            steps = alone
            break
    on_progress(len(steps), stage.plays)
    smallest = reduced(steps, lambda one: not is_over() and shows(one), lambda one: on_progress(len(one), stage.plays))
    again = range(schedule.plan.seed, schedule.plan.seed + CONFIRMATIONS)
    finals = [
        _with_room(replace(trimmed(replace(schedule, steps=tuple(steps))), finding=name))
        for steps in (*_apart(smallest), smallest)
    ]
    shown = 0
    for final in finals:
        shown = sum(name in stage.places(final, seed) for seed in again)
        if shown == CONFIRMATIONS:
            break
    return Shrunk(final, stage.plays, shown)


def _apart(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield the steps of a witness `APART_S` from each other: in their order, and with each fault a step sooner.

    A fault that begins while an operation goes on may come first for the simulated brokers, and last for real ones.
    """
    if len(steps) > MOST_APART:
        return
    orders = [list(steps)]
    for at, step in enumerate(steps):
        if at and isinstance(step.operation, Inject):
            orders.append([*steps[: at - 1], step, steps[at - 1], *steps[at + 1 :]])
    for order in orders:
        yield [replace(step, at_s=APART_S * number) for number, step in enumerate(order, 1)]


def _with_room(schedule: Schedule) -> Schedule:
    """Return a round that goes on long enough after its last step for elections and cleaners of real brokers."""
    last_s = max((step.at_s for step in schedule.steps), default=0.0)
    return replace(schedule, plan=replace(schedule.plan, lasts_s=max(schedule.plan.lasts_s, last_s + ROOM_S)))


def _of_partition(steps: Sequence[Step], tp: TopicPartition, transactional: Collection[str]) -> list[Step]:
    """Return the steps that concern a partition: its records, all of transactional clients of it, and all faults.

    Records of a transaction in other partitions decide when it begins, and may delay its end.
    """
    writers = {
        one.operation.process
        for one in steps
        if isinstance(one.operation, Write) and (one.operation.topic, one.operation.partition) == tp
    }

    def concerns(step: Step) -> bool:
        match step.operation:
            case operation if operation.process in transactional:
                return operation.process in writers
            case Write(topic=topic, partition=partition):
                return (topic, partition) == tp
            case Inject() | Heal():
                return True
        return getattr(step.operation, "topic", None) == tp[0]

    return [step for step in steps if concerns(step)]


def trimmed(schedule: Schedule) -> Schedule:
    """Return a round without clients that have nothing to do; its filler writes only to partitions of its steps.

    Topics behind the last one of its steps go, too; the others keep their leaders.
    """
    operations = [step.operation for step in schedule.steps]
    processes = {one.process for one in operations}
    written = {(one.topic, one.partition) for one in operations if isinstance(one, Write)}
    clients = tuple(one for one in schedule.plan.clients if one.name in processes)
    concerned = {getattr(one, "topic", None) for one in operations}
    last = max((at for at, topic in enumerate(schedule.plan.topics) if topic.name in concerned), default=0)
    plan = replace(
        schedule.plan, topics=schedule.plan.topics[: last + 1], clients=clients, filled=tuple(sorted(written))
    )
    return replace(schedule, plan=plan)
