"""A schedule as the scenario of a run on real brokers: the operations of clients before, during and late in one outage.

Real cleaners cannot be ordered to run, and a day cannot be ordered to pass: a run waits until brokers have removed the
records that the schedule has them remove. Rounds of a soak can be replayed, too, where they have one partition, one
outage, and at most one client with transactions and one without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.schedules.catalog import Anomaly, abort, begin, commit, delete, put
from harness.schedules.operations.clients import COMMIT, Begin, End, Write
from harness.schedules.operations.environment import CleanerPass, TimePasses
from harness.schedules.operations.faults import OUTAGES, Heal, Inject
from harness.schedules.scenario import Action, Critical, Scenario

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.schedules.operations.operation import Operation
    from harness.schedules.scenario import Step
    from harness.schedules.schedule import Schedule

TRANSACTIONAL, PLAIN = "tx", "plain"
OF_CLIENTS: Final = (Write, Begin, End)
SUPPORTED: Final = (*OF_CLIENTS, Inject, Heal, CleanerPass, TimePasses)
"""Operations that a run can be put through."""


def scenario_of(schedule: Schedule) -> Scenario:
    """Return the scenario of a schedule. Raises `UsageError` with the operation that cannot be replayed, and why."""
    if schedule.finding not in list(Anomaly):
        raise UsageError(f"{schedule.finding} is not an anomaly that runs look for: {', '.join(Anomaly)}")
    operations = schedule.operations
    leaves = [at for at, one in enumerate(operations) if isinstance(one, Inject)]
    returns = [at for at, one in enumerate(operations) if isinstance(one, Heal)] or [len(operations)]
    if len(leaves) != 1 or len(returns) != 1 or returns < leaves:
        raise UsageError("this schedule cannot be replayed: it needs one fault by which a broker leaves, and its end")
    (begins_at,), (ends_at,) = leaves, returns
    for number, operation in enumerate(operations, 1):
        _refuse_impossible(number, operation, is_after=number - 1 > ends_at)
    names = _names(schedule)
    before, is_open = _written(operations[:begins_at], names, is_open=False)
    missed = operations[begins_at:ends_at]
    late_from = _begin_of_late(missed, names) if is_open else len(missed)
    outage, still_open = _written(missed[:late_from], names, is_open=is_open)
    late, _ = _written(missed[late_from:], names, is_open=still_open)
    critical = [
        *([Critical.TOMBSTONE] if any(step.action is Action.DELETE for step in outage) else []),
        *([Critical.MARKER] if is_open and not still_open else []),
    ]
    if not critical:
        raise UsageError("this schedule cannot be replayed: nothing that can be missed is written during the outage")
    return Scenario(
        name=f"schedule-{schedule.finding}",
        anomaly=Anomaly(schedule.finding),
        payload="schedule",
        summary=f"As found on {schedule.target} ({schedule.case}): {'; '.join(map(str, operations))}.",
        before=tuple(before),
        outage=tuple(outage),
        late=tuple(late),
        critical=tuple(critical),
    )


def why_not_replayable(schedule: Schedule) -> str | None:
    """Return why real brokers cannot be put through a schedule by a run; None if they can."""
    try:
        scenario_of(schedule)
    except UsageError as error:
        return str(error)
    return None


def _refuse_impossible(number: int, operation: Operation, *, is_after: bool) -> None:
    reason = None
    if is_after and not isinstance(operation, TimePasses):
        reason = "compaction and clients rest once the broker is back"
    elif not isinstance(operation, SUPPORTED) or (isinstance(operation, Inject) and operation.fault not in OUTAGES):
        reason = "only operations of clients, cleaners and time, and one outage, can be"
    if reason:
        raise UsageError(f"step {number} of this schedule, '{operation}', cannot be replayed: {reason}")


def _names(schedule: Schedule) -> Mapping[str, str]:
    """Return the client of a run for each client. Raises `UsageError` where there are too many of them."""
    operations = [one for one in schedule.operations if isinstance(one, OF_CLIENTS)]
    places = {(one.topic, one.partition) for one in operations if isinstance(one, Write)}
    transactional = {*schedule.plan.transactional, *(one.process for one in operations if not isinstance(one, Write))}
    # Without a plan, a schedule has the clients of models.
    transactional |= {"t"} if not schedule.plan.clients else set()
    processes = {one.process for one in operations}
    names = {one: TRANSACTIONAL if one in transactional else PLAIN for one in sorted(processes)}
    if len(places) > 1 or len(set(names.values())) < len(names):
        raise UsageError(
            "this schedule cannot be replayed: it needs one partition, and at most one client with transactions and one"
            f" without, not {', '.join(names)}"
        )
    return names


def _begin_of_late(missed: Sequence[Operation], names: Mapping[str, str]) -> int:
    """Return where a producer continues whose transaction has ended: its marker has to be removed before.

    Both markers would grow old together otherwise, and the second one would be removed as well.
    """
    of_producer = [at for at, one in enumerate(missed) if names.get(one.process) == TRANSACTIONAL]
    return of_producer[1] if len(of_producer) > 1 else len(missed)


def _written(operations: Sequence[Operation], names: Mapping[str, str], *, is_open: bool) -> tuple[list[Step], bool]:
    """Return the steps of clients, and whether a transaction is open in the end: it begins with its first write."""
    steps: list[Step] = []
    for operation in operations:
        process = names.get(operation.process, "")
        match operation:
            case End(outcome=outcome):
                steps.append(commit(process) if outcome == COMMIT else abort(process))
                is_open = False
            case Write(key=key, deletes=deletes, value=value):
                if process == TRANSACTIONAL and not is_open:
                    steps.append(begin(process))
                    is_open = True
                steps.append(delete(process, key) if deletes else put(process, key, value or f"{process} puts {key}"))
    return steps, is_open
