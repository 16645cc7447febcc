"""The cluster under test as the runner and the nemeses know it: who is away, what to wait for, how to change it.

Every wait is on a condition that is asked again until it holds or its bound ends; what failed in the
background ends each of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.admin import Admin
from harness.errors import HarnessError
from harness.timers import DAY_MS, FREEZE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.admin import PartitionState
    from harness.clock import Clock
    from harness.observe import Observer
    from harness.placement import Placement
    from harness.replica import TopicPartition
    from harness.runtimes.base import Runtime
    from harness.wire import Address

TRANSACTION_STATE = ("__transaction_state", 0)
INTERNAL_REPLICATION_FACTOR = 3
CLEANER_BACKOFF, A_LONG_REST_MS = "log.cleaner.backoff.ms", str(DAY_MS)
"""Setting it has the cleaner look once more, and then no more for as long."""


@dataclass
class Cluster:
    """What acts on the brokers. ``replicas``: the brokers that each partition has once everybody is there.

    ``away``: brokers that miss what is written now; they may be down, or up and behind. ``checks`` raise what
    failed in the background. ``settle_s`` bounds each wait that names no bound of its own.
    """

    runtime: Runtime
    observer: Observer
    placement: Placement
    replicas: Mapping[TopicPartition, tuple[int, ...]]
    clock: Clock
    settle_s: float
    away: frozenset[int] = frozenset()
    checks: list[Callable[[], None]] = field(default_factory=list)
    admin: Admin = field(init=False)

    def __post_init__(self) -> None:
        """Let the admin's requests go to whichever broker is up."""
        self.admin = Admin(self.live_addresses)

    @property
    def topics(self) -> list[str]:
        """Topic names, each once."""
        return list(dict.fromkeys(topic for topic, _ in self.replicas))

    @property
    def exposed(self) -> list[TopicPartition]:
        """The partitions that have replicas on absent brokers: all but the control's."""
        absent = set(self.placement.absent)
        return [tp for tp, brokers in self.replicas.items() if absent & set(brokers)]

    def present(self, partition: TopicPartition) -> list[int]:
        """Return the brokers whose replica of this partition follows now."""
        return [broker for broker in self.replicas[partition] if broker not in self.away]

    def live_addresses(self) -> list[Address]:
        """Where the brokers are that can answer now."""
        return [self.runtime.address(broker) for broker in self.runtime.brokers if self.runtime.is_up(broker)]

    def states(self) -> dict[TopicPartition, PartitionState]:
        """Return every partition's leader and replicas; nothing while one of them is not known."""
        states = self.admin.partitions(self.topics)
        return states if set(states) == set(self.replicas) else {}

    def registered(self) -> set[int]:
        """Return the brokers that are registered; none while nobody listens."""
        try:
            return self.admin.brokers()
        except HarnessError:
            return set()

    def wait(self, condition: Callable[[], bool], what: str, timeout_s: float | None = None) -> None:
        """Wait until the condition holds. Raises `WaitTimeoutError`, or what failed in the background."""

        def checked() -> bool:
            for check in self.checks:
                check()
            try:
                return condition()
            except OSError:
                # A broker that does not answer now may answer the next time; the wait is bounded.
                return False

        self.clock.wait_until(checked, timeout_s or self.settle_s, what)

    def wait_registered(self, brokers: Sequence[int] | None = None) -> None:
        """Wait until these brokers, or all, are registered."""
        wanted = set(self.runtime.brokers if brokers is None else brokers)
        self.wait(lambda: self.registered() >= wanted, f"brokers {sorted(wanted)} to register")

    def wait_absent_left(self) -> None:
        """Wait until no absent broker is in any ISR."""
        absent = set(self.placement.absent)
        self.wait(
            lambda: bool(states := self.states()) and not any(absent & set(p.isr) for p in states.values()),
            f"{_brokers(self.placement.absent)} to leave every ISR",
        )

    def wait_absent_back(self) -> None:
        """Wait until every replica is in its ISR."""
        self.wait(
            lambda: (
                bool(states := self.states())
                and all(set(p.isr) == set(p.replicas) == set(self.replicas[tp]) for tp, p in states.items())
            ),
            f"{_brokers(self.placement.absent)} to rejoin every ISR",
        )

    def wait_replicated(self, what: str) -> None:
        """Wait until every replica that is there has one log end and its high watermark there.

        First until every ended transaction has its markers: a commit is answered before they are written.
        Then every replica is looked at afresh.
        """
        self.wait(lambda: not self.admin.ending_transactions(), f"{what}: the last transaction markers")
        since_s = self.clock.now_s()

        def replicated() -> bool:
            for tp, wanted in self.acknowledged_ends().items():
                for broker in self.present(tp):
                    view = self.observer.view(broker, tp)
                    if view is None or not self.observer.looked_since(broker, since_s):
                        return False
                    if view.log_end < wanted or view.high_watermark < view.log_end:
                        return False
            return True

        self.wait(replicated, what)

    def wait_grown(self, records: int) -> None:
        """Wait until every partition has so many records more, on every replica that is there."""
        wanted = {tp: end + records for tp, end in self.acknowledged_ends().items()}
        self.wait(
            lambda: all(self.reaches(b, tp, end) for tp, end in wanted.items() for b in self.present(tp)),
            "the filler's records on every replica",
        )

    def reaches(self, broker: int, partition: TopicPartition, offset: int) -> bool:
        """Whether the broker's replica was seen to have everything below ``offset``."""
        view = self.observer.view(broker, partition)
        return view is not None and view.log_end >= offset

    def acknowledged_ends(self) -> dict[TopicPartition, int]:
        """Per partition, the furthest log end that any replica showed."""
        return {tp: max(self.observer.seen(tp), default=-1) + 1 for tp in self.replicas}

    def freeze(self) -> None:
        """Stop compaction, so that the evidence holds still from here on.

        Otherwise a returned broker may compact misjudged records away before anyone looks, and the late
        transactions' markers may vanish as the early ones did.
        """
        self.admin.alter_topics(self.topics, FREEZE)
        self.wait(self._is_frozen, "every broker to stop compaction")

    def _is_frozen(self) -> bool:
        settings = [self.admin.topic_settings(address, self.topics) for address in self.live_addresses()]
        return all(FREEZE.items() <= held.items() for by_topic in settings for held in by_topic.values())

    def rest_cleaners_of_absent(self) -> None:
        """Have the absent brokers' cleaners rest from now on, before the brokers go away.

        One that lives on where it cannot be reached learns of the freeze only once it is back, and by then it
        may have compacted.
        """
        absent = {broker: self.runtime.address(broker) for broker in self.placement.absent}
        for broker, address in absent.items():
            self.admin.alter_broker(broker, address, {CLEANER_BACKOFF: A_LONG_REST_MS})

        def is_resting(broker: int) -> bool:
            return self.admin.broker_settings(broker, absent[broker])[CLEANER_BACKOFF] == A_LONG_REST_MS

        self.wait(lambda: all(map(is_resting, absent)), f"the cleaners of {_brokers(self.placement.absent)} to rest")

    def wake_cleaners_of_absent(self) -> None:
        """Take that back, once the returned brokers know of the freeze."""
        self.wait(self._is_frozen, "the returned brokers to stop compaction")
        for broker in self.placement.absent:
            self.admin.alter_broker(broker, self.runtime.address(broker), {CLEANER_BACKOFF: None})

    def lead(self, orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Give partitions these replicas, the first of which leads."""
        self.admin.reassign(orders)
        topics = sorted({topic for topic, _ in orders})

        def leads() -> bool:
            # On every broker: a client that asks one which does not know yet would be sent to the old leader.
            views = [self.admin.partitions(topics, at=address) for address in self.live_addresses()]
            late = [tp for tp, order in orders.items() if any(tp not in v or v[tp].leader != order[0] for v in views)]
            if late:
                self.admin.elect_preferred(late)
            return not late

        leaders = sorted({order[0] for order in orders.values()})
        self.wait(leads, f"{_brokers(leaders)} to lead {', '.join(topics)}")

    def coordinate_on_staying(self) -> None:
        """Move the transaction coordinator's log to staying brokers alone: one that left would hold up commits."""
        self.wait(lambda: self.admin.has_coordinator("any"), "a transaction coordinator")
        self.lead({TRANSACTION_STATE: self.placement.staying[:INTERNAL_REPLICATION_FACTOR]})


def _brokers(brokers: Sequence[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
