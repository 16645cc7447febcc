"""The status as Prometheus metrics, and whether the guard is healthy; served on one small HTTP server.

The metrics are made from the latest status when they are asked for: nothing is left of topics that are gone.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from werkzeug.serving import WSGIRequestHandler, make_server

from harness.errors import UsageError
from harness.escape import to_json
from harness.protect.guard.service import ACT, OBSERVE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from harness.protect.guard.status import GuardStatus, Observation

PREFIX: Final = "compaction_guard_"
LATE_ROUNDS: Final = 3
LATEST_S: Final = 15.0
"""A guard is unhealthy when its last good round is older than three intervals, and than this."""
ANOMALIES: Final = ("stuck-lso", "hanging-transaction")


def unhealthy(status: GuardStatus, now_ms: int) -> list[str]:
    """Return what is wrong with the guard or with what it protects, each in a sentence; [] where nothing is."""
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
    pauses = status.state.pauses

    def one(name: str, text: str, value: float) -> Metric:
        return GaugeMetricFamily(PREFIX + name, text, value=value)

    def by(label: str, name: str, text: str, values: Mapping[str, float]) -> Metric:
        family = GaugeMetricFamily(PREFIX + name, text, labels=[label])
        for key, value in sorted(values.items()):
            family.add_metric([key], value)
        return family

    yield one("healthy", "1 where the health endpoint answers 200.", not unhealthy(status, now_ms))
    yield one("leads", "1 where this guard acts, of several.", status.leads)
    yield one("observes_only", "1 with --observe-only.", status.mode == OBSERVE)
    yield one("interval_seconds", "Time between rounds.", status.interval_s)
    yield one("round_seconds", "Duration of the last round.", status.took_s)
    yield one("last_round_timestamp_seconds", "End of the last round that succeeded.", status.round_ms / 1000)
    yield CounterMetricFamily(PREFIX + "rounds", "Rounds.", value=status.rounds)
    yield CounterMetricFamily(PREFIX + "failures", "Failed rounds and changes.", value=status.failures)
    yield CounterMetricFamily(PREFIX + "requests", "Requests for metadata and settings.", value=status.requests)
    yield one("topics", "Covered topics.", len(status.covered))
    yield one("skipped_topics", "Topics that are not covered because a request was refused.", len(status.skipped))
    yield one("unpaused_topics", "Topics that should be paused and are not.", len(status.unpaused))
    yield one("paused_topics", "Paused topics.", len(pauses))
    yield one("left_alone_topics", "Paused topics whose settings somebody changed.", len(status.left_alone))
    yield one(
        "short_retention_topics", "Topics with a retention below 3 intervals and 4 s.", len(status.short_retention)
    )
    yield by("topic", "replicas_away", "Replicas out of the ISR, but for those being added.", status.away)
    yield by("topic", "replicas_adding", "Replicas that are being added: exposed from the first minute.", status.adding)
    yield by("topic", "retention_left_seconds", "Until a missed record could be removed.", status.retention_left_s)
    yield by("topic", "paused_seconds", "For how long the topic is paused.",
             {topic: (now_ms - pause.since_ms) / 1000 for topic, pause in pauses.items()})  # fmt: skip
    yield by("topic", "held", "Other commands that hold the topic.",
             {topic: len(by_) for topic, by_ in status.state.holds.items()})  # fmt: skip
    yield by("topic", "paused_log_bytes", "Segments of paused topics, all replicas.", observation.log_bytes)
    yield by("topic", "paused_log_growth_bytes_per_second", "Their growth.", observation.growth_bytes_s)
    yield by("topic", "open_transactions", "Transactions open on any replica.", observation.open_transactions)
    yield by("topic", "lso_spread_offsets", "Greatest difference of LSOs of a partition.", observation.lso_spread)
    yield by("anomaly", "suspicions", "What `harness audit live --quick` suspects.",
             {**dict.fromkeys(ANOMALIES, 0), **observation.suspicions})  # fmt: skip
    yield one("observation_timestamp_seconds", "End of the last look at replicas.", observation.time_ms / 1000)
    yield one("observation_failed", "1 where the last look failed.", observation.failure is not None)


class _Latest(Collector):
    """Collects from what is current; a subclass of the client library's type, as it asks for one."""

    def __init__(self, current: Callable[[], Iterable[Metric]]) -> None:
        self._current = current

    def collect(self) -> Iterable[Metric]:
        return self._current()


class _QuietHandler(WSGIRequestHandler):
    """No line a request."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002
        """Log nothing."""


class Endpoint:
    """``/metrics`` and ``/health``, in a thread of its own, until `close`."""

    def __init__(
        self, host: str, port: int, snapshot: Callable[[], tuple[GuardStatus, Observation]], time_ms: Callable[[], int]
    ) -> None:
        """Listen. Raises `UsageError` where that address cannot be used."""
        registry = CollectorRegistry()
        registry.register(_Latest(lambda: list(families(*snapshot(), time_ms()))))
        metrics = make_wsgi_app(registry)

        def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            if environ["PATH_INFO"] == "/metrics":
                return metrics(environ, start)  # type: ignore[no-any-return]
            if environ["PATH_INFO"] != "/health":
                start("404 Not Found", [("Content-Type", "text/plain")])
                return [b"/metrics or /health\n"]
            status, observation = snapshot()
            wrong = unhealthy(status, time_ms())
            answer = health(status, observation, wrong)
            start("503 Service Unavailable" if wrong else "200 OK", [("Content-Type", "application/json")])
            return [f"{to_json(answer)}\n".encode()]

        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family)
        except OSError as error:
            why = str(error.strerror or error).partition(" (while")[0]
            raise UsageError(f"--listen {host}:{port}: it cannot listen there ({why})") from error
        # The server would print its own words where it cannot listen.
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


def health(status: GuardStatus, observation: Observation, wrong: list[str]) -> dict[str, Any]:
    """Return what ``/health`` answers."""
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
