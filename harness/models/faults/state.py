"""The faults that may happen to a small cluster, the rules that keep its replicas from diverging, and its states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from harness.models.log.cleaner import Bounds
from harness.models.walk.state_space import LEAVES, Bound
from harness.models.world.coordination import NOTHING
from harness.schedules import operations as faults

OUTAGE, LATE, ISOLATED, LAG, POWER = faults.OUTAGE, faults.LATE_METADATA, faults.ISOLATED, faults.LAG, "power-failure"
DISK, RESTART, UNCLEAN = faults.LOST_DISK, faults.RESTARTED, faults.UNCLEAN_ELECTION
RELAY, REASSIGN = "added", "reassigned"

FAULTS: Final[Mapping[str, str]] = {
    OUTAGE: "broker 2 goes down, and comes back with its log",
    LATE: "the metadata image of one broker stays behind for a while",
    ISOLATED: "one follower is cut off from the controller: it is out of the ISR, and still fetches and cleans",
    LAG: "the replica on broker 2 lags inside the ISR, and catches up or falls out of it",
    POWER: "broker 2 loses power, and the end of its log that is not on disk yet",
    DISK: "broker 2 loses its disk, and copies from an empty log",
    RESTART: "broker 2 restarts in the middle of that copy",
    UNCLEAN: "broker 2 leads although it is out of the ISR, and the others truncate their logs to its log end",
    RELAY: "a replica is added on another broker",
    REASSIGN: "the replica of broker 2 is unassigned while it is down, and assigned again before it starts",
}
"""The faults that may happen once each, in addition to writes, cleaners, time and a number of elections."""

NOT_IN_SYNC, ADDING_COUNTS, IMAGE_AGE = "not-in-sync", "adding-counts", "image-age"
ADDED_BEGINS_EMPTY, ANEW_WITH_LEADER = "added-begins-empty", "anew-with-leader"
BELOW_HIGH_WATERMARK: Final = "below-high-watermark"
ANEW_AFTER_TRUNCATION, ANEW_AFTER_LOSS = "anew-after-truncation", "anew-after-loss"
FIRST_COPY_ON_DISK: Final = "first-copy-on-disk"

KAFKAS_RULES: Final[Mapping[str, str]] = {
    BELOW_HIGH_WATERMARK: "no cleaner passes the last stable offset, and so the high watermark"
}
"""A rule of Kafka's cleaner (``LogCleanerManager.cleanableOffsets``)."""

GATE_RULES: Final[Mapping[str, str]] = {
    NOT_IN_SYNC: "compaction waits while an assigned replica is out of the ISR",
    ADDING_COUNTS: "a replica that is being added counts as assigned",
    IMAGE_AGE: "compaction waits while the broker's metadata image is older than a bound below delete.retention.ms",
    ADDED_BEGINS_EMPTY: "a replica that is added begins with an empty log",
    ANEW_WITH_LEADER: "a first copy begins from scratch when the leader changes",
    FIRST_COPY_ON_DISK: "a broker that restarts still knows from which leader a first copy began",
    ANEW_AFTER_TRUNCATION: "a replica that truncates its log below its high watermark begins with an empty log",
    ANEW_AFTER_LOSS: "a replica whose log ends below an earlier high watermark when its broker starts begins with an "
    "empty log",
}
"""The rules of the gate (``compaction.gate.Decision``)."""

FURTHER_RULES: Final = (FIRST_COPY_ON_DISK, ANEW_AFTER_TRUNCATION, ANEW_AFTER_LOSS)
"""Rules of the gate that coordination can have, too."""

NOTHING_WAITS, ALL_WAITS, REMOVALS_WAIT, COORDINATED = "nothing", "all", "removals", "coordinated"
"""The compaction that waits while a partition is held: none, all, or only removals of tombstones and markers; or these
removals wait for every assigned replica's cleaner instead (`harness.models.world.coordination`)."""
NO_BROKER: Final = 0
UNKNOWN_END: Final = -1


@dataclass(frozen=True, kw_only=True)
class FaultBound:
    """The bound of the steps. ``faults``, ``waits``, ``rules``: names of this module.

    ``clients``: their keys, writes and transactions. ``brokers``: how many have a replica in the beginning.
    ``elections``: how often another replica in sync may lead. Each fault may happen once.
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

    def rejoined(self) -> FaultState:
        """Return the state with broker 2 in the ISR."""
        return self._replace(away=False, copying=False, adding=False, first_copy=False, lost=False, end=UNKNOWN_END)

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
        """True once the leader's image has the replica that is being added (``Partition.followerReplicaOrThrow``).

        A broker publishes its image before it applies it (``BrokerMetadataPublisher.onMetadataUpdate``), so that the
        gate has no earlier image than the leader.
        """
        return self.leader != self.late or self.late_adding

    @property
    def roles(self) -> tuple[tuple[int, ...], ...]:
        """The brokers of each role that `harness.models.walk.parts.ClusterSpace.renamed` distinguishes."""
        return (self.leader,), (self.late,), (self.cut,), tuple(dict(self.truncating))

    def with_names(self, names: Mapping[int, int]) -> FaultState:
        """Return the state under other names of brokers."""
        replicas, truncating = (
            tuple(sorted((names.get(broker, broker), number) for broker, number in pairs))
            for pairs in (self.replicas, self.truncating)
        )
        leader, late, cut = (names.get(broker, broker) for broker in (self.leader, self.late, self.cut))
        return self._replace(replicas=replicas, truncating=truncating, leader=leader, late=late, cut=cut)
