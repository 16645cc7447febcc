"""Metrics and health of the guard for `harness.report.endpoint`, and the observed sizes of paused topics' logs."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from harness.audit.live.cluster import client_of, describe
from harness.host.clock import Clock
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.connection import Connection
from harness.kafka_api.topics import describe_log_dirs
from harness.protect.guard.service import GuardStatus
from harness.report.endpoint import gauge, round_problems

PREFIX: Final = "compaction_guard_"


@dataclass(frozen=True)
class Observation:
    """Paused topics: segments by topic, of all replicas, and their growth. ``failure``: of the last observation."""

    time_ms: int = 0
    log_bytes: Mapping[str, int] = field(default_factory=dict)
    growth_bytes_s: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None


def unhealthy(status: GuardStatus, now_ms: int) -> list[str]:
    """Return a sentence on each problem of the guard or of a topic; [] where the guard is healthy."""
    wrong = round_problems(status.failure, status.round_ms, status.interval_s, now_ms)
    if status.leads and status.unpaused:
        wrong.append(f"exposed and not paused: {', '.join(sorted(status.unpaused))}")
    return wrong


def families(status: GuardStatus, observation: Observation, now_ms: int) -> Iterator[Metric]:
    """Yield every metric (`docs/reference/guard.md` describes each)."""
    pauses, holds = status.state.pauses, status.state.holds
    gauges: dict[str, tuple[str, float]] = {
        "healthy": ("1 where the health endpoint answers 200.", not unhealthy(status, now_ms)),
        "leads": ("1 where this guard acts, of several.", status.leads),
        "interval_seconds": ("Time between rounds.", status.interval_s),
        "round_seconds": ("Duration of the last round.", status.took_s),
        "last_round_timestamp_seconds": ("End of the last round that succeeded.", status.round_ms / 1000),
        "topics": ("Covered topics.", len(status.covered)),
        "skipped_topics": ("Topics that are not covered because a request was refused.", len(status.skipped)),
        "unpaused_topics": ("Topics that should be paused and are not.", len(status.unpaused)),
        "paused_topics": ("Paused topics.", len(pauses)),
        "left_alone_topics": ("Paused topics whose settings somebody changed.", len(status.left_alone)),
        "short_retention_topics": ("Topics with a retention below 3 intervals and 4 s.", len(status.short_retention)),
        "observation_timestamp_seconds": ("End of the last observation of sizes.", observation.time_ms / 1000),
        "observation_failed": ("1 where the last observation failed.", observation.failure is not None),
    }
    paused_s = {topic: (now_ms - pause.since_ms) / 1000 for topic, pause in pauses.items()}
    by_topic: dict[str, tuple[str, Mapping[str, float]]] = {
        "replicas_away": ("Replicas out of the ISR, but for those being added.", status.away),
        "replicas_adding": ("Replicas that are being added: exposed from the first minute.", status.adding),
        "retention_left_seconds": ("Until a missed record could be removed.", status.retention_left_s),
        "paused_seconds": ("For how long the topic is paused.", paused_s),
        "held": ("Other commands that hold the topic.", {topic: len(holders) for topic, holders in holds.items()}),
        "paused_log_bytes": ("Segments of paused topics, all replicas.", observation.log_bytes),
        "paused_log_growth_bytes_per_second": ("Their growth.", observation.growth_bytes_s),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(PREFIX + name, text, value=value)
    yield CounterMetricFamily(PREFIX + "rounds", "Rounds.", value=status.rounds)
    yield CounterMetricFamily(PREFIX + "failures", "Failed rounds and changes.", value=status.failures)
    yield CounterMetricFamily(PREFIX + "requests", "Requests for metadata and settings.", value=status.requests)
    for name, (text, values) in by_topic.items():
        yield gauge(PREFIX + name, text, "topic", values)


def health(status: GuardStatus, observation: Observation) -> dict[str, Any]:
    """Return the answer of ``/health`` without the problems."""
    return {
        "leads": status.leads,
        "topics": len(status.covered),
        "paused": sorted(status.state.pauses),
        "left_alone": {topic: list(names) for topic, names in sorted(status.left_alone.items())},
        "skipped": dict(sorted(status.skipped.items())),
        "notes": [*status.notes, *([observation.failure] if observation.failure else [])],
    }


@dataclass
class GuardObserver:
    """Observes the paused topics of a status. ``latest``: the last observation."""

    bootstrap: Sequence[Address]
    clock: Clock
    latest: Observation = field(default_factory=Observation)

    def observe(self, status: GuardStatus) -> None:
        """Observe once; ``latest`` has a failure together with the previous values."""
        paused = status.covered & status.state.pauses.keys()
        try:
            sizes, failure = self._paused_bytes(paused)
            now_ms = self.clock.time_ms()
            self.latest = Observation(now_ms, sizes, growth(self.latest, sizes, now_ms), failure)
        except Exception as error:  # noqa: BLE001  (any error is in metrics and health, and ends no guard)
            self.latest = replace(self.latest, failure=str(error) or type(error).__name__)

    def _paused_bytes(self, paused: Collection[str]) -> tuple[dict[str, int], str | None]:
        """Return the bytes of each topic's logs, of all replicas, and the error of a broker without an answer."""
        if not paused:
            return {}, None
        cluster = describe(client_of(self.bootstrap, self.clock), sorted(paused))
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
