"""The states of a small cluster under faults: brokers in sync, and brokers whose compaction has to wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from harness.models.faults.rules import ADDING_COUNTS, ALL_WAITS, GATE_RULES, IMAGE_AGE, KAFKAS_RULES, NOT_IN_SYNC
from harness.models.log.cleaner import Bounds
from harness.models.walk.state_space import LEAVES, Bound
from harness.models.world.coordination import NOTHING

NO_BROKER: Final = 0
UNKNOWN_END: Final = -1


@dataclass(frozen=True, kw_only=True)
class FaultBound:
    """The bound of the steps, and the rules.

    ``clients``: keys, writes and transactions of it. ``brokers``: how many have a replica in the beginning.
    ``elections``: how often another replica in sync may lead. ``faults``: names of
    `harness.models.faults.rules.FAULTS`, each once. ``waits``: the compaction that waits while a partition is held.
    ``rules``: names of `harness.models.faults.rules.RULES`.
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
    """The cluster: numbers of its parts (`harness.models.walk.state_space.State`), and the faults of its brokers.

    Broker 2 (`harness.models.walk.state_space.LEAVES`) is in the ISR, or out of it (``away``): then it is down, or up
    and ``copying``. It ``lags`` inside the ISR. ``end``: its log end meanwhile, if known; ``synced``: up to where its
    log is on disk; ``checkpointed``: its high watermark of some time before, of which it has ``lost`` some.
    ``first_copy``: it knows that its log was empty when the copy began. ``unassigned``; ``adding``: assigned again.

    ``joining``: the added broker, while it copies. ``late``: the broker with a late image, by which its gate is open
    (``late_open``), a replica is being added (``late_adding``), and which is ``late_old``. ``cut``: the follower
    that is cut off. ``truncating``: brokers that are down, and the offset at which each truncates when it returns.
    ``bounds``: with coordination, the bounds of removals. ``may``: faults that have not happened yet.
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
    joining: int = NO_BROKER
    late: int = NO_BROKER
    late_open: bool = False
    late_adding: bool = False
    late_old: bool = False
    cut: int = NO_BROKER
    truncating: tuple[tuple[int, int], ...] = ()
    bounds: Bounds = NOTHING

    def replica(self, broker: int) -> int:
        """Return the number of a broker's replica."""
        return dict(self.replicas)[broker]

    def with_replica(self, broker: int, number: int) -> FaultState:
        """Return the state with another replica of a broker."""
        return self._replace(replicas=tuple((b, number if b == broker else before) for b, before in self.replicas))

    def after(self, fault: str, **changes: object) -> FaultState:
        """Return the state after a fault, which happens only once."""
        return self._replace(may=self.may - {fault}, **changes)  # type: ignore[arg-type]  # (by name, as _replace)

    def is_up(self, broker: int) -> bool:
        """Return whether a broker runs, and fetches or is fetched from."""
        return self.copying if broker == LEAVES and self.away else broker not in dict(self.truncating)

    def copies_at_once(self, broker: int) -> bool:
        """Return whether a follower gets writes at once: it is in the ISR, or only cut off from the controller."""
        if broker == LEAVES and (self.away or self.lags):
            return False
        return self.is_up(broker) and broker != self.joining

    def is_in_sync(self, broker: int) -> bool:
        """Return whether a broker is in the ISR with all records."""
        return self.copies_at_once(broker) and broker != self.cut

    def is_open(self, rules: frozenset[str]) -> bool:
        """Return whether a current metadata image allows compaction (``compaction.gate.Decision.decide``)."""
        away = self.away and not self.unassigned and not self.adding
        is_missing = NOT_IN_SYNC in rules and (away or bool(self.truncating) or self.cut != NO_BROKER)
        return not is_missing and not (ADDING_COUNTS in rules and (self.joining or self.adding))

    def is_held(self, broker: int, rules: frozenset[str]) -> bool:
        """Return whether compaction of a broker's replica waits, by the image that the broker has."""
        if broker != self.late:
            return not self.is_open(rules)
        return not self.late_open or (self.late_old and IMAGE_AGE in rules)

    @property
    def may_fetch_as_added(self) -> bool:
        """True once the leader answers a replica that is being added: when the replica is in the leader's image.

        Source: ``Partition.followerReplicaOrThrow``. A broker publishes its image before it applies it
        (``BrokerMetadataPublisher.onMetadataUpdate``), so that the gate has no earlier image than the leader.
        """
        return self.leader != self.late or self.late_adding

    def renamed(self, special: frozenset[int]) -> tuple[FaultState, list[int]]:
        """Return an equivalent state under other names of brokers, and followers in it that may change places.

        Brokers that no step names may change names: the leader gets the first name, then the broker with a late image,
        then the broker that is cut off, then the brokers that truncate.
        """
        truncating = dict(self.truncating)
        every = [broker for broker, _ in self.replicas if broker not in special]

        def rank(broker: int) -> tuple[bool, bool, bool, bool, int]:
            return broker != self.leader, broker != self.late, broker != self.cut, broker not in truncating, broker

        names = dict(zip(sorted(every, key=rank), every, strict=True))

        def renamed_pairs(pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
            return tuple(sorted((names.get(broker, broker), number) for broker, number in pairs))

        after = self._replace(
            replicas=renamed_pairs(self.replicas),
            truncating=renamed_pairs(self.truncating),
            leader=names.get(self.leader, self.leader),
            late=names.get(self.late, self.late),
            cut=names.get(self.cut, self.cut),
        )
        roles = {self.leader, self.late, self.cut, *truncating}
        return after, sorted(names[broker] for broker in every if broker not in roles)
