"""What is looked at once a minute, beside the rounds: transactions, last stable offsets, suspicions, sizes of logs.

The suspicions are those of `harness audit live --quick`. Topics that this user may not read are left out, and reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from harness.audit.live.broker_reports import UnreadableTopicError
from harness.audit.live.cluster import client_of, describe
from harness.audit.live.prefilter import Prefiltered, prefilter
from harness.errors import HarnessError
from harness.kafka_api.topics import describe_log_dirs
from harness.protect.guard.status import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from harness.audit.live.broker_reports import ReplicaStatuses
    from harness.audit.live.cluster import AuditedCluster
    from harness.host.clock import Clock
    from harness.kafka_api.address import Address
    from harness.kafka_api.messages import Caller, TopicPartition
    from harness.protect.guard.status import GuardStatus

FIRST_S: Final = 1.0


@dataclass
class GuardObserver:
    """Looks at the covered topics of a status, again and again. ``latest``: what it saw last."""

    bootstrap: Sequence[Address]
    clock: Clock
    latest: Observation = field(default_factory=Observation)

    def start(self, every_s: float, status: Callable[[], GuardStatus]) -> Callable[[], None]:
        """Look every so many seconds, in a thread of its own; return what ends it.

        A look under way is not waited for: it changes nothing, and may wait long for brokers that are away.
        """
        ended = Event()

        def run() -> None:
            try:
                # Until the first round there are no topics to look at.
                while not ended.wait(every_s if status().covered and self.latest.time_ms else FIRST_S):
                    self.look(status())
            except Exception as error:  # noqa: BLE001  (it is in metrics and health)
                self.latest = replace(self.latest, failure=f"observations ended: {type(error).__name__}: {error}")

        Thread(target=run, name="observations", daemon=True).start()
        return ended.set

    def look(self, status: GuardStatus) -> None:
        """Look once; a failure is in ``latest``, beside what was seen before."""
        try:
            self.latest = self._looked(status)
        except (HarnessError, OSError) as error:
            self.latest = replace(self.latest, failure=str(error))

    def _looked(self, status: GuardStatus) -> Observation:
        names = sorted(status.covered)
        if not names:
            return Observation()
        prefiltered, cluster, unread = self._prefiltered(names)
        sizes, failure = paused_bytes(cluster, status.state.pauses.keys())
        now_ms = self.clock.time_ms()
        suspicions = prefiltered.suspicions if prefiltered else ()
        by_anomaly: dict[str, int] = {}
        for one in suspicions:
            by_anomaly[one.anomaly] = by_anomaly.get(one.anomaly, 0) + 1
        statuses = prefiltered.statuses if prefiltered else None
        return Observation(
            now_ms,
            open_transactions(statuses) if statuses else {},
            lso_spread(statuses) if statuses else {},
            by_anomaly,
            (*(one.explanation for one in suspicions), *unread),
            sizes,
            growth(self.latest, sizes, now_ms),
            failure,
        )

    def _prefiltered(self, names: Sequence[str]) -> tuple[Prefiltered | None, AuditedCluster, tuple[str, ...]]:
        """Return the brokers' answers on the topics that may be read, and a sentence on each other topic."""
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
    """Return by topic the transactions that are open on any replica."""
    found = {
        (topic, partition, one.producer_id, one.first_offset)
        for (_, (topic, partition)), status in statuses.replicas.items()
        for one in status.open or ()
    }
    counts: dict[str, int] = {}
    for topic, *_ in found:
        counts[topic] = counts.get(topic, 0) + 1
    return counts


def lso_spread(statuses: ReplicaStatuses) -> dict[str, int]:
    """Return by topic the greatest difference of the last stable offsets of one partition's replicas."""
    offsets: dict[TopicPartition, list[int]] = {}
    for (_, tp), status in statuses.replicas.items():
        offsets.setdefault(tp, []).append(status.last_stable_offset)
    spread: dict[str, int] = {}
    for (topic, _), found in offsets.items():
        spread[topic] = max(spread.get(topic, 0), max(found) - min(found))
    return spread


def paused_bytes(cluster: AuditedCluster, paused: Collection[str]) -> tuple[dict[str, int], str | None]:
    """Return by paused topic the bytes of its logs, all replicas together, and why a broker did not report them."""
    if not paused:
        return {}, None
    replicas = cluster.state.replicas_by_broker

    def ask(broker: int, caller: Caller) -> Mapping[TopicPartition, int]:
        return caller.ask(describe_log_dirs([tp for tp in replicas[broker] if tp[0] in paused])).sizes_bytes

    answers = cluster.client.ask_all(replicas.keys() & cluster.state.brokers.keys(), ask)
    sizes: dict[str, int] = {}
    for answer in answers.values():
        for (topic, _), size in ({} if isinstance(answer, Exception) else answer).items():
            sizes[topic] = sizes.get(topic, 0) + size
    failed = [f"broker {broker}: {answer}" for broker, answer in answers.items() if isinstance(answer, Exception)]
    return sizes, f"sizes of logs are unknown on {failed[0]}" if failed else None


def growth(before: Observation, sizes: Mapping[str, int], now_ms: int) -> dict[str, float]:
    """Return by topic how many bytes a second its logs have grown since the last look."""
    took_s = (now_ms - before.time_ms) / 1000
    if took_s <= 0:
        return {}
    return {
        topic: (size - before.log_bytes[topic]) / took_s for topic, size in sizes.items() if topic in before.log_bytes
    }
