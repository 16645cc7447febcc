"""The cases of the gate in the broker: small clusters of three or four brokers under faults (`harness.models.faults`).

Each case has few faults, so that it is walked to its end in seconds; those with a transaction take up to a minute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.models.faults import rules as by
from harness.models.faults.space import FaultSpace
from harness.models.faults.state import FaultBound
from harness.models.walk.rows import walk
from harness.models.walk.state_space import Bound
from harness.suggest import nearest
from harness.targets import SIM_KAFKA

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.models.walk.exhaustive import Explored

ISR_GATE: Final = "isr-gate"
ISR_GATE_MARKERS: Final = "isr-gate-markers"
GATES: Final = frozenset({ISR_GATE, ISR_GATE_MARKERS})
WAITS: Final[Mapping[str, str]] = {
    ISR_GATE: by.ALL_WAITS,
    ISR_GATE_MARKERS: by.REMOVALS_WAIT,
    "coordinated": by.COORDINATED,
}
"""What waits with a proposal; nothing without one."""

_WRITES: Final = Bound(writes=2, transactions=0)
_TRANSACTION: Final = Bound(writes=1, transactions=1)
_ONE_AT_A_TIME: Final[Sequence[tuple[Sequence[str], int]]] = (
    ((by.OUTAGE,), 1),
    ((by.LAG,), 1),
    ((by.RELAY,), 1),
    ((by.OUTAGE, by.REASSIGN), 1),
    ((by.OUTAGE, by.LATE), 1),
    ((by.OUTAGE, by.ISOLATED), 1),
    ((by.LAG, by.LATE), 1),
    ((by.RELAY, by.LATE), 1),
    ((by.OUTAGE, by.RELAY), 1),
    ((by.DISK,), 1),
    ((by.DISK, by.RESTART), 1),
    ((by.DISK, by.LATE), 1),
    ((by.POWER,), 1),
    ((by.OUTAGE, by.UNCLEAN), 1),
    ((by.POWER, by.UNCLEAN), 1),
    ((by.OUTAGE, by.LATE, by.UNCLEAN), 1),
    ((by.OUTAGE, by.ISOLATED, by.UNCLEAN), 1),
)
"""Faults, and how many elections beside them."""
_FOUR_BROKERS: Final = (*_ONE_AT_A_TIME[:6], *_ONE_AT_A_TIME[10:11], *_ONE_AT_A_TIME[12:15])
_WITH_TRANSACTION: Final[Sequence[tuple[Sequence[str], int]]] = (
    ((by.OUTAGE,), 1),
    ((by.LAG,), 0),
    ((by.OUTAGE, by.REASSIGN), 1),
    ((by.DISK, by.RESTART), 1),
    ((by.POWER,), 1),
    ((by.RELAY,), 1),
    ((by.OUTAGE, by.ISOLATED), 1),
    ((by.OUTAGE, by.LATE), 0),
)


@dataclass(frozen=True)
class FaultCase:
    """One small cluster; ``without``: rules that are left out."""

    bound: FaultBound
    target: str = SIM_KAFKA
    without: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        """A description of the possible steps."""
        bound, clients = self.bound, self.bound.clients
        written = [f"{clients.writes} plain write{'s' * (clients.writes != 1)}"]
        written += [f"{clients.transactions} transaction"] * bool(clients.transactions)
        elections = f"{bound.elections} election{'s' * (bound.elections != 1)}"
        faults = [fault for fault in by.FAULTS if fault in bound.faults]
        return ", ".join([f"{bound.brokers} brokers", *written, elections, *faults])

    def walk(self, *, most_states: int, first_only: bool) -> Explored:
        """Explore it; states that differ only by names of brokers or of keys count once."""
        space = FaultSpace(self.bound, symmetric=True)
        return walk(space, most_states=most_states, first_only=first_only)


def fault_cases(with_: Collection[str], without: Sequence[str]) -> Sequence[FaultCase]:
    """Return the cases: as Kafka is, or with a gate or coordination, and with further rules.

    Raises `UsageError` for proposals that do not go together, and for rules that are not in force.
    """
    proposals = [one for one in with_ if one not in by.FURTHER_RULES]
    if unknown := [one for one in proposals if one not in WAITS]:
        raise UsageError(f"--with {unknown[0]}: it is not modelled under faults; known: {', '.join(WAITS)}")
    if len(proposals) > 1:
        raise UsageError(f"--with {proposals[0]} --with {proposals[1]}: under faults, one of them at a time")
    further = [one for one in with_ if one in by.FURTHER_RULES]
    gate = by.GATE_RULES if GATES & set(proposals) else {}
    if gate and further:
        raise UsageError(f"--with {further[0]}: {proposals[0]} has this rule; leave it out")
    rules = frozenset({*by.KAFKAS_RULES, *gate, *further})
    for rule in without:
        if rule not in rules:
            raise UsageError(f"--without: {nearest('rule', rule, sorted(rules))}")
    waits = WAITS[proposals[0]] if proposals else by.NOTHING_WAITS
    sizes = (
        *((_WRITES, 3, one) for one in _ONE_AT_A_TIME),
        *((_WRITES, 4, one) for one in _FOUR_BROKERS),
        *((_TRANSACTION, 3, one) for one in _WITH_TRANSACTION),
    )
    return [
        FaultCase(
            FaultBound(
                clients=clients,
                brokers=brokers,
                elections=elections,
                faults=frozenset(faults),
                waits=waits,
                rules=rules - set(without),
            ),
            without=frozenset(without),
        )
        for clients, brokers, (faults, elections) in sizes
    ]
