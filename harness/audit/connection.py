"""A connection to one broker that reconnects: an audit may repeat each of its requests."""

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
"""A broker needs time to read old segments from a busy disk."""
PATIENCE_S = 30.0
QUICK_S = 5.0
"""For requests that need no disk read; a frozen broker must not delay the answers of the others."""
FETCH_KEY = 1
FETCH_VERSIONS = (FETCH_VERSION, 12)
"""Later versions name topics by their ids."""


def connect(address: Address) -> Connection:
    """Return a connection with a long answer timeout. Raises OSError and `HarnessError` as `Connection` does."""
    return Connection(address, timeout_s=ANSWER_TIMEOUT_S)


class ReconnectingConnection:
    """Implements `harness.brokers.protocol.replica.Caller`. One owner, one request at a time."""

    def __init__(
        self,
        address: Address,
        clock: Clock,
        dial: Callable[[Address], Connection] = connect,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Connect; no retry. Raises OSError where no broker answers, `HarnessError` where a login is refused."""
        self.address = address
        self._clock = clock
        self._dial = dial
        self._patience_s = patience_s
        self._connection: Connection | None = dial(address)

    def call(self, request: ApiMessage) -> Any:
        """Return the decoded response; reconnect where the connection broke.

        Raises ConnectionError after ``patience_s`` seconds without an answer.
        """
        errors: list[OSError] = []

        def ask() -> tuple[Any] | None:
            try:
                self._connection = self._connection or self._dial(self.address)
                return (self._connection.call(request),)
            except OSError as error:
                errors.append(error)
                self.close()
                return None

        try:
            answer = self._clock.wait_until(ask, self._patience_s, f"an answer of {self.address}")
        except WaitTimeoutError as error:
            raise ConnectionError(f"{self.address} does not answer: {errors[-1]}") from error
        assert answer is not None  # noqa: S101  (wait_until returns true values only)
        (response,) = answer
        return response

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def quick_connection(address: Address, clock: Clock) -> ReconnectingConnection:
    """Return a connection with short timeouts. Raises as `ReconnectingConnection` does."""
    return ReconnectingConnection(address, clock, lambda address: Connection(address, timeout_s=QUICK_S), QUICK_S)


def fetch_version(broker: Caller) -> int:
    """Return the Fetch version to use with this broker (KIP-35). Raises `HarnessError` where it supports none."""
    answer = broker.call(ApiVersionsRequest[0]())
    for api in answer.api_keys:
        if api.api_key == FETCH_KEY:
            for version in FETCH_VERSIONS:
                if api.min_version <= version <= api.max_version:
                    return version
    raise HarnessError(f"it supports no version of Fetch that names topics: none of {FETCH_VERSIONS}")
