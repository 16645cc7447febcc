"""The states of a small cluster under faults, and what follows from them: who is in sync, and who has to wait."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.models.faults.rules import ADDING_COUNTS, ALL_WAITS, GATE_RULES, IMAGE_AGE, KAFKAS_RULES, NOT_IN_SYNC
from harness.models.walk.state_space import LEAVES, Bound
from harness.models.world.coordination import NOTHING, Pair

if TYPE_CHECKING:
    from collections.abc import Sequence

NO_BROKER: Final = 0
UNKNOWN_END: Final = -1


@dataclass(frozen=True, kw_only=True)
class FaultBound:
    """How much may happen, and by which rules.

    ``clients``: keys, writes and transactions of it. ``brokers``: how many have a replica in the beginning.
    ``elections``: how often another replica in sync may lead. ``faults``: names of
    `harness.models.faults.rules.FAULTS`, each once. ``waits``: what waits while a partition is held. ``rules``: names
    of `harness.models.faults.rules.RULES`.
    """

    clients: Bound = field(default_factory=lambda: Bound(writes=2, transactions=0))
    brokers: int = 3
    elections: int = 0
    faults: frozenset[str] = frozenset()
    waits: str = ALL_WAITS
    rules: frozenset[str] = frozenset({*KAFKAS_RULES, *GATE_RULES})

    @property
    def added(self) -> int:
        """The broker on which a replica may be added."""
        return self.brokers + 1


class FaultState(NamedTuple):
    """The cluster: numbers of its parts (`harness.models.walk.state_space.State`), and what has happened to brokers.

    Broker 2 (`harness.models.walk.state_space.LEAVES`) is in the ISR, or ``away`` from it: then it is down, or up and
    ``copying``. It ``lags`` inside the ISR. ``end``: its log end meanwhile, where known; ``synced``: up to where its
    log is on disk; ``checkpointed``: its high watermark of some time before, of which it has ``lost`` some.
    ``first_copy``: it knows that its log was empty when the copy began. ``unassigned``; ``adding``: assigned again.

    ``joining``: the added replica copies. ``late``: the broker with a late image, by which its gate is open
    (``late_open``), a replica is being added (``late_adding``), and which is ``late_old``. ``cut``: the follower
    that is cut off. ``truncating``: brokers that are down, and the offset at which each truncates when it returns.
    ``bounds``: with coordination, what may be removed. ``may``: faults that have not happened yet.
    """

    clients: int
    replicas: tuple[tuple[int, int], ...]
    leader: int
    elections: int
    may: frozenset[str]
    away: bool = False
    copying: bool = False
    lags: bool = False
    end: int = UNKNOWN_END
    synced: int = 0
    checkpointed: int = 0
    lost: bool = False
    first_copy: bool = False
    unassigned: bool = False
    adding: bool = False
    joining: bool = False
    late: int = NO_BROKER
    late_open: bool = False
    late_adding: bool = False
    late_old: bool = False
    cut: int = NO_BROKER
    truncating: tuple[tuple[int, int], ...] = ()
    bounds: Pair = NOTHING

    def replica(self, broker: int) -> int:
        """Return the number of a broker's replica."""
        return next(number for one, number in self.replicas if one == broker)

    def with_replicas(self, replicas: tuple[tuple[int, int], ...]) -> FaultState:
        """Return the state with other replicas."""
        return self._replace(replicas=replicas)

    def with_replica(self, broker: int, number: int) -> FaultState:
        """Return the state with another replica of a broker."""
        return self._replace(
            replicas=tuple((one, number if one == broker else before) for one, before in self.replicas)
        )

    def after(self, fault: str, **changes: object) -> FaultState:
        """Return the state after a fault, which happens only once."""
        return self._replace(may=self.may - {fault}, **changes)  # type: ignore[arg-type]  # (by name, as _replace)


def is_up(state: FaultState, broker: int) -> bool:
    """Whether a broker runs, and fetches or is fetched from."""
    if broker == LEAVES and state.away:
        return state.copying
    return all(one != broker for one, _ in state.truncating)


def copies_at_once(state: FaultState, broker: int, added: int) -> bool:
    """Whether a follower gets what is written at once: it is in the ISR, or only cut off from the controller."""
    if broker == LEAVES and (state.away or state.lags):
        return False
    return is_up(state, broker) and not (state.joining and broker == added)


def is_in_sync(state: FaultState, broker: int, added: int) -> bool:
    """Whether a broker is in the ISR, and has all records."""
    return copies_at_once(state, broker, added) and broker != state.cut


def is_open(state: FaultState, rules: frozenset[str]) -> bool:
    """Whether a current metadata image lets compaction go on (``compaction.gate.Decision.decide``)."""
    away = state.away and not state.unassigned and not state.adding
    is_missing = NOT_IN_SYNC in rules and (away or bool(state.truncating) or state.cut != NO_BROKER)
    return not is_missing and not (ADDING_COUNTS in rules and (state.joining or state.adding))


def is_held(state: FaultState, broker: int, rules: frozenset[str]) -> bool:
    """Whether compaction of a broker's replica waits, by the image that the broker has."""
    if broker != state.late:
        return not is_open(state, rules)
    return not state.late_open or (state.late_old and IMAGE_AGE in rules)


def may_fetch_as_added(state: FaultState) -> bool:
    """Whether the leader answers a replica that is being added: only once its image has it.

    Source: ``Partition.followerReplicaOrThrow``. A broker publishes its image before it applies it
    (``BrokerMetadataPublisher.onMetadataUpdate``), so that the gate has no earlier image than the leader.
    """
    return state.leader != state.late or state.late_adding


def renamed(state: FaultState, special: frozenset[int]) -> tuple[FaultState, list[int]]:
    """Return an equivalent state under other names of brokers, and followers in it that may change places.

    Brokers that no step names may change names: the leader gets the first one, then the one with a late image, then the
    one that is cut off, then those that truncate.
    """
    truncating = dict(state.truncating)
    every = [one for one, _ in state.replicas if one not in special]

    def rank(one: int) -> tuple[bool, bool, bool, bool, int]:
        return one != state.leader, one != state.late, one != state.cut, one not in truncating, one

    names = dict(zip(sorted(every, key=rank), every, strict=True))

    def name(broker: int) -> int:
        return names.get(broker, broker)

    after = state._replace(
        replicas=_renamed_pairs(state.replicas, names),
        truncating=_renamed_pairs(state.truncating, names),
        leader=name(state.leader),
        late=name(state.late),
        cut=name(state.cut),
    )
    roles = {state.leader, state.late, state.cut, *truncating}
    return after, sorted(names[one] for one in every if one not in roles)


def _renamed_pairs(pairs: Sequence[tuple[int, int]], names: dict[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(((names.get(one, one), number) for one, number in pairs), key=lambda pair: pair[0]))
