"""A stored round on brokers of another kind than it was played on: what those cannot do is left out of it.

Simulated topics are always compacted, and have few settings; real ones have to be told. What a target lacks is in
`harness.soak.play.rig.Setup`, and each soak lists it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from harness.schedules.operations.administrators import AlterTopic, DeleteRecords, RecreateTopic
from harness.schedules.operations.clients import CommitOffset, DeleteGroup, SendOffset, VisitGroup
from harness.schedules.operations.faults import Heal, Inject
from harness.soak.draw.plan import ALTERATION, DELETE_RECORDS, GROUP_OFFSETS, IDEMPOTENCE, RECREATION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.schedules.operations.operation import Operation
    from harness.schedules.plan import RoundTopic
    from harness.schedules.schedule import Schedule
    from harness.soak.play.rig import Setup

NEEDED: Final[Mapping[type, str]] = {
    **dict.fromkeys((SendOffset, CommitOffset, VisitGroup, DeleteGroup), GROUP_OFFSETS),
    DeleteRecords: DELETE_RECORDS,
    RecreateTopic: RECREATION,
    AlterTopic: ALTERATION,
}
"""The feature that an operation takes."""
COMPACTED: Final = {"cleanup.policy": "compact"}


def fitted(schedule: Schedule, setup: Setup) -> Schedule:
    """Return the round as these brokers can play it."""
    features = setup.shape.features

    def fits(operation: Operation) -> bool:
        match operation:
            case Inject(fault=fault) | Heal(fault=fault):
                return fault in setup.faults
            case AlterTopic(setting=setting) if setting not in setup.shape.settings:
                return False
        return NEEDED.get(type(operation)) in {None, *features}

    def topic(one: RoundTopic) -> RoundTopic:
        if not setup.is_simulated:
            return replace(one, settings={**COMPACTED, **one.settings})
        known = {name: value for name, value in one.settings.items() if name in setup.shape.settings}
        return replace(one, settings=known)

    clients = tuple(
        replace(one, is_idempotent=one.is_idempotent and IDEMPOTENCE in features) for one in schedule.plan.clients
    )
    plan = replace(schedule.plan, topics=tuple(map(topic, schedule.plan.topics)), clients=clients)
    return replace(schedule, plan=plan, steps=tuple(step for step in schedule.steps if fits(step.operation)))
