"""The smallest schedule: operations are removed, and others simplified, for as long as the same anomaly occurs.

Among equally small schedules, those are preferred that real brokers can replay
(`harness.schedules.replay.scenario_of`): without a change of leader, lag or hours, with one transactional client,
whose later steps come after the cleaners'.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from harness.models.world.steps import play
from harness.models.world.world import ABSENT, ADDED
from harness.schedules.operations.administrators import AddReplica, ElectLeader
from harness.schedules.operations.clients import End, Write
from harness.schedules.operations.environment import (
    CleanerPass,
    CopyBatch,
    JoinIsr,
    MessageArrives,
    MessageIsLost,
    MessagesArrive,
    SendReport,
    TimePasses,
)
from harness.schedules.operations.faults import LAG, OUTAGE, Heal, Inject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.model_checking.explore.schedule_generator import RandomSchedule
    from harness.schedules.operations.operation import Operation

LEADER_CLEANS: Final = CleanerPass((1,))
ADDED_LEAVES: Final[Mapping[Operation, Operation]] = {
    AddReplica(ADDED): Inject(OUTAGE, ABSENT),
    JoinIsr(ADDED): Heal(OUTAGE, ABSENT),
}
SIMPLER: Final[Sequence[Callable[[Operation], Operation]]] = (
    lambda one: Inject(OUTAGE, ABSENT) if one == AddReplica(ADDED) else one,
    lambda one: Heal(OUTAGE, ABSENT) if one == JoinIsr(ADDED) else one,
    lambda one: Inject(OUTAGE, ABSENT) if one == Inject(LAG, ABSENT) else one,
    lambda one: TimePasses() if isinstance(one, TimePasses) else one,
    lambda one: LEADER_CLEANS if one == CleanerPass((3,)) else one,
    lambda one: LEADER_CLEANS if one == CleanerPass((ABSENT,)) else one,
    lambda one: replace(one, process="t") if isinstance(one, Write | End) and one.process == "u" else one,
    lambda one: replace(one, key="K") if isinstance(one, Write) and one.key == "M" else one,
    lambda one: replace(one, key="K") if isinstance(one, Write) and one.key == "L" else one,
    lambda one: replace(one, key="L") if isinstance(one, Write) and one.key == "M" else one,
)
"""Functions that make an operation simpler: tried at one place, or everywhere."""
_HARD: Final = (ElectLeader, CopyBatch, MessageArrives, MessageIsLost, MessagesArrive, SendReport)


def is_wrong(drawn: RandomSchedule, name: str) -> bool:
    """Whether a schedule leads to an anomaly of that name."""
    return any(name == anomaly for _, anomaly in play(drawn.rules, drawn.steps).violations())


def has_consequence(drawn: RandomSchedule, name: str) -> bool:
    """Whether a schedule leads to a consequence for groups of that name (`harness.models.world.groups`)."""
    return any(name == consequence for _, consequence in play(drawn.rules, drawn.steps).consequences())


def shrink(
    drawn: RandomSchedule, name: str, keeps_anomaly: Callable[[RandomSchedule, str], bool] = is_wrong
) -> RandomSchedule:
    """Return the smallest schedule within reach of small changes, each of which keeps the anomaly ``name``."""
    while smaller := next(
        (one for one in _simpler(drawn) if cost(one) < cost(drawn) and keeps_anomaly(one, name)), None
    ):
        drawn = smaller
    return drawn


def cost(drawn: RandomSchedule) -> tuple[int, int, int, int, tuple[str, ...]]:
    """Return the sort key of schedules: length, rare operations, version, and how late producers go on."""
    steps = drawn.steps
    rare = sum(simpler(step) != step for step in steps for simpler in SIMPLER)
    rare += 2 * sum(isinstance(step, _HARD) for step in steps)
    late = sum(at for at, step in enumerate(steps) if step.process == "t")
    return len(steps), rare, drawn.rules.epoch_bump, -late, tuple(map(str, steps))


def _simpler(drawn: RandomSchedule) -> Iterator[RandomSchedule]:
    steps = drawn.steps
    size = len(steps) // 2
    while size:
        for at in range(0, len(steps), size):
            yield replace(drawn, steps=(*steps[:at], *steps[at + size :]))
        size //= 2
    for first in range(len(steps)):
        for second in range(first + 1, len(steps)):
            yield replace(drawn, steps=(*steps[:first], *steps[first + 1 : second], *steps[second + 1 :]))
    yield replace(drawn, rules=replace(drawn.rules, epoch_bump=False))
    for simpler in SIMPLER:
        yield replace(drawn, steps=tuple(map(simpler, steps)))
        for at, step in enumerate(steps):
            if simpler(step) != step:
                yield replace(drawn, steps=(*steps[:at], simpler(step), *steps[at + 1 :]))
    yield replace(drawn, steps=tuple(ADDED_LEAVES.get(step, step) for step in steps))
    one_leads = (LEADER_CLEANS if step == CleanerPass((3,)) else step for step in steps)
    yield replace(drawn, steps=tuple(step for step in one_leads if not isinstance(step, ElectLeader)))
    for at in range(len(steps) - 1):
        if steps[at].process == "t" and isinstance(steps[at + 1], CleanerPass | TimePasses):
            yield replace(drawn, steps=(*steps[:at], steps[at + 1], steps[at], *steps[at + 2 :]))
