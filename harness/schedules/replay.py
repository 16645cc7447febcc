"""A schedule as the scenario of a run on real brokers: the operations of clients before, during and late in one outage.

Real cleaners cannot be ordered to run, and a day cannot be ordered to pass: a run waits until brokers have removed the
records that the schedule has them remove. Rounds of a soak can be replayed, too, where they have one partition, one
outage, and at most one client with transactions and one without.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from harness.errors import UsageError
from harness.schedules import operations as ops
from harness.schedules.catalog import CONTROL, PLUGINS, Anomaly, scenarios_by_name
from harness.schedules.scenario import Scenario, scenario_and_process
from harness.schedules.schedule import NO_PLAN, Schedule, SchedulePlayer, unsupported

TRANSACTIONAL, PLAIN = "tx", "plain"
OF_CLIENTS: Final = (ops.Write, ops.Begin, ops.End)
OF_RUNS: Final = (ops.UntilRemoved, ops.UntilInSync, ops.TakeSnapshot)
"""Waits and snapshots: every run has its own."""
RUN: Final = SchedulePlayer(
    "harness run",
    frozenset({*OF_CLIENTS, *OF_RUNS, ops.Inject, ops.Heal, ops.CleanerPass, ops.TimePasses}),
    frozenset(ops.OUTAGES),
)


def scenarios_of(schedule: Schedule) -> tuple[Scenario, ...]:
    """Return the scenarios of a schedule: one, or all of a run's but its control. Raises as `scenario_of`."""
    names = [operation.process for operation in schedule.operations if isinstance(operation, OF_CLIENTS)]
    scenarios = dict.fromkeys(scenario_and_process(name)[0] for name in names)
    if not any(scenarios):
        return (scenario_of(schedule),)
    return tuple(_scenario_of_run(schedule, name) for name in scenarios if name != CONTROL.name)


def _scenario_of_run(schedule: Schedule, name: str) -> Scenario:
    """Return a scenario of the run that wrote the schedule: its own operations, and those of no client."""
    known = scenarios_by_name().get(name)
    steps = [
        replace(step, operation=ops.of_process(step.operation, process))
        for step in schedule.steps
        for scenario, process in [scenario_and_process(step.operation.process)]
        if scenario in {name, ""}
    ]
    finding = known.anomaly if known and known.anomaly else schedule.finding
    scenario = scenario_of(replace(schedule, steps=tuple(steps), finding=finding, plan=NO_PLAN))
    phases = {phase: getattr(scenario, phase) for phase in ("before", "outage", "late")}
    return replace(known, **phases) if known else replace(scenario, name=name)


def scenario_of(schedule: Schedule) -> Scenario:
    """Return the scenario of a schedule. Raises `UsageError` with the operation that cannot be replayed, and why."""
    anomalies = [*Anomaly, *PLUGINS.contents]
    if schedule.finding not in anomalies:
        raise UsageError(f"{schedule.finding} is not an anomaly that runs look for: {', '.join(anomalies)}")
    operations = schedule.operations
    leaves = [at for at, operation in enumerate(operations) if isinstance(operation, ops.Inject)]
    returns = [at for at, operation in enumerate(operations) if isinstance(operation, ops.Heal)] or [len(operations)]
    # Absent brokers leave together, and return together.
    is_one = all(steps == [*range(steps[0], steps[-1] + 1)] for steps in (leaves, returns) if steps)
    if not leaves or not is_one or returns < leaves:
        raise UsageError("this schedule cannot be replayed: it needs one fault by which a broker leaves, and its end")
    begins_at, ends_at = leaves[-1], returns[0]
    if reason := unsupported(schedule, RUN):
        raise UsageError(f"this schedule cannot be replayed: {reason}")
    for number, operation in enumerate(operations[returns[-1] + 1 :], returns[-1] + 2):
        if not isinstance(operation, (ops.TimePasses, *OF_RUNS)):
            reason = "compaction and clients rest once the broker is back"
            raise UsageError(f"step {number} of this schedule, '{operation}', cannot be replayed: {reason}")
    names = _names(schedule.plan.transactional, operations)
    before = _of_clients(operations[:begins_at], names, is_open=False)
    of_producer = [operation for operation in before if operation.process == TRANSACTIONAL]
    is_open = bool(of_producer) and not isinstance(of_producer[-1], ops.End)
    missed = _of_clients(operations[begins_at:ends_at], names, is_open=is_open)
    ends = [at for at, operation in enumerate(missed) if is_open and isinstance(operation, ops.End)]
    # Where a producer continues whose transaction has ended, its marker has to be removed before: both markers would
    # grow old together otherwise, and the second one would be removed as well.
    later = [at for at, it in enumerate(missed) if ends and at > ends[0] and it.process == TRANSACTIONAL]
    waits_at = [at for at in range(begins_at, ends_at) if isinstance(operations[at], ops.UntilRemoved)]
    waits = [len(_of_clients(operations[begins_at:at], names, is_open=is_open)) for at in waits_at]
    late_from = next(iter(waits or later), len(missed))
    outage, late = missed[:late_from], missed[late_from:]
    scenario = Scenario(
        name=f"schedule-{schedule.finding}",
        anomaly=schedule.finding,
        payload="schedule",
        summary=f"As found on {schedule.target} ({schedule.case}): {'; '.join(map(str, operations))}.",
        before=tuple(before),
        outage=tuple(outage),
        late=tuple(late),
    )
    if not scenario.critical:
        raise UsageError("this schedule cannot be replayed: nothing that can be missed is written during the outage")
    return scenario


def why_not_replayable(schedule: Schedule) -> str | None:
    """Return why real brokers cannot be put through a schedule by a run; None if they can."""
    try:
        scenarios_of(schedule)
    except UsageError as error:
        return str(error)
    return None


def _names(planned: Collection[str], operations: Sequence[ops.Operation]) -> Mapping[str, str]:
    """Return the client of a run for each client. Raises `UsageError` where there are too many of them.

    ``planned``: the transactional clients of the schedule's plan. Clients of models are called t, if transactional.
    """
    by_clients = [operation for operation in operations if isinstance(operation, OF_CLIENTS)]
    places = {(one.topic, one.partition) for one in by_clients if isinstance(one, ops.Write)}
    transactional = {"t", *planned, *(one.process for one in by_clients if isinstance(one, ops.Begin | ops.End))}
    names = {
        process: TRANSACTIONAL if process in transactional else PLAIN
        for process in sorted({operation.process for operation in by_clients})
    }
    if len(places) > 1 or len(set(names.values())) < len(names):
        raise UsageError(
            "this schedule cannot be replayed: it needs one partition, and at most one client with transactions and one"
            f" without, not {', '.join(names)}"
        )
    return names


def _of_clients(operations: Sequence[ops.Operation], names: Mapping[str, str], *, is_open: bool) -> list[ops.Operation]:
    """Return the operations of clients, with the names that clients have in a run, on every partition.

    ``is_open``: whether a transaction is open before them. A transaction begins with its first write.
    """
    result: list[ops.Operation] = []
    for operation in operations:
        match operation:
            case ops.Write(process, key, deletes, value=value):
                if names[process] == TRANSACTIONAL and not is_open:
                    result.append(ops.Begin(TRANSACTIONAL))
                    is_open = True
                result.append(ops.Write(names[process], key, deletes, value=value))
            case ops.End(process, outcome):
                result.append(ops.End(names[process], outcome))
                is_open = False
    return result
