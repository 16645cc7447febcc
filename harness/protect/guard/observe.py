"""Observations once a minute, apart from the rounds: transactions, last stable offsets, suspicions, sizes of logs.

`harness audit live --quick` finds the suspicions. An observation leaves out unreadable topics, and reports them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import Final

from harness.audit.live.broker_reports import ReplicaStatuses, UnreadableTopicError
from harness.audit.live.cluster import AuditedCluster, client_of, describe
from harness.audit.live.prefilter import Prefiltered, prefilter
from harness.errors import HarnessError
from harness.host.clock import Clock
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.connection import Connection
from harness.kafka_api.topics import describe_log_dirs
from harness.protect.guard.status import GuardStatus, Observation

FIRST_S: Final = 1.0


@dataclass
class GuardObserver:
    """Observes the covered topics of a status periodically. ``latest``: the last observation."""

    bootstrap: Sequence[Address]
    clock: Clock
    latest: Observation = field(default_factory=Observation)

    def start(self, every_s: float, status: Callable[[], GuardStatus]) -> Callable[[], None]:
        """Observe periodically, in a thread; return the function that ends it.

        That function does not wait for an observation under way, which changes nothing and may wait long for brokers
        that are down.
        """
        ended = Event()

        def run() -> None:
            try:
                # Until the first round no topics are covered.
                while not ended.wait(every_s if status().covered and self.latest.time_ms else FIRST_S):
                    self.observe(status())
            except Exception as error:  # noqa: BLE001  (it is in metrics and health)
                self.latest = replace(self.latest, failure=f"observations ended: {type(error).__name__}: {error}")

        Thread(target=run, name="observations", daemon=True).start()
        return ended.set

    def observe(self, status: GuardStatus) -> None:
        """Observe once; ``latest`` has a failure together with the previous values."""
        try:
            self.latest = self._observation(status)
        except (HarnessError, OSError) as error:
            self.latest = replace(self.latest, failure=str(error))

    def _observation(self, status: GuardStatus) -> Observation:
        names = sorted(status.covered)
        if not names:
            return Observation()
        prefiltered, cluster, unread = self._prefiltered(names)
        sizes, failure = paused_bytes(cluster, status.state.pauses.keys())
        now_ms = self.clock.time_ms()
        suspicions = prefiltered.suspicions if prefiltered else ()
        return Observation(
            now_ms,
            open_transactions(prefiltered.statuses) if prefiltered else {},
            lso_spread(prefiltered.statuses) if prefiltered else {},
            Counter(suspicion.anomaly for suspicion in suspicions),
            (*(suspicion.explanation for suspicion in suspicions), *unread),
            sizes,
            growth(self.latest, sizes, now_ms),
            failure,
        )

    def _prefiltered(self, names: Sequence[str]) -> tuple[Prefiltered | None, AuditedCluster, tuple[str, ...]]:
        """Return the brokers' answers on readable topics, and a sentence on each other topic."""
        cluster = readable = describe(client_of(self.bootstrap, self.clock), names)
        unread: list[str] = []
        while readable.state.topics:
            try:
                return prefilter(readable), readable, tuple(unread)
            except UnreadableTopicError as error:
                unread.append(str(error))
                topics = {name: topic for name, topic in readable.state.topics.items() if name != error.topic}
                readable = replace(readable, state=replace(readable.state, topics=topics))
        return None, cluster, tuple(unread)


def open_transactions(statuses: ReplicaStatuses) -> dict[str, int]:
    """Return the number of transactions by topic that are open on any replica."""
    transactions = {
        (topic, partition, transaction.producer_id, transaction.first_offset)
        for (_, (topic, partition)), status in statuses.replicas.items()
        for transaction in status.open or ()
    }
    return Counter(topic for topic, *_ in transactions)


def lso_spread(statuses: ReplicaStatuses) -> dict[str, int]:
    """Return the greatest difference by topic of the last stable offsets of one partition's replicas."""
    spreads: dict[str, int] = {}
    for (topic, _), by_broker in statuses.by_partition.items():
        offsets = [status.last_stable_offset for status in by_broker.values()]
        spreads[topic] = max(spreads.get(topic, 0), max(offsets) - min(offsets))
    return spreads


def paused_bytes(cluster: AuditedCluster, paused: Collection[str]) -> tuple[dict[str, int], str | None]:
    """Return the bytes of each paused topic's logs, of all replicas, and the error of a broker without an answer."""
    if not paused:
        return {}, None
    replicas = cluster.state.replicas_by_broker

    def ask(broker: int, caller: Connection) -> Mapping[TopicPartition, int]:
        return caller.ask(describe_log_dirs([tp for tp in replicas[broker] if tp[0] in paused])).sizes_bytes

    answers, errors = cluster.client.ask_all(replicas.keys() & cluster.state.brokers.keys(), ask)
    sizes: Counter[str] = Counter()
    for answer in answers.values():
        for (topic, _), size in answer.items():
            sizes[topic] += size
    failed = next((f"broker {broker}: {error}" for broker, error in errors.items()), None)
    return sizes, failed and f"sizes of logs are unknown on {failed}"


def growth(before: Observation, sizes: Mapping[str, int], now_ms: int) -> dict[str, float]:
    """Return the growth of each topic's logs since the last observation, in bytes a second."""
    took_s = (now_ms - before.time_ms) / 1000
    if took_s <= 0:
        return {}
    return {
        topic: (size - before.log_bytes[topic]) / took_s for topic, size in sizes.items() if topic in before.log_bytes
    }
