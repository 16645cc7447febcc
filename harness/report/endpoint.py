"""The HTTP endpoint of commands that run until a signal: ``/metrics`` for Prometheus, ``/health``, and further pages.

Each request is answered from the latest status, so that no metric of a deleted topic remains.
"""

import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from waitress.server import create_server
from waitress.wasyncore import close_all

from harness.errors import UsageError
from harness.escape import to_json
from harness.kafka_api.address import Address

LATE_ROUNDS: Final = 3
LATEST_S: Final = 15.0
"""A command is unhealthy when its last good round is older than three intervals, and than this."""
IDLE_S: Final = 30
"""A connection without a request is closed after this time."""
THREADS: Final = 4
MOST_CONNECTIONS: Final = 100
STOP_S: Final = 5.0
JSON, HTML = "application/json", "text/html; charset=utf-8"
HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:"),
)
Page = Callable[[], tuple[str, str]]
"""Returns the content type and the text of a page."""
NO_PAGES: Final[Mapping[str, Page]] = {}


def round_problems(failure: str | None, round_ms: int, interval_s: float, now_ms: int) -> list[str]:
    """Return a sentence on each problem of rounds. ``round_ms``: the end of the last good round; 0 before the first."""
    problems = [f"the last round failed: {failure}"] if failure else []
    age_s = (now_ms - round_ms) / 1000
    if not round_ms:
        problems.append("no round has succeeded yet")
    elif age_s > max(LATE_ROUNDS * interval_s, LATEST_S):
        problems.append(f"the last round that succeeded was {age_s:.0f} s ago")
    return problems


def gauge(name: str, text: str, labels: str, values: Mapping[Any, float]) -> Metric:
    """Return a metric with a sample for each key: a text, or a tuple of texts in the order of ``labels`` ("a b")."""
    family = GaugeMetricFamily(name, text, labels=labels.split())
    for key, value in sorted(values.items()):
        family.add_metric(key if isinstance(key, tuple) else [key], value)
    return family


class Endpoint:
    """Serves metrics, health and pages in threads, until `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Callable[[], Iterable[Metric]],
        problems: Callable[[], tuple[list[str], Mapping[str, Any]]],
        pages: Mapping[str, Page] = NO_PAGES,
    ) -> None:
        """Listen. Raises `UsageError` for an address that cannot be used.

        ``problems`` returns a sentence on each problem, and further members of the answer of ``/health``, whose status
        is 503 where there are problems. ``pages`` by path.
        """

        class Latest(Collector):
            """Collects the current metrics; a subclass, as the client library requires."""

            def collect(self) -> Iterable[Metric]:
                return list(metrics())

        registry = CollectorRegistry()
        registry.register(Latest())
        scrape = make_wsgi_app(registry)

        def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            path, status = environ["PATH_INFO"], "200 OK"
            if path == "/metrics":
                return scrape(environ, start)  # type: ignore[no-any-return]
            if path == "/health":
                wrong, more = problems()
                status = "503 Service Unavailable" if wrong else status
                kind, text = JSON, f"{to_json({'healthy': not wrong, 'wrong': wrong, **more})}\n"
            elif path in pages:
                kind, text = pages[path]()
            else:
                status, kind, text = "404 Not Found", "text/plain", f"{', '.join(['/metrics', '/health', *pages])}\n"
            start(status, [("Content-Type", kind), *HEADERS])
            return [text.encode(errors="backslashreplace")]

        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listening = socket.create_server((host, port), family=family)
        except OSError as error:
            why = str(error.strerror or error).partition(" (while")[0]
            raise UsageError(f"--listen {Address(host, port)}: it cannot listen there ({why})") from error
        self.address = str(Address(host, listening.getsockname()[1]))
        self._channels: dict[int, Any] = {}
        self._server = create_server(
            app, self._channels, sockets=[listening], threads=THREADS, channel_timeout=IDLE_S,
            connection_limit=MOST_CONNECTIONS,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._server.run, name="endpoint", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close every connection, in the thread that serves them, and end the threads."""
        with suppress(OSError):  # the threads have ended
            self._server.trigger.pull_trigger(lambda: close_all(self._channels, ignore_all=True))
        self._thread.join(STOP_S)
        self._server.task_dispatcher.shutdown(timeout=STOP_S)
