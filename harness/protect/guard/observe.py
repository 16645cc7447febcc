"""Observations of the sizes of paused topics' logs, apart from the rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.audit.live.cluster import AuditedCluster, client_of, describe
from harness.host.clock import Clock
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.connection import Connection
from harness.kafka_api.topics import describe_log_dirs
from harness.protect.guard.status import GuardStatus, Observation


@dataclass
class GuardObserver:
    """Observes the paused topics of a status. ``latest``: the last observation."""

    bootstrap: Sequence[Address]
    clock: Clock
    latest: Observation = field(default_factory=Observation)

    def observe(self, status: GuardStatus) -> None:
        """Observe once; ``latest`` has a failure together with the previous values."""
        try:
            self.latest = self._observation(status.covered & status.state.pauses.keys())
        except Exception as error:  # noqa: BLE001  (any error is in metrics and health, and ends no guard)
            self.latest = replace(self.latest, failure=str(error) or type(error).__name__)

    def _observation(self, paused: Collection[str]) -> Observation:
        sizes: Mapping[str, int] = {}
        failure = None
        if paused:
            sizes, failure = paused_bytes(describe(client_of(self.bootstrap, self.clock), sorted(paused)), paused)
        now_ms = self.clock.time_ms()
        return Observation(now_ms, sizes, growth(self.latest, sizes, now_ms), failure)


def paused_bytes(cluster: AuditedCluster, paused: Collection[str]) -> tuple[dict[str, int], str | None]:
    """Return the bytes of each paused topic's logs, of all replicas, and the error of a broker without an answer."""
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
