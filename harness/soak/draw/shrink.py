"""The smallest round that still shows a finding: steps are left out as long as the finding stays.

Candidates are played on `sim-kafka` and judged by the history of clients (`harness.soak.judge.truth`), without Spark.
Each candidate is played with a few seeds, as every step that is left out changes all that is left to chance.
"""

import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.errors import HarnessError
from harness.host.clock import RealClock
from harness.kafka_api import TopicPartition
from harness.run_folder.store import RunFolder
from harness.schedules.generators import fixed
from harness.schedules.operations import Heal, Inject, Operation, Write
from harness.schedules.schedule import Schedule, Step
from harness.schedules.shrink import reduced
from harness.soak.causes import diagnose
from harness.soak.causes.cause import RoundEvidence, symptoms_of
from harness.soak.draw.plan import APART_S, ROOM_S
from harness.soak.judge.judge_rounds import truth_of
from harness.soak.play.rig import Setup, booted
from harness.soak.play.round import play_round

MOST_APART: Final = 14
"""A round with more steps keeps its times."""
SEEDS: Final = 2
"""Tries of a candidate."""
CONFIRMATIONS: Final = 10
"""Seeds with which the smallest round is played again."""


@dataclass
class ShrinkStage:
    """Plays candidates on simulated clusters, in a folder that it empties each time."""

    setup: Setup
    work_dir: Path
    plays: int = 0

    def places(self, candidate: Schedule, seed: int) -> dict[str, set[TopicPartition]]:
        """Play a round, and return the partitions of each finding by name; none if the round fails."""
        self.plays += 1
        shutil.rmtree(self.work_dir, ignore_errors=True)
        self.work_dir.mkdir(parents=True)
        folder, plan = RunFolder(self.work_dir), replace(candidate.plan, seed=seed)
        with booted(self.setup, "shrink", self.work_dir, self.work_dir / "logs", RealClock(), seed) as rig:
            try:
                played = play_round(rig, plan, fixed(*candidate.steps), folder)
            except HarnessError:
                return {}  # topics that cannot be created
        places: dict[str, set[TopicPartition]] = defaultdict(set)
        if played.failure is None:
            truth = truth_of(folder, played)
            for symptom, diagnosis in diagnose(RoundEvidence(truth), symptoms_of(truth)).items():
                places[diagnosis.name].add(symptom.partition)
        return places


def shrink(
    stage: ShrinkStage,
    schedule: Schedule,
    name: str,
    on_progress: Callable[[int, int], None],
    is_over: Callable[[], bool] = lambda: False,
) -> tuple[Schedule, int]:
    """Return the smallest round within reach that shows a finding, and how many of `CONFIRMATIONS` seeds show it.

    ``is_over``: whether the time is over. ``on_progress`` is called for each smaller round, with the number of its
    steps and of rounds that were played. Raises `HarnessError` if the round itself does not show the finding.
    """
    seeds = range(schedule.plan.seed, schedule.plan.seed + SEEDS)

    def shows(steps: Sequence[Step]) -> bool:
        candidate = trimmed(replace(schedule, steps=tuple(steps)))
        return any(name in stage.places(candidate, seed) for seed in seeds)

    steps = list(schedule.steps)
    places = next((by_name[name] for seed in seeds if name in (by_name := stage.places(schedule, seed))), None)
    if places is None:
        raise HarnessError(f"{name} is not found again when this round is played on {stage.setup.target.name}")
    transactional = schedule.plan.transactional
    for tp in sorted(places):
        if shows(alone := _of_partition(steps, tp, transactional)):
            steps = alone
            break
    on_progress(len(steps), stage.plays)
    smallest = reduced(
        steps, lambda steps: not is_over() and shows(steps), lambda steps: on_progress(len(steps), stage.plays)
    )
    again = range(schedule.plan.seed, schedule.plan.seed + CONFIRMATIONS)
    for steps in (*_apart(smallest), smallest):
        final = trimmed(replace(schedule, steps=tuple(steps), finding=name))
        # Elections and cleaners of real brokers take longer.
        lasts_s = max(final.plan.lasts_s, max((step.at_s for step in steps), default=0.0) + ROOM_S)
        final = replace(final, plan=replace(final.plan, lasts_s=lasts_s))
        shown = sum(name in stage.places(final, seed) for seed in again)
        if shown == CONFIRMATIONS:
            break
    return final, shown


def _apart(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Yield the steps `APART_S` from each other: in their order, and with each fault a step sooner.

    A fault that begins during an operation may come first for simulated brokers, and last for real ones.
    """
    if len(steps) > MOST_APART:
        return
    orders = [list(steps)]
    for at, step in enumerate(steps):
        if at and isinstance(step.operation, Inject):
            orders.append([*steps[: at - 1], step, steps[at - 1], *steps[at + 1 :]])
    for order in orders:
        yield [replace(step, at_s=APART_S * number) for number, step in enumerate(order, 1)]


def _of_partition(steps: Sequence[Step], tp: TopicPartition, transactional: Collection[str]) -> list[Step]:
    """Return the steps that concern a partition: its records, all of its transactional clients, and all faults.

    Records of a transaction in other partitions decide when the transaction begins, and may delay its end.
    """
    operations = [step.operation for step in steps]
    writers = {it.process for it in operations if isinstance(it, Write) and (it.topic, it.partition) == tp}

    def concerns(operation: Operation) -> bool:
        if operation.process in transactional:
            return operation.process in writers
        if isinstance(operation, Write):
            return (operation.topic, operation.partition) == tp
        return isinstance(operation, Inject | Heal) or getattr(operation, "topic", None) == tp[0]

    return [step for step in steps if concerns(step.operation)]


def trimmed(schedule: Schedule) -> Schedule:
    """Return a round without idle clients and later topics; its filler writes to its partitions only."""
    plan, operations = schedule.plan, schedule.operations
    processes = {operation.process for operation in operations}
    concerned = {getattr(operation, "topic", None) for operation in operations}
    filled = {(operation.topic, operation.partition) for operation in operations if isinstance(operation, Write)}
    last = max((at for at, topic in enumerate(plan.topics) if topic.name in concerned), default=0)
    clients = tuple(client for client in plan.clients if client.name in processes)
    plan = replace(plan, topics=plan.topics[: last + 1], clients=clients, filled=tuple(sorted(filled)))
    return replace(schedule, plan=plan)
