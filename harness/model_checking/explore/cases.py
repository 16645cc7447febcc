"""The cases to explore of each simulated target: small clusters that take a few minutes together on two cores.

Without ``--faults``, each has three brokers, one of which may go down and return. Under faults, three or four brokers
have few faults: each case is walked to its end in seconds, and with a transaction in a minute.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from harness.errors import UsageError
from harness.models.faults import state as by
from harness.models.faults.space import FaultSpace
from harness.models.faults.state import FaultBound
from harness.models.log import redpanda
from harness.models.log.systems import KAFKA, redpanda_without
from harness.models.walk.exhaustive import Explored
from harness.models.walk.rows import walk
from harness.models.walk.state_space import ADD, HAND_OVER, LEADER, REASSIGN, REMOVE, Bound, StateSpace
from harness.models.world import coordination
from harness.models.world.groups import DROPS_PENDING, NEW, OLD
from harness.models.world.members import SCRIPTS
from harness.suggest import known_name
from harness.targets import SIM_KAFKA, SIM_REDPANDA

COORDINATED, GATE = "coordinated", "gate"
ISR_GATE, ISR_GATE_MARKERS = "isr-gate", "isr-gate-markers"
UNDER_FAULTS: Final = frozenset({ISR_GATE, ISR_GATE_MARKERS, *by.FURTHER_RULES})
"""Proposals that are walked only under faults."""
WAITS: Final[Mapping[str, str]] = {
    ISR_GATE: by.ALL_WAITS,
    ISR_GATE_MARKERS: by.REMOVALS_WAIT,
    COORDINATED: by.COORDINATED,
}
"""The compaction that waits under faults, by proposal."""
PROPOSALS: Final[Mapping[str, Mapping[str, str]]] = {
    SIM_KAFKA: {
        COORDINATED: "tombstones and markers go once every assigned replica has compacted them: coordinated compaction",
        GATE: "no cleaning while an assigned replica is out of the ISR; moves of replicas and leaders are ways past it",
        ISR_GATE: "all rules of the gate in the broker; with faults alone",
        ISR_GATE_MARKERS: "the same, where only the removal of tombstones and markers waits; with faults alone",
        **{rule: f"{by.GATE_RULES[rule]}; with faults alone" for rule in by.FURTHER_RULES},
    },
    SIM_REDPANDA: {},
}
"""The proposals that a simulated target can have in addition, and their meaning, by target."""
MESSAGES_MATTER: Final = frozenset({"never-backward", "late-rpc-ignored"})
"""Rules without which a late message makes a difference."""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


@dataclass(frozen=True)
class ClusterCase:
    """One small cluster; ``without``: names of rules that its coordination or its cleaners leave out."""

    bound: Bound
    target: str = SIM_KAFKA
    coordinated: bool = False
    without: frozenset[str] = frozenset()

    @property
    def delayed(self) -> bool:
        """Whether messages are delayed, each separately."""
        return bool(self.without & MESSAGES_MATTER)

    @property
    def title(self) -> str:
        """A description of the possible steps."""
        bound = self.bound
        coordinator, change = f"{bound.coordinator} coordinator" * bool(bound.coordinator), f"change: {bound.change}"
        if bound.script:
            return f"{coordinator}, {bound.script}, {change}"
        parts = (
            coordinator,
            f"{len(bound.keys)} key{'s' * (len(bound.keys) > 1)}",
            _count(bound.writes, "plain write"),
            f"{_count(bound.transactions, 'transaction')}{' (v2)' * bound.epoch_bump}",
            "gate" * bound.gate,
            change,
            "no outage" * (not bound.outage),
        )
        return ", ".join(filter(None, parts))

    def walk(self, *, most_states: int, first_only: bool) -> Explored:
        """Explore the states; states that differ only by names of brokers or of keys count once."""
        space = StateSpace(
            self.bound,
            system=KAFKA if self.target == SIM_KAFKA else redpanda_without(self.without),
            coordinated=self.coordinated,
            without=self.without,
            delayed=self.delayed,
            symmetric=True,
        )
        return walk(space, most_states=most_states, first_only=first_only)


@dataclass(frozen=True)
class FaultCase:
    """One small cluster under faults; ``without``: rules that are left out."""

    bound: FaultBound
    without: frozenset[str] = frozenset()

    @property
    def title(self) -> str:
        """A description of the possible steps."""
        bound, clients = self.bound, self.bound.clients
        parts = [f"{bound.brokers} brokers", _count(clients.writes, "plain write")]
        parts += [f"{clients.transactions} transaction"] * bool(clients.transactions)
        parts += [_count(bound.elections, "election"), *(fault for fault in by.FAULTS if fault in bound.faults)]
        return ", ".join(parts)

    def walk(self, *, most_states: int, first_only: bool) -> Explored:
        """Explore the states; states that differ only by names of brokers or of keys count once."""
        return walk(FaultSpace(self.bound, symmetric=True), most_states=most_states, first_only=first_only)


AnyCase: TypeAlias = "ClusterCase | FaultCase"

_ONE_KEY, _TWO_KEYS = ("K",), ("K", "L")
_WRITES: Final = Bound(writes=2, transactions=0)
_TRANSACTION: Final = Bound(writes=1, transactions=1)
_ONLY_TRANSACTION: Final = Bound(writes=0, transactions=1)
_ALONE: Final = (
    _WRITES,
    Bound(writes=1, transactions=2),
    Bound(writes=1, transactions=2, epoch_bump=True),
    Bound(keys=_TWO_KEYS, writes=0, transactions=2),
    Bound(writes=0, transactions=2, change=LEADER),
    replace(_TRANSACTION, change=ADD),
    replace(_TRANSACTION, change=REMOVE),
)
_TOGETHER: Final = (
    _WRITES,
    *(replace(clients, change=change) for clients in (_WRITES, _ONLY_TRANSACTION) for change in (LEADER, ADD, REMOVE)),
    _TRANSACTION,
)
_GATED: Final = tuple(
    replace(bound, gate=True)
    for bound in (
        _WRITES,
        _TRANSACTION,
        replace(_WRITES, change=ADD),
        replace(_ONLY_TRANSACTION, change=ADD),
        *(replace(clients, change=HAND_OVER, outage=False) for clients in (_WRITES, _TRANSACTION)),
        *(replace(clients, change=REASSIGN) for clients in (_WRITES, _TRANSACTION)),
    )
)
_GATED_TOGETHER: Final = tuple(bound for bound in _GATED if not (bound.writes and bound.transactions))
_LATE: Final = tuple(
    replace(bound, outage=False) if bound.change == ADD or (bound.writes and bound.transactions) else bound
    for bound in _TOGETHER
)
"""Cases in which each message is delayed separately: some without an outage, as an outage means too many states."""
_GROUPS_ALONE: Final = (
    *(
        Bound(keys=keys, writes=writes, transactions=transactions, coordinator=coordinator)
        for coordinator in DROPS_PENDING
        for keys, writes, transactions in ((_ONE_KEY, 2, 0), (_ONE_KEY, 2, 1), (_TWO_KEYS, 1, 2))
    ),
    Bound(keys=_TWO_KEYS, writes=0, transactions=2, change=LEADER, coordinator=OLD),
    Bound(keys=_TWO_KEYS, writes=0, transactions=2, change=LEADER, coordinator=NEW, epoch_bump=True),
    replace(_TRANSACTION, change=ADD, coordinator=NEW),
    replace(_TRANSACTION, change=REMOVE, coordinator=NEW),
    *(
        Bound(keys=(), writes=len(script), transactions=0, change=LEADER, coordinator=NEW, script=name)
        for name, script in SCRIPTS.items()
    ),
)
"""Cases of consumer groups; without a delete, both coordinators answer alike."""

_FAULTS: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    by.OUTAGE: (
        *((), (by.REASSIGN,), (by.LATE,), (by.ISOLATED,), (by.UNCLEAN,)),
        *((by.RELAY,), (by.LATE, by.UNCLEAN), (by.ISOLATED, by.UNCLEAN)),
    ),
    by.LAG: ((), (by.LATE,)),
    by.RELAY: ((), (by.LATE,)),
    by.DISK: ((by.RESTART,), (), (by.LATE,)),
    by.POWER: ((), (by.UNCLEAN,)),
}
"""Faults, and the further faults that each is walked with."""
_OF_FOUR_BROKERS: Final = {by.OUTAGE: 5, by.LAG: 1, by.RELAY: 1, by.DISK: 1, by.POWER: 2}
"""The number of these cases that are also walked with four brokers."""
_WITH_TRANSACTION: Final[Sequence[tuple[Sequence[str], int]]] = (
    *(((by.OUTAGE, *further), 1) for further in ((), (by.REASSIGN,), (by.ISOLATED,))),
    *((faults, 1) for faults in ((by.DISK, by.RESTART), (by.POWER,), (by.RELAY,))),
    *((faults, 0) for faults in ((by.LAG,), (by.OUTAGE, by.LATE))),
)
"""Faults, and the number of elections; cases without a transaction have one election."""


def _bound(*faults: str, elections: int = 1, **more: Any) -> FaultBound:
    return FaultBound(faults=frozenset(faults), elections=elections, **more)


_UNDER_FAULTS: Final = (
    *(_bound(fault, *more) for fault, further in _FAULTS.items() for more in further),
    *(_bound(fault, *more, brokers=4) for fault, count in _OF_FOUR_BROKERS.items() for more in _FAULTS[fault][:count]),
    *(_bound(*faults, elections=elections, clients=_TRANSACTION) for faults, elections in _WITH_TRANSACTION),
)


def cases(
    target: str, *, with_: tuple[str, ...], without: tuple[str, ...], groups: bool = False, faults: bool = False
) -> Sequence[AnyCase]:
    """Return the cases of a target, as it is or ``with_`` proposals, ``without`` some of its rules.

    ``groups``: cases of consumer groups instead; ``faults``: cases under faults, which some proposals imply. Raises
    `UsageError` for a name that is unknown or not in force, and where groups or faults are not modelled.
    """
    _reject_unknown("--target", "simulated target", [target], PROPOSALS)
    _reject_unknown("--with", f"proposal for {target}", with_, PROPOSALS[target])
    foreign = [f"--with {name}" for name in with_ if name in {GATE, *UNDER_FAULTS}]
    foreign += [] if target == SIM_KAFKA else [f"--target {target}"]
    if groups and foreign:
        raise UsageError(f"--groups: group coordinators are modelled of Kafka alone, as it is: leave out {foreign[0]}")
    if faults and (groups or target != SIM_KAFKA):
        raise UsageError(f"--faults: leave out {'--groups' if groups else f'--target {target}'}")
    if faults or UNDER_FAULTS & set(with_):
        return fault_cases(with_, without)
    is_coordinated = target == SIM_REDPANDA or COORDINATED in with_
    _reject_unknown(
        "--without", "rule", without, [*coordination.RULES, *(redpanda.RULES if target == SIM_REDPANDA else [])]
    )
    if without and not is_coordinated:
        raise UsageError(f"--without {without[0]}: {target} has no such rule: it is one of --with {COORDINATED}")
    together = _LATE if MESSAGES_MATTER & set(without) else _TOGETHER
    gated = _GATED_TOGETHER if is_coordinated else _GATED
    bounds = gated if GATE in with_ else together if is_coordinated else _GROUPS_ALONE if groups else _ALONE
    if groups and is_coordinated:
        bounds = tuple(replace(bound, coordinator=NEW) for bound in bounds)
    return [ClusterCase(bound, target, is_coordinated, frozenset(without)) for bound in bounds]


def fault_cases(with_: Collection[str], without: Collection[str]) -> Sequence[FaultCase]:
    """Return the cases of Kafka under faults, as it is or with proposals. Raises `UsageError` as `cases` does."""
    further = [name for name in with_ if name in by.FURTHER_RULES]
    proposals = [name for name in with_ if name not in further]
    if unknown := [name for name in proposals if name not in WAITS]:
        raise UsageError(f"--with {unknown[0]}: it is not modelled under faults; known: {', '.join(WAITS)}")
    if len(proposals) > 1:
        raise UsageError(f"--with {proposals[0]} --with {proposals[1]}: give only one of them under faults")
    gate = by.GATE_RULES if {ISR_GATE, ISR_GATE_MARKERS} & set(proposals) else {}
    if gate and further:
        raise UsageError(f"--with {further[0]}: {proposals[0]} has this rule; leave it out")
    rules = frozenset({*by.KAFKAS_RULES, *gate, *further})
    _reject_unknown("--without", "rule", without, sorted(rules))
    waits = WAITS[proposals[0]] if proposals else by.NOTHING_WAITS
    bounds = [replace(bound, waits=waits, rules=rules - set(without)) for bound in _UNDER_FAULTS]
    return [FaultCase(bound, frozenset(without)) for bound in bounds]


def _reject_unknown(option: str, kind: str, names: Collection[str], known_names: Collection[str]) -> None:
    for name in names:
        known_name(kind, name, known_names, f"{option}: ")
