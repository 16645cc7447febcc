"""Metrics for Prometheus and the health of the guard, which `harness.report.endpoint` serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from harness.protect.guard.status import ACT, GuardStatus, Observation
from harness.report.endpoint import gauge, round_problems

PREFIX: Final = "compaction_guard_"


def unhealthy(status: GuardStatus, now_ms: int) -> list[str]:
    """Return a sentence on each problem of the guard or of a topic; [] where the guard is healthy."""
    wrong = round_problems(status.failure, status.round_ms, status.interval_s, now_ms)
    if status.mode == ACT and status.leads and status.unpaused:
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
        "mode": status.mode,
        "leads": status.leads,
        "topics": len(status.covered),
        "paused": sorted(status.state.pauses),
        "left_alone": {topic: list(names) for topic, names in sorted(status.left_alone.items())},
        "skipped": dict(sorted(status.skipped.items())),
        "notes": [*status.notes, *([observation.failure] if observation.failure else [])],
    }
