"""The cases to explore of each simulated target: small clusters that take a few minutes together on two cores.

Each has three brokers; one broker may go away and come back, in any order with all other steps
(`harness.models.walk.state_space`). Brokers have no part in Cloud Topics' compaction: there is one copy, and only the
committer matters (`harness.models.cloud_topics.world`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from harness.errors import UsageError
from harness.model_checking.explore.fault_cases import ISR_GATE, ISR_GATE_MARKERS, FaultCase, fault_cases
from harness.models.cloud_topics.rules import RULES as CLOUD_RULES
from harness.models.cloud_topics.world import Case as CloudCase
from harness.models.faults.rules import FURTHER_RULES, GATE_RULES
from harness.models.log import redpanda
from harness.models.walk.rows import walk
from harness.models.walk.state_space import ADD, HAND_OVER, LEADER, REASSIGN, REMOVE, Bound, StateSpace
from harness.models.walk.systems import KAFKA, redpanda_without
from harness.models.world import coordination
from harness.models.world.groups import DROPS_PENDING, NEW, OLD
from harness.models.world.members import SCRIPTS
from harness.suggest import nearest
from harness.targets import SIM_CLOUD_TOPICS, SIM_KAFKA, SIM_REDPANDA

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.models.walk.exhaustive import Explored

COORDINATED: Final = "coordinated"
KIP_87: Final = "kip-87"
GATE: Final = "gate"
FRESH_COPIES: Final = "fresh-copies"
UNDER_FAULTS: Final = frozenset({ISR_GATE, ISR_GATE_MARKERS, *FURTHER_RULES})
"""Proposals that are walked only under faults."""
_BY_FLAG: Final = "a delete is a record with a flag, with or without a value, instead of a null value (KIP-87)"
PROPOSALS: Final[Mapping[str, Mapping[str, str]]] = {
    SIM_KAFKA: {
        COORDINATED: "tombstones and markers go once every assigned replica has compacted them: coordinated compaction",
        GATE: "no cleaning while an assigned replica is out of the ISR; moves of replicas and leaders are ways past it",
        ISR_GATE: "all rules of the gate in the broker; with faults alone",
        ISR_GATE_MARKERS: "the same, where only the removal of tombstones and markers waits; with faults alone",
        FRESH_COPIES: "a replica that is added starts empty, and anew with a new leader; of random runs alone",
        **{rule: f"{GATE_RULES[rule]}; with faults alone" for rule in FURTHER_RULES},
        KIP_87: _BY_FLAG,
    },
    SIM_REDPANDA: {KIP_87: _BY_FLAG},
    SIM_CLOUD_TOPICS: {},
}
"""The proposals that a simulated target can have in addition, and their meaning, by target."""
MESSAGES_MATTER: Final = frozenset({"never-backward", "late-rpc-ignored"})
"""Rules without which a late message makes a difference."""


@dataclass(frozen=True)
class Case:
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
        if bound.script:
            return f"{bound.coordinator} coordinator, {bound.script}, change: {bound.change}"
        parts = [
            *([f"{bound.coordinator} coordinator"] if bound.coordinator else []),
            f"{len(bound.keys)} key{'s' * (len(bound.keys) > 1)}",
            f"{bound.writes} plain write{'s' * (bound.writes != 1)}",
            f"{bound.transactions} transaction{'s' * (bound.transactions != 1)}{' (v2)' * bound.epoch_bump}",
            *(["gate"] if bound.gate else []),
        ]
        return ", ".join([*parts, f"change: {bound.change}", *(["no outage"] if not bound.outage else [])])

    def space(self, *, symmetric: bool) -> StateSpace:
        """Return its states and steps; ``symmetric``: see `StateSpace`."""
        return StateSpace(
            self.bound,
            system=KAFKA if self.target == SIM_KAFKA else redpanda_without(self.without),
            coordinated=self.coordinated,
            without=self.without,
            delayed=self.delayed,
            symmetric=symmetric,
        )

    def walk(self, *, most_states: int, first_only: bool) -> Explored:
        """Explore it; states that differ only by names of brokers or of keys count once."""
        return walk(self.space(symmetric=True), most_states=most_states, first_only=first_only)


AnyCase: TypeAlias = "Case | CloudCase | FaultCase"

_A, _B, _A_GOES = (("A", "1"),), (("B", "1"),), (("A", None),)
_BOTH: Final = (("A", "1"), ("B", "1"))

CLOUD_CASES: Final = (
    CloudCase(title="a value, and its delete", writes=(_BOTH, _A_GOES)),
    CloudCase(title="… and a map of two keys", writes=(_BOTH, _A_GOES), entries=2),
    CloudCase(title="… each in an object of its own", writes=(_A, _B, _A_GOES)),
    CloudCase(title="… and another key behind", writes=(_A, _A_GOES, _B)),
    CloudCase(title="… with three compactors", writes=(_A, _A_GOES, _B), compactors=3),
    CloudCase(title="… and another key again", writes=(_BOTH, _A_GOES, (("B", "2"),))),
    CloudCase(title="… all in one object", writes=(_BOTH, _A_GOES, (("B", "2"),)), object_records=9),
    CloudCase(title="… and the key written anew", writes=(_BOTH, _A_GOES, (("B", "2"),), (("A", "3"),))),
)
"""Cases of Cloud Topics' compaction: a map of one key and two compactors, unless another number is given."""


