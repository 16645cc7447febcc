"""Metrics for Prometheus and the health of the guard, served by one small HTTP server.

Each scrape makes the metrics from the latest status, so that no metric of a deleted topic remains.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from werkzeug.serving import WSGIRequestHandler, make_server

from harness.errors import UsageError
from harness.escape import to_json
from harness.protect.guard.status import ACT, OBSERVE, GuardStatus, Observation

PREFIX: Final = "compaction_guard_"
LATE_ROUNDS: Final = 3
LATEST_S: Final = 15.0
"""A guard is unhealthy when its last good round is older than three intervals, and than this."""
ANOMALIES: Final = ("stuck-lso", "hanging-transaction")


def unhealthy(status: GuardStatus, now_ms: int) -> list[str]:
    """Return a sentence on each problem of the guard or of a topic; [] where the guard is healthy."""
    wrong = [f"the last round failed: {status.failure}"] if status.failure else []
    age_s = (now_ms - status.round_ms) / 1000
    if not status.round_ms:
        wrong.append("no round has succeeded yet")
    elif age_s > max(LATE_ROUNDS * status.interval_s, LATEST_S):
        wrong.append(f"the last round that succeeded was {age_s:.0f} s ago")
    if status.mode == ACT and status.leads and status.unpaused:
        wrong.append(f"exposed and not paused: {', '.join(sorted(status.unpaused))}")
    return wrong


def families(status: GuardStatus, observation: Observation, now_ms: int) -> Iterator[Metric]:
    """Yield every metric (`docs/reference/guard.md` describes each)."""
    pauses, holds = status.state.pauses, status.state.holds
    gauges: dict[str, tuple[str, float]] = {
        "healthy": ("1 where the health endpoint answers 200.", not unhealthy(status, now_ms)),
        "leads": ("1 where this guard acts, of several.", status.leads),
        "observes_only": ("1 with --observe-only.", status.mode == OBSERVE),
        "interval_seconds": ("Time between rounds.", status.interval_s),
        "round_seconds": ("Duration of the last round.", status.took_s),
        "last_round_timestamp_seconds": ("End of the last round that succeeded.", status.round_ms / 1000),
        "topics": ("Covered topics.", len(status.covered)),
        "skipped_topics": ("Topics that are not covered because a request was refused.", len(status.skipped)),
        "unpaused_topics": ("Topics that should be paused and are not.", len(status.unpaused)),
        "paused_topics": ("Paused topics.", len(pauses)),
        "left_alone_topics": ("Paused topics whose settings somebody changed.", len(status.left_alone)),
        "short_retention_topics": ("Topics with a retention below 3 intervals and 4 s.", len(status.short_retention)),
        "observation_timestamp_seconds": ("End of the last observation of replicas.", observation.time_ms / 1000),
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
        "open_transactions": ("Transactions open on any replica.", observation.open_transactions),
        "lso_spread_offsets": ("Greatest difference of LSOs of a partition.", observation.lso_spread),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(PREFIX + name, text, value=value)
    yield CounterMetricFamily(PREFIX + "rounds", "Rounds.", value=status.rounds)
    yield CounterMetricFamily(PREFIX + "failures", "Failed rounds and changes.", value=status.failures)
    yield CounterMetricFamily(PREFIX + "requests", "Requests for metadata and settings.", value=status.requests)
    for name, (text, values) in by_topic.items():
        yield _labelled("topic", name, text, values)
    suspicions = {**dict.fromkeys(ANOMALIES, 0), **observation.suspicions}
    yield _labelled("anomaly", "suspicions", "Suspicions of `harness audit live --quick`.", suspicions)


def _labelled(label: str, name: str, text: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=[label])
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


class _Latest(Collector):
    """Collects the current metrics; a subclass, as the client library requires."""

    def __init__(self, current: Callable[[], Iterable[Metric]]) -> None:
        self._current = current

    def collect(self) -> Iterable[Metric]:
        return self._current()


class _QuietHandler(WSGIRequestHandler):
    """Logs no requests."""

    def log(self, *_: Any) -> None:
        """Log nothing."""


class Endpoint:
    """``/metrics`` and ``/health``, served by a thread, until `close`."""

    def __init__(
        self, host: str, port: int, snapshot: Callable[[], tuple[GuardStatus, Observation]], time_ms: Callable[[], int]
    ) -> None:
        """Listen. Raises `UsageError` for an address that cannot be used."""
        registry = CollectorRegistry()
        registry.register(_Latest(lambda: list(families(*snapshot(), time_ms()))))
        metrics = make_wsgi_app(registry)

        def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            if environ["PATH_INFO"] == "/metrics":
                return metrics(environ, start)  # type: ignore[no-any-return]
            if environ["PATH_INFO"] != "/health":
                start("404 Not Found", [("Content-Type", "text/plain")])
                return [b"/metrics or /health\n"]
            answer = health(*snapshot(), time_ms())
            code = "200 OK" if answer["healthy"] else "503 Service Unavailable"
            start(code, [("Content-Type", "application/json")])
            return [f"{to_json(answer)}\n".encode()]

        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            why = str(error.strerror or error).partition(" (while")[0]
            raise UsageError(f"--listen {host}:{port}: it cannot listen there ({why})") from error
        # The server would print an error itself if it opened the socket.
        self._server = make_server(
            host, port, app, threaded=True, request_handler=_QuietHandler, fd=self._socket.fileno()
        )
        self.address = f"{host}:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._socket.close()


def health(status: GuardStatus, observation: Observation, now_ms: int) -> dict[str, Any]:
    """Return the answer of ``/health``."""
    wrong = unhealthy(status, now_ms)
    return {
        "healthy": not wrong,
        "wrong": wrong,
        "mode": status.mode,
        "leads": status.leads,
        "topics": len(status.covered),
        "paused": sorted(status.state.pauses),
        "left_alone": {topic: list(names) for topic, names in sorted(status.left_alone.items())},
        "skipped": dict(sorted(status.skipped.items())),
        "notes": [*status.notes, *observation.sentences, *([observation.failure] if observation.failure else [])],
    }
