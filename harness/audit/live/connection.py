"""Connections to the brokers of an audited cluster. They reconnect: an audit may repeat each of its requests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kafka.protocol.metadata import ApiVersionsRequest

from harness.errors import HarnessError, WaitTimeoutError
from harness.kafka_api.replica import FETCH_VERSION
from harness.kafka_api.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafka.protocol.api_message import ApiMessage

    from harness.audit.live.cluster import Cluster
    from harness.host.clock import Clock
    from harness.kafka_api.replica import Caller
    from harness.kafka_api.wire import Address

T = TypeVar("T")

PATIENCE_S = 30.0
"""For an answer, as a broker needs time to read old segments from a busy disk; also for a broker to come back."""
QUICK_S = 5.0
"""For requests that need no disk read; a frozen broker must not delay the answers of the others."""
FETCH_KEY = 1
FETCH_VERSIONS = (FETCH_VERSION, 12)
"""Later versions name topics by their ids."""


class ReconnectingConnection:
    """Implements `harness.kafka_api.replica.Caller`. One owner, one request at a time."""

    def __init__(
        self,
        address: Address,
        clock: Clock,
        patience_s: float = PATIENCE_S,
        dial: Callable[..., Connection] = Connection,
    ) -> None:
        """Connect; no retry. Raises OSError where no broker answers, `HarnessError` where a login is refused."""
        self.address = address
        self._clock = clock
        self._patience_s = patience_s
        self._dial = partial(dial, address, timeout_s=patience_s)
        self._connection: Connection | None = self._dial()

    def call(self, request: ApiMessage) -> Any:
        """Return the decoded response; reconnect where the connection broke.

        Raises ConnectionError after ``patience_s`` seconds without an answer.
        """
        errors: list[OSError] = []

        def ask() -> tuple[Any] | None:
            try:
                self._connection = self._connection or self._dial()
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


quick_connection = partial(ReconnectingConnection, patience_s=QUICK_S)


@dataclass(frozen=True)
class ClusterClient:
    """Sends requests to chosen brokers of a cluster, each over a connection of its own."""

    cluster: Cluster
    clock: Clock
    dial: Callable[[Address, Clock], ReconnectingConnection] = quick_connection

    def connection(self, broker: int) -> closing[ReconnectingConnection]:
        """Connect for a ``with`` block. Raises as `ReconnectingConnection` does, and for an unregistered broker."""
        if broker not in self.cluster.brokers:
            raise ConnectionError("it is not registered with the cluster")
        return closing(self.dial(self.cluster.brokers[broker], self.clock))

    def ask_all(
        self, brokers: Collection[int], ask: Callable[[int, ReconnectingConnection], T]
    ) -> dict[int, T | OSError | HarnessError]:
        """Ask these brokers at the same time; return each one's answer, or the error that ended it."""

        def answer(broker: int) -> T | OSError | HarnessError:
            try:
                with self.connection(broker) as connection:
                    return ask(broker, connection)
            except (OSError, HarnessError) as error:
                return error

        with ThreadPoolExecutor(max(len(brokers), 1)) as pool:
            return dict(zip(brokers, pool.map(answer, brokers), strict=True))


def fetch_version(broker: Caller) -> int:
    """Return the Fetch version to use with this broker (KIP-35). Raises `HarnessError` where it supports none."""
    answer = broker.call(ApiVersionsRequest[0]())
    for api in answer.api_keys:
        if api.api_key == FETCH_KEY:
            for version in FETCH_VERSIONS:
                if api.min_version <= version <= api.max_version:
                    return version
    raise HarnessError(f"it supports no version of Fetch that names topics: none of {FETCH_VERSIONS}")
