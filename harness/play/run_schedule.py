"""The schedule of a run: write, inject, end, wait until removed, late writes, snapshot, heal, wait, snapshot."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN
from harness.schedules.operations.faults import Expose, Heal, Inject
from harness.schedules.operations.operation import of_process
from harness.schedules.operations.waits import TakeSnapshot, UntilInSync, UntilRemoved
from harness.schedules.scenario import client_name
from harness.schedules.schedule import RoundClient, RoundPlan, RoundTopic, Schedule, in_order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.play.run_plan import RunPlan
    from harness.schedules.operations.operation import Operation


def run_schedule(plan: RunPlan) -> Schedule:
    """Return the schedule of a run.

    The processes are clients by their names (`client_name`). Their operations concern all partitions of the scenario:
    the ``home`` of the client. An act on several absent brokers is one operation for each broker.
    """
    script, absent = plan.nemesis, plan.placement.absent
    before, outage, late = (
        [
            of_process(operation, client_name(scenario.name, operation.process))
            for scenario in plan.scenarios
            for operation in getattr(scenario, phase)
        ]
        for phase in ("before", "outage", "late")
    )
    operations: Iterable[Operation] = (
        *before,
        UntilInSync(),
        *(Inject(script.name, broker) for broker in absent),
        *outage,
        UntilRemoved(),
        *late,
        UntilInSync(),
        *(Expose(script.name, broker) for broker in absent if script.expose),
        TakeSnapshot(BEFORE_RETURN),
        *(Heal(script.name, broker) for broker in absent),
        UntilInSync(),
        TakeSnapshot(AFTER_REJOIN),
    )
    return Schedule(in_order(*operations), plan.options.anomaly, plan.target.name, plan=_plan_of(plan))


def _plan_of(plan: RunPlan) -> RoundPlan:
    partitions, counts = plan.partitions, Counter(topic for topic, _ in plan.replicas)
    return RoundPlan(
        plan.seed,
        tuple(RoundTopic(topic, count, plan.topic_settings) for topic, count in counts.items()),
        tuple(
            RoundClient(
                name := client_name(scenario.name, process),
                plan.options.client,
                name if process in scenario.transactional_processes else None,
                home=tuple(partitions[scenario.name]),
            )
            for scenario in plan.scenarios
            for process in sorted({operation.process for operation in scenario.operations})
        ),
        plan.placement.brokers,
    )
