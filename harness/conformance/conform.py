"""From what is asked for to what came of it: the brokers of a target, and every schedule over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.conformance import schedules
from harness.conformance.brokers import running
from harness.conformance.lockstep import go
from harness.errors import BootError, HarnessError, UsageError
from harness.host.clock import RealClock
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.run_folder.store import new_run_id
from harness.runtimes import find_runtime
from harness.runtimes.base import Wanted
from harness.targets import KAFKA, find_target
from models.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from harness.conformance.lockstep import Outcome
    from harness.conformance.steps import Schedule
    from harness.judge.outcome import Progress
    from harness.targets import Target
    from models.rules import Rules

TOGETHER: Final = 20
"""So many schedules go at once: the fewer, the longer it takes for all; the more, the longer each step takes."""
WITH_VERSION_2: Final = 4
"""The first major version of Kafka whose brokers have transactions of version 2."""


@dataclass(frozen=True)
class Asked:
    """What to go through: random ``schedules`` from a ``seed``, transactions of a version."""

    target: str
    schedules: int = 20
    seed: str = "0"
    transactions: int = 1
    with_written: bool = True


def conform(asked: Asked, folder: Path, progress: Progress) -> tuple[list[Outcome], str | None]:
    """Go through them on one cluster; return what came of each, and why there is not more, if there is not.

    ``folder``: whose run it is, for `harness clean`. Raises `UsageError` for what is wrong before the first broker
    starts, `BootError` where none comes up.
    """
    target = _target(asked)
    rules = rules_of(target.version)
    java = find_java()
    ready = find_runtime("local")(Wanted(target, java, progress.jars))
    clock = RealClock()
    outcomes: list[Outcome] = []
    with Workspace(f"conform-{new_run_id()}", folder) as workspace:
        progress.stage(f"boot {target.name}")
        logs = workspace.path / "logs"
        try:
            with running(ready, workspace, logs, clock) as brokers:
                for group in groups(asked, rules):
                    go(brokers, group, rules, progress.stage, outcomes.append)
        except BootError:
            raise
        except (HarnessError, OSError) as error:
            return outcomes, str(error)
    return outcomes, None


def _target(asked: Asked) -> Target:
    target = find_target(asked.target)
    if target.system != KAFKA:
        raise UsageError(f"--target {asked.target} is no Kafka: the model is Kafka's alone")
    if asked.transactions > 1 and int(target.version.split(".")[0]) < WITH_VERSION_2:
        raise UsageError(
            f"--transactions 2: {asked.target} has no transactions of version 2: choose one from kafka-4.0 on"
        )
    return target


def groups(asked: Asked, rules: Rules) -> Iterator[list[Schedule]]:
    """Yield what goes together: the written schedules, then random ones, so many at once."""
    if asked.with_written:
        yield schedules.written(asked.transactions)
    for first in range(0, asked.schedules, TOGETHER):
        count = min(TOGETHER, asked.schedules - first)
        yield schedules.at_random(f"{asked.seed}-{first // TOGETHER}", count, asked.transactions, rules)


def told(verdict: str, target: str, outcomes: list[Outcome], failure: str | None) -> dict[str, Any]:
    """Return what is printed as JSON."""
    return {
        "schema": 1,
        "verdict": verdict,
        "reason": failure,
        "target": {"name": target},
        "schedules": [
            {
                "name": one.schedule.name,
                "steps": [str(step) for step in one.schedule.steps],
                "agreed": one.agreed,
                "disagreements": [
                    {"step": other.number, "broker": other.broker, "differences": other.differences}
                    for other in one.disagreements
                ],
            }
            for one in outcomes
        ],
    }