_ONE_KEY: Final = ("K",)
_TWO_KEYS: Final = ("K", "L")
_ALONE: Final = (
    Bound(writes=2, transactions=0),
    Bound(writes=1, transactions=2),
    Bound(writes=1, transactions=2, epoch_bump=True),
    Bound(keys=_TWO_KEYS, writes=0, transactions=2),
    Bound(writes=0, transactions=2, change=LEADER),
    Bound(writes=1, transactions=1, change=ADD),
    Bound(writes=1, transactions=1, change=REMOVE),
)
_TOGETHER: Final = (
    Bound(writes=2, transactions=0),
    Bound(writes=2, transactions=0, change=LEADER),
    Bound(writes=2, transactions=0, change=ADD),
    Bound(writes=2, transactions=0, change=REMOVE),
    Bound(writes=0, transactions=1, change=LEADER),
    Bound(writes=0, transactions=1, change=ADD),
    Bound(writes=0, transactions=1, change=REMOVE),
    Bound(writes=1, transactions=1),
)
_GATED: Final = tuple(
    replace(one, gate=True)
    for one in (
        Bound(writes=2, transactions=0),
        Bound(writes=1, transactions=1),
        Bound(writes=2, transactions=0, change=ADD),
        Bound(writes=0, transactions=1, change=ADD),
        Bound(writes=2, transactions=0, change=HAND_OVER, outage=False),
        Bound(writes=1, transactions=1, change=HAND_OVER, outage=False),
        Bound(writes=2, transactions=0, change=REASSIGN),
        Bound(writes=1, transactions=1, change=REASSIGN),
    )
)
_GATED_TOGETHER: Final = tuple(one for one in _GATED if not (one.writes and one.transactions))
_LATE: Final = tuple(
    replace(one, outage=False) if one.change == ADD or (one.writes and one.transactions) else one for one in _TOGETHER
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
    Bound(writes=1, transactions=1, change=ADD, coordinator=NEW),
    Bound(writes=1, transactions=1, change=REMOVE, coordinator=NEW),
    *(
        Bound(keys=(), writes=len(script), transactions=0, change=LEADER, coordinator=NEW, script=name)
        for name, script in SCRIPTS.items()
    ),
)
"""Cases of consumer groups; without a delete, both coordinators answer alike."""


def cases(
    target: str, *, with_: tuple[str, ...], without: tuple[str, ...], groups: bool = False, faults: bool = False
) -> Sequence[AnyCase]:
    """Return the cases of a target, as it is or ``with_`` proposals, ``without`` some of its rules.

    ``groups``: cases of consumer groups instead; ``faults``: cases under faults, which some proposals imply. Raises
    `UsageError` for an unknown name, for a proposal that a target has anyway, for rules of a proposal that was not
    requested, and where groups or faults are not modelled.
    """
    _refuse_unknown("--target", "simulated target", target, PROPOSALS)
    for proposal in with_:
        _refuse_unknown("--with", f"proposal for {target}", proposal, PROPOSALS[target])
    foreign = [f"--with {one}" for one in with_ if one in {KIP_87, GATE, FRESH_COPIES, *UNDER_FAULTS}]
    foreign += [] if target == SIM_KAFKA else [f"--target {target}"]
    if groups and foreign:
        raise UsageError(f"--groups: group coordinators are modelled of Kafka alone, as it is: leave out {foreign[0]}")
    if faults and (groups or target != SIM_KAFKA):
        raise UsageError(f"--faults: leave out {'--groups' if groups else f'--target {target}'}")
    if faults or UNDER_FAULTS & set(with_):
        return fault_cases(with_, without)
    if target == SIM_CLOUD_TOPICS:
        for rule in without:
            _refuse_unknown("--without", "rule", rule, CLOUD_RULES)
        return [replace(case, without=frozenset(without)) for case in CLOUD_CASES]
    is_coordinated = target == SIM_REDPANDA or COORDINATED in with_
    rules = [*coordination.RULES, *(redpanda.RULES if target == SIM_REDPANDA else [])]
    for rule in without:
        _refuse_unknown("--without", "rule", rule, rules)
    if without and not is_coordinated:
        raise UsageError(f"--without {without[0]}: {target} has no such rule: it is one of --with {COORDINATED}")
    together = _LATE if MESSAGES_MATTER & set(without) else _TOGETHER
    gated = _GATED_TOGETHER if is_coordinated else _GATED
    bounds = gated if GATE in with_ else together if is_coordinated else _GROUPS_ALONE if groups else _ALONE
    if groups and is_coordinated:
        bounds = tuple(replace(bound, coordinator=NEW) for bound in bounds)
    bounds = tuple(replace(bound, by_flag=KIP_87 in with_) for bound in bounds)
    return [Case(bound, target, is_coordinated, frozenset(without)) for bound in bounds]


def _refuse_unknown(option: str, kind: str, name: str, names: Collection[str]) -> None:
    if name not in names:
        raise UsageError(f"{option}: {nearest(kind, name, list(names))}")
