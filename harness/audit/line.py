"""A way to ask one broker that outlives its connections: whatever an audit asks may be asked twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import ApiVersionsRequest

from harness.brokers.protocol.replica import FETCH_VERSION
from harness.brokers.protocol.wire import Connection
from harness.errors import HarnessError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka.protocol.api_message import ApiMessage

    from harness.brokers.protocol.replica import Caller
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock

ANSWER_TIMEOUT_S = 30.0
"""A broker that reads old segments from a busy disk takes its time."""
PATIENCE_S = 30.0
QUICK_S = 5.0
"""For what no broker has to read anything from disk; a frozen one is not to hold up the others' answers."""
FETCH_KEY = 1
FETCH_VERSIONS = (FETCH_VERSION, 12)
"""Later ones name topics by their ids."""


def connect(address: Address) -> Connection:
    """Return a connection on which answers may take long. Raises OSError and `HarnessError` as `Connection` does."""
    return Connection(address, timeout_s=ANSWER_TIMEOUT_S)


class Line:
    """Implements `harness.brokers.protocol.replica.Caller`. One owner, one request at a time."""

    def __init__(
        self,
        address: Address,
        clock: Clock,
        dial: Callable[[Address], Connection] = connect,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Connect, at once or not at all. Raises OSError where nothing answers, `HarnessError` for a refused login."""
        self.address = address
        self._clock = clock
        self._dial = dial
        self._patience_s = patience_s
        self._connection: Connection | None = dial(address)

    def call(self, request: ApiMessage) -> Any:
        """Return the decoded response, over a new connection where the old one broke.

        Raises ConnectionError once nothing was answered for ``patience_s`` seconds.
        """
        broken: list[OSError] = []

        def ask() -> tuple[Any] | None:
            try:
                self._connection = self._connection or self._dial(self.address)
                return (self._connection.call(request),)
            except OSError as error:
                broken.append(error)
                self.close()
                return None

        try:
            answered = self._clock.wait_until(ask, self._patience_s, f"an answer of {self.address}")
        except WaitTimeoutError as error:
            raise ConnectionError(f"{self.address} does not answer: {broken[-1]}") from error
        assert answered is not None  # noqa: S101  (wait_until returns true values only)
        (response,) = answered
        return response

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def quick_line(address: Address, clock: Clock) -> Line:
    """Return a line for questions that are answered at once or not at all. Raises as `Line` does."""
    return Line(address, clock, lambda address: Connection(address, timeout_s=QUICK_S), QUICK_S)


def fetch_version(broker: Caller) -> int:
    """Return the version in which this broker is asked to Fetch (KIP-35). Raises `HarnessError` where none is left."""
    answer = broker.call(ApiVersionsRequest[0]())
    for api in answer.api_keys:
        if api.api_key == FETCH_KEY:
            for version in FETCH_VERSIONS:
                if api.min_version <= version <= api.max_version:
                    return version
    raise HarnessError(f"it speaks no version of Fetch that names topics: none of {FETCH_VERSIONS}")
