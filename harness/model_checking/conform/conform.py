"""Runs the schedules of a conformance test on a target's brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harness.cluster.boot import equip
from harness.errors import BootError, HarnessError, UsageError
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.model_checking.conform.brokers import running
from harness.model_checking.conform.lockstep import go
from harness.model_checking.conform.schedules import at_random, written, written_of_groups
from harness.models.log.version_rules import rules_of
from harness.run_folder.store import new_run_id
from harness.runtimes import LOCAL
from harness.runtimes.base import RuntimeRequest
from harness.targets import KAFKA, find_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.judge.outcome import Progress
    from harness.model_checking.conform.lockstep import Outcome
    from harness.model_checking.conform.schedules import Schedule
    from harness.models.log.version_rules import VersionRules
    from harness.targets import Target

TOGETHER: Final = 20
"""Schedules at once: fewer take longer in total; more take longer for each step."""
WITH_VERSION_2: Final = 4
"""The first major version of Kafka whose brokers have transactions of version 2."""


def conform(
    name: str, folder: Path, progress: Progress, *, schedules: int, group_schedules: int, seed: int, transactions: int
) -> tuple[list[Outcome], str | None]:
    """Run the schedules on one cluster; return the outcome of each, and why there are no more, if some are missing.

    ``schedules``: how many random ones there are in addition, from a seed; ``group_schedules``: and of groups.
    ``transactions``: their version. ``folder``: the owner's folder, for `harness clean`. Raises `UsageError` for errors
    before the first broker starts, `BootError` where none starts.
    """
    target = _target(name, transactions)
    rules = rules_of(target.version)
    equipment = equip(RuntimeRequest(target, find_java(), progress.jars), LOCAL)
    outcomes: list[Outcome] = []
    with Workspace(f"conform-{new_run_id()}", folder) as workspace:
        progress.stage(f"boot {target.name}")
        logs = workspace.path / "logs"
        try:
            lists = list(all_schedules(schedules, group_schedules, seed, transactions, rules))
            of_groups = sum(one.of_group for some in lists for one in some)
            with running(equipment, workspace, logs, of_groups) as brokers:
                for group in lists:
                    go(brokers, group, rules, progress.stage, outcomes.append)
        except BootError:
            raise
        except (HarnessError, OSError) as error:
            return outcomes, str(error)
    return outcomes, None


def _target(name: str, transactions: int) -> Target:
    target = find_target(name)
    if target.system != KAFKA:
        raise UsageError(f"--target {name} is no Kafka: the model is of Kafka only")
    if transactions > 1 and int(target.version.split(".")[0]) < WITH_VERSION_2:
        raise UsageError(f"--transactions 2: {name} has no transactions of version 2: choose one from kafka-4.0 on")
    return target


def all_schedules(
    schedules: int, group_schedules: int, seed: int, transactions: int, rules: VersionRules
) -> Iterator[list[Schedule]]:
    """Yield lists of concurrent schedules: of data and then of groups, the written ones, then random ones."""
    for of_groups, count in ((False, schedules), (True, group_schedules)):
        yield (written_of_groups if of_groups else written)(transactions)
        for first in range(0, count, TOGETHER):
            some = min(TOGETHER, count - first)
            yield at_random(f"{seed}-{first // TOGETHER}", some, transactions, rules, of_groups=of_groups)


def outcomes_json(verdict: str, target: str, outcomes: list[Outcome], failure: str | None) -> dict[str, Any]:
    """Return the content of the printed JSON."""
    return {
        "verdict": verdict,
        "reason": failure,
        "target": {"name": target},
        "schedules": [
            {
                "name": one.schedule.name,
                "steps": list(map(str, one.schedule.steps)),
                "agreed": one.agreed,
                "disagreements": [
                    {"step": other.number, "broker": other.broker, "differences": other.differences}
                    for other in one.disagreements
                ],
            }
            for one in outcomes
        ],
    }
