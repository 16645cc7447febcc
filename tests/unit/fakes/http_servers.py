"""Stand-ins for HTTP servers that answer as configured, such as Redpanda's admin API by the facts."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Any


@dataclass
class FakeServer:
    """One server: status and body (bytes, or JSON) by path; ``asked`` has method, path and body of each request."""

    answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    port: int = 0


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Let a server answer while the context lasts."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def served(count: int) -> Iterator[dict[int, FakeServer]]:
    """Serve so many of them while the context lasts."""
    fakes = {broker: FakeServer() for broker in range(1, count + 1)}
    with ExitStack() as stack:
        for fake in fakes.values():
            server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
            fake.port = server.server_port
            stack.enter_context(serving(server))
        yield fakes


def _handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length).decode()
            is_form = self.headers.get_content_type() == "application/x-www-form-urlencoded"
            fake.asked.append((self.command, self.path, text if is_form else json.loads(text) if text else None))
            fake.authorizations.append(self.headers["Authorization"])
            status, result = fake.answers.get(self.path, (404, {"message": "Not found", "code": 404}))
            content = result if isinstance(result, bytes) else b"" if result is None else json.dumps(result).encode()
            self.send_response(status)
            if status in {307, 302}:
                self.send_header("Location", result)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = answer  # noqa: N815  (names of the library)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler
