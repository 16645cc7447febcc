"""Free loopback ports.

A port stays this process's, also while its broker is down: otherwise a run that starts meanwhile may take it, whose
topics and transactional ids have the same names, and clients of the first run would write to brokers of the second.
"""

import fcntl
import random
import socket
from contextlib import ExitStack
from typing import IO, Final

from harness.errors import UsageError
from harness.host.cache import cache_root

LOOPBACK = "127.0.0.1"
FIRST_PORT, LAST_PORT = 20_000, 31_999
"""Below Linux's range for outgoing connections (32768 and up), so that no client takes one in the meantime."""

_HELD: Final[dict[int, IO[str]]] = {}
"""The locks of this process's ports, which end with the process."""
LAST_OF_ALL = 65_535
ATTEMPTS = 500


def free_ports(count: int, *, base: int | None = None) -> list[int]:
    """Return ``count`` ports that can be bound now: from ``base`` upwards, else chosen at random.

    Raises `UsageError` with the port that is taken, or if too few are free. The choice is not seeded, so that
    concurrent runs with the same seed do not choose the same ports.
    """
    candidates = random.Random().sample(range(FIRST_PORT, LAST_PORT + 1), ATTEMPTS)  # noqa: S311
    if base is not None:
        if base + count - 1 > LAST_OF_ALL:
            raise UsageError(f"--port-base {base}: {count} ports are needed; give {LAST_OF_ALL - count + 1} or less")
        candidates = list(range(base, base + count))
    ports: list[int] = []
    with ExitStack() as probes:
        for port in candidates:
            probe = probes.enter_context(socket.socket())
            try:
                # Like brokers, treat a port whose last connection is in TIME_WAIT as free.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((LOOPBACK, port))
                probe.listen(1)
                _hold(port)
            except (OSError, OverflowError) as error:
                if base is not None:
                    raise UsageError(
                        f"port {port} on {LOOPBACK} is taken (--port-base {base} needs {base} to {base + count - 1});"
                        " free it, choose another base, or leave --port-base out"
                    ) from error
            else:
                ports.append(port)
                if len(ports) == count:
                    return ports
    raise UsageError(f"no {count} free ports between {FIRST_PORT} and {LAST_PORT} on {LOOPBACK}")


def _hold(port: int) -> None:
    """Lock a port for this process. Raises BlockingIOError for the port of another process of this user."""
    path = cache_root() / "ports" / str(port)
    if port not in _HELD:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.open("w")
        except OSError:  # without a cache that can be written, nothing is locked
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _HELD[port] = lock
