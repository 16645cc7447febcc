"""A way to something wrong, as a file: what a model did step by step, for real brokers to go through.

``{"schema": 1, "anomaly": "stuck-lso", "found_on": "sim-kafka", "case": "…", "steps": ["t puts K", "2 leaves", …]}``.
The steps are those that `harness.models.walk.state_space` takes. Real cleaners cannot be ordered to run, and a day
cannot be ordered to pass: a run waits until they have removed what the schedule has them remove, as any run does. So
what is left of a schedule is what clients do, and when: before the outage, in it, and once what is missed is gone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.errors import UsageError
from harness.schedules.catalog import Anomaly, abort, begin, commit, delete, put
from harness.schedules.scenario import Action, Critical, Scenario, Step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA: Final = 1
TRANSACTIONAL, PLAIN = "t", "p"
_PROCESSES: Final = {TRANSACTIONAL: "tx", PLAIN: "plain"}
LEAVES, RETURNS = "2 leaves", "2 returns"
"""The outage; which broker is away is the placement's affair, where the model has broker 2."""
_ENDS: Final = {"commits": commit, "aborts": abort}


@dataclass(frozen=True)
class Schedule:
    """What leads where, on which model, in which of its cases."""

    anomaly: str
    found_on: str
    case: str
    steps: tuple[str, ...]


def write_schedule(path: Path, schedule: Schedule) -> None:
    """Write the file. Raises `UsageError` where that cannot be."""
    content = {"schema": SCHEMA, **vars(schedule)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def read_schedule(path: Path) -> Schedule:
    """Return the schedule in a file. Raises `UsageError` with what is wrong with it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise UsageError(f"{path} is no schedule of this release: its schema is not {SCHEMA}")
    return schedule_of(content, str(path))


def schedule_of(content: dict[str, Any], source: str) -> Schedule:
    """Return the schedule that was read from a source. Raises `UsageError` for one that lacks something."""
    steps = content.get("steps")
    missing = [name for name in ("anomaly", "found_on", "case") if not isinstance(content.get(name), str)]
    if not isinstance(steps, list) or not all(isinstance(step, str) and step for step in steps):
        missing.append("steps")
    if missing:
        raise UsageError(f"{source} is no schedule: {missing[0]} is missing, or not what it has to be")
    return Schedule(content["anomaly"], content["found_on"], content["case"], tuple(content["steps"]))


def scenario_of(schedule: Schedule) -> Scenario:
    """Return what real clients do. Raises `UsageError` for a step that real brokers cannot be put through, and why."""
    if schedule.anomaly not in list(Anomaly):
        raise UsageError(f"{schedule.anomaly} is no anomaly that runs look for: {', '.join(Anomaly)}")
    steps = schedule.steps
    if steps.count(LEAVES) != 1 or steps.count(RETURNS) != 1:
        raise UsageError(f"this schedule cannot be replayed: it needs one {LEAVES!r}, and then one {RETURNS!r}")
    leaves, returns = steps.index(LEAVES), steps.index(RETURNS)
    for number, step in enumerate(steps, 1):
        _refuse_impossible(number, step, is_after=number - 1 > returns)
    before, is_open = _written(steps[:leaves], is_open=False)
    missed = steps[leaves:returns]
    late_from = _begin_of_late(missed) if is_open else len(missed)
    outage, still_open = _written(missed[:late_from], is_open=is_open)
    late, _ = _written(missed[late_from:], is_open=still_open)
    critical = [
        *([Critical.TOMBSTONE] if any(step.action is Action.DELETE for step in outage) else []),
        *([Critical.MARKER] if is_open and not still_open else []),
    ]
    if not critical:
        raise UsageError("this schedule cannot be replayed: nothing that can be missed is written during the outage")
    return Scenario(
        name=f"schedule-{schedule.anomaly}",
        anomaly=Anomaly(schedule.anomaly),
        payload="schedule",
        summary=f"As found on {schedule.found_on} ({schedule.case}): {'; '.join(steps)}.",
        before=tuple(before),
        outage=tuple(outage),
        late=tuple(late),
        critical=tuple(critical),
    )


def _begin_of_late(missed: Sequence[str]) -> int:
    """Return where a producer goes on whose transaction has ended: its marker has to be gone by then.

    Both markers would grow old together otherwise, and the second one would go as well.
    """
    of_producer = [at for at, step in enumerate(missed) if step.split()[0] == TRANSACTIONAL]
    return of_producer[1] if len(of_producer) > 1 else len(missed)


def _refuse_impossible(number: int, step: str, *, is_after: bool) -> None:
    subject, _, rest = step.partition(" ")
    is_client = subject in _PROCESSES and (rest in _ENDS or rest.startswith(("puts ", "deletes ")))
    if step in {LEAVES, RETURNS, "time passes"} or (is_client and not is_after):
        return
    if subject.isdigit() and rest == "cleans" and not is_after:
        return
    why = (
        "compaction and clients rest once the broker is back"
        if is_after
        else "only what clients, cleaners and time do, and one outage, can be"
    )
    raise UsageError(f"step {number} of this schedule, {step!r}, cannot be replayed: {why}")


def _written(steps: Sequence[str], *, is_open: bool) -> tuple[list[Step], bool]:
    """Return what clients do in these steps, and whether a transaction is open in the end.

    One is begun where its producer writes and has none.
    """
    found: list[Step] = []
    for step in steps:
        subject, verb, key = (*step.split(maxsplit=2), "")[:3]
        if subject not in _PROCESSES:
            continue
        process = _PROCESSES[subject]
        if verb in _ENDS:
            found.append(_ENDS[verb](process))
            is_open = False
            continue
        if subject == TRANSACTIONAL and not is_open:
            found.append(begin(process))
            is_open = True
        found.append(put(process, key, f"{process} puts {key}") if verb == "puts" else delete(process, key))
    return found, is_open
