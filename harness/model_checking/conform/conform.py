"""Runs schedules on the model and on a target's brokers, many at once, and compares after every step."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from harness.cluster.boot import equip
from harness.errors import BootError, HarnessError, UsageError, WaitTimeoutError
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.progress import Progress
from harness.kafka_api.messages import RefusedError
from harness.model_checking.conform.brokers import Brokers, running
from harness.model_checking.conform.picture import ReplicaPicture, Simulated, differences, is_of_groups
from harness.model_checking.conform.schedules import CLUSTER_WIDE, at_random, read_for_conform, written
from harness.models.log.version_rules import rules_of
from harness.models.world.world import Rules
from harness.run_folder.store import new_run_id
from harness.runtimes import LOCAL
from harness.runtimes.base import RuntimeRequest
from harness.schedules.operations import Operation, TimePasses
from harness.schedules.schedule import Schedule
from harness.targets import KAFKA, find_target

AGREE_S: Final = 30.0
"""Time for brokers to reach the model's state. On a machine with ten times its capacity in work, one comparison of
twenty schedules took ten seconds."""
ReplicaKey: TypeAlias = "tuple[str, int]"
"""The name of a schedule, and a broker."""
Mismatch: TypeAlias = "tuple[list[str], ReplicaPicture, ReplicaPicture | None]"
"""The differences, the expected picture of a replica, and the actual one."""


@dataclass(frozen=True)
class Disagreement:
    """A step after which a replica differs from the model. ``actual``: None if unread, or if the step was rejected."""

    number: int
    step: Operation
    broker: int
    differences: list[str]
    expected: ReplicaPicture
    actual: ReplicaPicture | None


@dataclass(frozen=True)
class Outcome:
    """The number of steps that agreed: all of a schedule, or those before the model and brokers disagree."""

    schedule: Schedule
    agreed: int
    disagreements: tuple[Disagreement, ...] = ()


def run_schedules(
    brokers: Brokers,
    schedules: Sequence[Schedule],
    rules: Rules,
    on_stage: Callable[[str], None],
    on_outcome: Callable[[Outcome], None],
) -> None:
    """Run schedules that share their cluster-wide steps, each until model and brokers disagree. Raises HarnessError."""
    brokers.create(schedules)
    active = {schedule.case: Simulated(schedule, rules) for schedule in schedules}
    agreed = 0
    try:
        for number, steps in enumerate(zip(*(schedule.operations for schedule in schedules), strict=True), 1):
            by_name = {schedule.case: step for schedule, step in zip(schedules, steps, strict=True)}
            steps_now = {name: step for name, step in by_name.items() if name in active}
            cluster_step = _common(steps)
            later = schedules[0].operations[number:]
            brokers.will_age = TimePasses() in later
            on_stage(f"{number}/{number + len(later)}: {cluster_step or 'separate steps'}, {len(steps_now)} schedules")
            mismatches = _step(brokers, active, steps_now, cluster_step)
            for schedule in schedules:
                disagreed = tuple(
                    Disagreement(number, steps_now[name], broker, *mismatch)
                    for (name, broker), mismatch in mismatches.items()
                    if name == schedule.case
                )
                if disagreed:
                    on_outcome(Outcome(schedule, agreed, disagreed))
                    del active[schedule.case]
            agreed = number
    finally:
        for schedule in schedules:
            if schedule.case in active:
                on_outcome(Outcome(schedule, agreed))


def _common(steps: Sequence[Operation]) -> Operation | None:
    common = {step for step in steps if isinstance(step, CLUSTER_WIDE)}
    if common and len(set(steps)) > 1:
        raise ValueError(f"only some schedules have a step of the whole cluster: {'; '.join(map(str, steps))}")
    return next(iter(common), None)


def _step(
    brokers: Brokers, active: dict[str, Simulated], steps_now: dict[str, Operation], cluster_step: Operation | None
) -> dict[ReplicaKey, Mismatch]:
    for name, step in steps_now.items():
        active[name].take(step)
    if cluster_step is not None:
        with brokers.during(cluster_step):
            return _compare(brokers, active)
    brokers.wait_for_next_timestamp()
    refused: dict[ReplicaKey, Mismatch] = {}
    for name, step in steps_now.items():
        try:
            brokers.partitions[name].take(step)
        except RefusedError as error:
            leader = active[name].world.replication.leader_id
            refused[name, leader] = ([str(error)], active[name].pictures()[leader], None)
    compared = {name: model for name, model in active.items() if name not in {refusing for refusing, _ in refused}}
    return refused | _compare(brokers, compared)


def _compare(brokers: Brokers, active: dict[str, Simulated]) -> dict[ReplicaKey, Mismatch]:
    """Wait until every replica matches the model; return the others. Notes the delete horizons that must not pass."""
    pending = {(name, broker): it for name, model in active.items() for broker, it in model.pictures().items()}
    last: dict[ReplicaKey, ReplicaPicture] = {}

    def agreed() -> bool:
        names: dict[int, list[str]] = defaultdict(list)
        for name, broker in pending:
            names[broker].append(name)
        pictures = brokers.pictures(names)
        last.update(pictures)
        for key, picture in pictures.items():
            if picture == pending[key]:
                at_ms, now_ms = dict(picture.horizons_ms), active[key[0]].world.now_ms
                expected = pending.pop(key).horizons_ms
                brokers.kept_until_ms |= {at_ms[base] for base, horizon_ms in expected if horizon_ms > now_ms}
        return not pending

    try:
        brokers.cluster.wait(agreed, "brokers to reach the model's state", AGREE_S)
    except WaitTimeoutError:
        # One slow comparison may have taken all the time.
        if not agreed():
            return {key: (differences(it, last.get(key)), it, last.get(key)) for key, it in pending.items()}
    return {}


TOGETHER: Final = 20
"""Schedules at once: fewer take longer in total; more take longer for each step."""
WITH_VERSION_2: Final = 4
"""The first major version of Kafka whose brokers have transactions of version 2."""


def conform(
    name: str,
    folder: Path,
    progress: Progress,
    *,
    schedules: int,
    group_schedules: int,
    seed: int,
    transactions: int,
    schedule_file: Path | None = None,
) -> tuple[list[Outcome], str | None]:
    """Run the schedules on one cluster; return the outcome of each, and the reason if some are missing.

    ``schedules``, ``group_schedules``: the numbers of random ones in addition. ``transactions``: their version.
    ``schedule_file``: the only schedule, instead. ``folder``: the owner's folder, for `harness clean`. Raises
    `UsageError` for errors before the first broker starts, `BootError` where none starts.
    """
    target = find_target(name)
    if target.system != KAFKA:
        raise UsageError(f"--target {name} is not a Kafka: the model is of Kafka only")
    if transactions > 1 and int(target.version.split(".")[0]) < WITH_VERSION_2:
        raise UsageError(f"--transactions 2: {name} has no transactions of version 2: choose one from kafka-4.0 on")
    rules = Rules(epoch_bump=transactions > 1, version=rules_of(target.version))
    if schedule_file:
        lists = [[read_for_conform(schedule_file, rules)]]
    else:
        lists = list(all_schedules(schedules, group_schedules, seed, rules))
    equipment = equip(RuntimeRequest(target, find_java(), progress.jars), LOCAL)
    outcomes: list[Outcome] = []
    with Workspace(f"conform-{new_run_id()}", folder) as workspace:
        progress.stage(f"boot {target.name}")
        of_groups = sum(is_of_groups(schedule) for together in lists for schedule in together)
        try:
            with running(equipment, workspace, workspace.path / "logs", rules, of_groups) as brokers:
                for together in lists:
                    run_schedules(brokers, together, rules, progress.stage, outcomes.append)
        except BootError:
            raise
        except (HarnessError, OSError) as error:
            return outcomes, str(error)
    return outcomes, None


def all_schedules(schedules: int, group_schedules: int, seed: int, rules: Rules) -> Iterator[list[Schedule]]:
    """Yield lists of concurrent schedules: of data and then of groups, the written ones, then random ones."""
    for of_groups, count in ((False, schedules), (True, group_schedules)):
        yield written(of_groups=of_groups)
        for first in range(0, count, TOGETHER):
            size = min(TOGETHER, count - first)
            yield at_random(f"{seed}-{first // TOGETHER}", size, rules, of_groups=of_groups)


def outcomes_json(verdict: str, target: str, outcomes: list[Outcome], failure: str | None) -> dict[str, Any]:
    """Return the content of the printed JSON."""
    return {
        "verdict": verdict,
        "reason": failure,
        "target": {"name": target},
        "schedules": [
            {
                "name": outcome.schedule.case,
                "steps": list(map(str, outcome.schedule.operations)),
                "agreed": outcome.agreed,
                "disagreements": [
                    {"step": it.number, "broker": it.broker, "differences": it.differences}
                    for it in outcome.disagreements
                ],
            }
            for outcome in outcomes
        ],
    }
