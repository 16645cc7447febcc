"""The cluster under test: its brokers, conditions to wait for, and changes. `harness.cluster.boot` makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.errors import HarnessError, WaitTimeoutError
from harness.host.clock import Clock
from harness.kafka_api import TopicPartition

if TYPE_CHECKING:
    from harness.cluster.observe import ReplicaObserver
    from harness.kafka_api.admin import Admin
    from harness.kafka_api.fetch import ReplicaState
    from harness.kafka_api.metadata import PartitionState
    from harness.runtimes.base import Runtime
    from harness.systems import Control

START_S = 120.0
"""Time for brokers to start, on the clock of the run: two runs at once on two cores took 33 s."""
MOST_NAMED = 5
"""Of many partitions, in an error."""


@dataclass
class Cluster:
    """Acts on the brokers. ``replicas``: the brokers of each partition when all brokers are up.

    ``admin``: sends the requests that every system supports. ``control``: sends requests that differ between systems.
    ``observer``: of the replicas, or None. ``absent``: the brokers that a run takes down. ``away``: brokers that miss
    the current writes; they may be down, or up and behind. ``late``: brokers whose cleaners are late on purpose.
    ``checks``: raise failures of the background. ``settle_s``: the default bound of waits. ``tolerated``: types of
    errors which mean that a condition does not hold yet.
    """

    runtime: Runtime
    admin: Admin
    control: Control
    clock: Clock
    settle_s: float
    observer: ReplicaObserver | None = None
    replicas: Mapping[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    absent: tuple[int, ...] = ()
    away: frozenset[int] = frozenset()
    late: frozenset[int] = frozenset()
    checks: list[Callable[[], None]] = field(default_factory=list)
    tolerated: tuple[type[Exception], ...] = (OSError,)

    @property
    def brokers(self) -> tuple[int, ...]:
        """Every broker, in order."""
        return tuple(self.runtime.brokers)

    @property
    def staying(self) -> tuple[int, ...]:
        """The brokers that are up all the time, in order."""
        return tuple(broker for broker in self.runtime.brokers if broker not in self.absent)

    @property
    def observed(self) -> ReplicaObserver:
        """The observer. Raises ValueError where replicas are not observed."""
        if self.observer is None:
            raise ValueError("the replicas of this cluster are not observed")
        return self.observer

    @property
    def topics(self) -> list[str]:
        """Topic names, each once."""
        return list(dict.fromkeys(topic for topic, _ in self.replicas))

    @property
    def exposed(self) -> list[TopicPartition]:
        """The partitions that have replicas on absent brokers: all but the control's."""
        absent = set(self.absent)
        return [tp for tp, brokers in self.replicas.items() if absent & set(brokers)]

    def present(self, partition: TopicPartition) -> list[int]:
        """Return the brokers whose replica of this partition is following now."""
        return [broker for broker in self.replicas[partition] if broker not in self.away]

    def cleaning(self, partition: TopicPartition) -> list[int]:
        """Return the brokers whose replica of this partition is following now, and is cleaned in time."""
        return [broker for broker in self.present(partition) if broker not in self.late]

    def states(self) -> dict[TopicPartition, PartitionState]:
        """Return every partition's leader and replicas; nothing while one of them is unknown."""
        states = self.control.states(self.topics)
        return states if set(states) == set(self.replicas) else {}

    def read(self, broker: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ReplicaState | str]:
        """Return the broker's replicas of these partitions, each to its log end; or an error by its name."""
        with closing(self.control.reader(broker)) as reader:
            return reader.read(partitions)

    def differing_ends(self, replicas: Mapping[TopicPartition, Sequence[int]]) -> list[str]:
        """Describe the partitions whose replicas differ in log end or high watermark, or are not served."""
        ends: dict[TopicPartition, dict[int, tuple[int, int] | str]] = {tp: {} for tp in replicas}
        for broker in self.brokers:
            for tp, state in self.read(broker, [tp for tp, on in replicas.items() if broker in on]).items():
                ends[tp][broker] = state if isinstance(state, str) else (state.log_end, state.high_watermark)
        differing = []
        for (topic, number), by_broker in ends.items():
            errors = [end for end in by_broker.values() if isinstance(end, str)]
            offsets = {offset for end in by_broker.values() if not isinstance(end, str) for offset in end}
            if errors or len(offsets) > 1:
                differing.append(f"{topic}-{number}: {by_broker}")
        return differing

    def wait_level(self, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Wait until replicas have the same ends. Raises `WaitTimeoutError` with the ends that differ."""
        differing: list[str] = []

        def is_level() -> bool:
            nonlocal differing
            differing = self.differing_ends(replicas)
            return not differing

        try:
            self.wait(is_level, "the replicas to be level")
        except WaitTimeoutError as error:
            raise WaitTimeoutError(f"{error}: {'; '.join(differing[:MOST_NAMED])}", error.waited_s) from error

    def out_of_isr(self) -> list[tuple[int, TopicPartition]]:
        """Return each broker and partition whose replica is out of the ISR. Raises `HarnessError` and OSError."""
        states = self.control.states(self.topics)
        return [
            (broker, tp)
            for tp, brokers in self.replicas.items()
            for broker in brokers
            if tp not in states or broker not in states[tp].isr
        ]

    def registered(self) -> set[int]:
        """Return the registered brokers; none while no broker answers."""
        with suppress(HarnessError):
            return self.control.registered()
        return set()

    def active_controller(self) -> int | None:
        """Return the node id of the controller that leads the quorum; None while there is none, or it is unknown."""
        with suppress(HarnessError):
            return self.control.active_controller()
        return None

    def wait(self, condition: Callable[[], bool], description: str, timeout_s: float | None = None) -> None:
        """Poll the condition until it holds. Raises `WaitTimeoutError`, and at once a failure of the background."""

        def checked() -> bool:
            for check in self.checks:
                check()
            # A broker that does not answer may answer the next time; the wait is bounded.
            with suppress(*self.tolerated):
                return condition()
            return False

        self.clock.wait_until(checked, timeout_s or self.settle_s, description)

    def wait_registered(self, brokers: Sequence[int] | None = None) -> None:
        """Wait until these brokers, or all, are registered, for longer than for other conditions: starts take long."""
        expected = set(self.brokers if brokers is None else brokers)
        bound_s = max(self.settle_s, START_S)
        self.wait(lambda: self.registered() >= expected, f"brokers {sorted(expected)} to register", bound_s)

    def wait_absent_left(self) -> None:
        """Wait until no absent broker is in any ISR."""
        absent = set(self.absent)
        self._wait_each(lambda _, p: not absent & set(p.isr), f"{_names(self.absent)} to leave every ISR")

    def wait_absent_back(self) -> None:
        """Wait until every replica is in its ISR."""
        description = f"{_names(self.absent)} to rejoin every ISR"
        self._wait_each(lambda tp, p: set(p.isr) == set(p.replicas) == set(self.replicas[tp]), description)

    def wait_assigned(self, orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Wait until these partitions have these replicas, whether they are in the ISR or not."""
        self._wait_each(
            lambda tp, p: tp not in orders or set(p.replicas) == set(orders[tp]), "replicas to be assigned as asked"
        )

    def wait_in_isr(self, brokers: Sequence[int]) -> None:
        """Wait until every replica on these brokers is in its ISR."""
        expected = set(brokers)
        self._wait_each(lambda _, p: expected & set(p.replicas) <= set(p.isr), f"{_names(brokers)} to be in every ISR")

    def _wait_each(self, holds: Callable[[TopicPartition, PartitionState], bool], description: str) -> None:
        self.wait(lambda: bool(states := self.states()) and all(holds(*each) for each in states.items()), description)

    def wait_replicated(self, description: str) -> None:
        """Wait until all live replicas, observed again, have the same log end offset and their high watermark there.

        Before that, until every ended transaction has its markers: a commit is answered before they are written.
        """
        self.wait(lambda: not self.admin.ending_transactions(), f"{description}: the last transaction markers")
        since_s = self.clock.now_s()

        def is_replicated(broker: int, tp: TopicPartition, end: int) -> bool:
            view = self.observed.view(broker, tp) if self.observed.looked_since(broker, since_s) else None
            return view is not None and end <= view.log_end <= view.high_watermark

        self._wait_each_end(is_replicated, self.acknowledged_ends, description)

    def wait_grown(self, records: int) -> None:
        """Wait until every live replica of each partition has this number of additional records."""
        ends = {tp: end + records for tp, end in self.acknowledged_ends().items()}
        self._wait_each_end(self.reaches, lambda: ends, "the filler's records on every replica")

    def _wait_each_end(
        self,
        holds: Callable[[int, TopicPartition, int], bool],
        ends: Callable[[], Mapping[TopicPartition, int]],
        description: str,
    ) -> None:
        lacking: list[tuple[int, str, int]] = []

        def all_hold() -> bool:
            expected = ends()
            lacking[:] = [(b, *tp) for tp, end in expected.items() for b in self.present(tp) if not holds(b, tp, end)]
            return not lacking

        try:
            self.wait(all_hold, description)
        except WaitTimeoutError as error:
            # A follower that is behind, rather than the leader whose high watermark waits for it.
            views = {replica: self.observed.view(replica[0], replica[1:]) for replica in lacking}
            error.replica = min(lacking, key=lambda it: view.log_end if (view := views[it]) else -1, default=None)
            raise

    def reaches(self, broker: int, partition: TopicPartition, offset: int) -> bool:
        """Return whether the broker's replica was observed with a log end of at least ``offset``."""
        view = self.observed.view(broker, partition)
        return view is not None and view.log_end >= offset

    def acknowledged_ends(self) -> dict[TopicPartition, int]:
        """Return the highest observed log end offset of any replica, by partition."""
        return {tp: max(self.observed.seen(tp), default=-1) + 1 for tp in self.replicas}

    def freeze(self) -> None:
        """Stop compaction, which might remove misjudged records or late transactions' markers before they are read."""
        self.control.freeze(self.topics)
        self.wait(lambda: self.control.is_frozen(self.topics), "every broker to stop compaction")

    def thaw(self, settings: Mapping[str, str]) -> None:
        """Resume compaction; ``settings`` are the topics' own."""
        self.control.thaw(self.topics, settings)

    def rest_cleaners_of_absent(self) -> None:
        """Stop the absent brokers' cleaners first: an unreachable broker learns of the freeze only after its return."""
        self.control.rest(self.absent)
        self.wait(lambda: self.control.is_resting(self.absent), f"the cleaners of {_names(self.absent)} to rest")

    def wake_cleaners_of_absent(self, *, is_frozen: bool = True) -> None:
        """Restart the cleaners of the absent brokers, if topics are frozen after these brokers have applied that."""
        if is_frozen:
            self.wait(lambda: self.control.is_frozen(self.topics), "the returned brokers to stop compaction")
        self.control.wake(self.absent)

    def delay_cleaners(self, brokers: Sequence[int], backoff_s: float) -> None:
        """Make the cleaners of these brokers late: they pause for this time between two searches for work."""
        backoff_ms = round(backoff_s * 1000)
        self.control.rest(brokers, backoff_ms)
        self.wait(lambda: self.control.is_resting(brokers, backoff_ms), f"the cleaners of {_names(brokers)} to pause")
        self.late = frozenset(brokers)

    def restore_cleaners(self) -> None:
        """Undo `delay_cleaners`."""
        self.control.wake(sorted(self.late))
        self.late = frozenset()

    def lead(self, orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Give partitions these replicas, and make the first of each the leader."""
        self.control.lead(orders)
        self.elect(orders)

    def elect(self, orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Make the first of each partition's replicas the leader, if the replicas have that order already."""
        topics = sorted({topic for topic, _ in orders})
        leaders = sorted({order[0] for order in orders.values()})
        self.wait(lambda: self.control.leads(orders), f"{_names(leaders)} to lead {', '.join(topics)}")

    def lead_as_placed(self) -> None:
        """Make the first replica of each new partition its leader."""
        orders = {tp: self.present(tp) for tp in self.replicas}
        late = {tp: orders[tp] for tp, state in self.states().items() if state.leader != orders[tp][0]}
        if late:
            self.lead(late)

    def wait_coordinator(self) -> None:
        """Wait until there is a transaction coordinator."""
        self.wait(lambda: self.admin.has_coordinator("any"), "a transaction coordinator")

    def coordinate_on(self, brokers: Sequence[int]) -> None:
        """Move the transaction coordinator's log to these brokers alone, as an absent broker would delay commits."""
        self.wait_coordinator()
        self.lead({self.control.coordinator: brokers[:3]})


def _names(brokers: Sequence[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
