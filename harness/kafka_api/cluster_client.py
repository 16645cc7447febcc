"""A client of one cluster: which broker is asked, and for how long it is waited for.

The brokers of the last metadata come before those of ``--bootstrap-server``, the broker of the last answer is first,
and for `SILENT_S` a broker is last that did not answer in time. librdkafka sends all administrative requests to one
broker, although that broker may be frozen.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any, Final, TypeVar

from harness.errors import HarnessError
from harness.host.clock import Clock, RealClock
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ONCE, Connection, Dial, RetryPolicy, SocketStream
from harness.kafka_api.messages import Request
from harness.kafka_api.metadata import ClusterState, describe_cluster

T = TypeVar("T")
SILENT_S: Final = 10.0


class ClusterClient:
    """Sends requests to brokers; several threads may use it. ``brokers``: by node id, as `remember` got them."""

    def __init__(
        self,
        bootstrap: Callable[[], Sequence[Address]],
        policy: RetryPolicy = ONCE,
        clock: Clock | None = None,
        *,
        dial: Dial = SocketStream,
        keeps_connections: bool = False,
    ) -> None:
        """Store where brokers are; nothing is connected yet.

        ``policy`` holds for requests without a policy. A client that ``keeps_connections`` uses them until `close`; a
        request over a connection that the broker has closed meanwhile is sent once more, over a new connection.
        """
        self.policy = policy
        self.clock = clock or RealClock()
        self.brokers: Mapping[int, Address] = {}
        self.requests = 0
        self._bootstrap, self._dial, self._keeps_connections = bootstrap, dial, keeps_connections
        self._idle: dict[tuple[Address, RetryPolicy], Connection] = {}
        self._silent_until_s: dict[Address, float] = {}
        self._answered_last: Address | None = None

    @property
    def addresses(self) -> list[Address]:
        """Every address, in the order in which brokers are asked."""
        every = dict.fromkeys((*self.brokers.values(), *self._bootstrap()))
        return sorted(every, key=lambda address: (self.is_silent(address), address != self._answered_last))

    def is_silent(self, address: Address) -> bool:
        """Return whether a request to this broker timed out within the last `SILENT_S`."""
        return self._silent_until_s.get(address, 0.0) > self.clock.now_s()

    def describe(self, topics: Iterable[str] | None, policy: RetryPolicy | None = None) -> ClusterState:
        """Return the metadata of the first broker that answers, and remember the brokers. Raises as `ask_any`."""
        state = self.ask_any(describe_cluster(topics), policy)
        self.remember([state])
        return state

    def remember(self, states: Iterable[ClusterState]) -> None:
        """Store the addresses of the brokers in this metadata, in place of earlier ones."""
        security = self._bootstrap()[0].security
        addresses = {node: address for state in states for node, address in state.brokers.items()}
        self.brokers = {node: replace(addresses[node], security=security) for node in sorted(addresses)}

    def ask_any(self, request: Request[T], policy: RetryPolicy | None = None) -> T:
        """Ask one broker after the other until one answers.

        Raises ConnectionError where none does, `HarnessError` where a login is refused instead, and what the request's
        ``decode`` raises.
        """
        errors: dict[Address, OSError | HarnessError] = {}
        for address in self.addresses:
            try:
                answer = self._call(address, request, policy)
            except (OSError, HarnessError) as error:
                errors[address] = error
                continue
            self._answered_last = address
            return request.decode(answer)
        texts = "; ".join(f"{address}: {why}" for address, why in errors.items())
        logins = (why for why in errors.values() if isinstance(why, HarnessError))
        raise next(logins, ConnectionError(f"no broker answers ({texts})"))

    def ask(self, broker: int | Address, request: Request[T], policy: RetryPolicy | None = None) -> T:
        """Ask this broker. Raises as `connect`, and as `Connection.ask`."""
        return request.decode(self._call(self._address(broker), request, policy))

    def ask_all(
        self, brokers: Collection[int], ask: Callable[[int, Connection], T], policy: RetryPolicy | None = None
    ) -> tuple[dict[int, T], dict[int, OSError | HarnessError]]:
        """Ask these brokers at the same time; return their answers, and the errors that ended other requests."""

        def answer(broker: int) -> T:
            with self.connection(broker, policy) as connection:
                return ask(broker, connection)

        with ThreadPoolExecutor(max(len(brokers), 1)) as pool:
            futures = {broker: pool.submit(answer, broker) for broker in brokers}
        answers: dict[int, T] = {}
        errors: dict[int, OSError | HarnessError] = {}
        for broker, future in futures.items():
            try:
                answers[broker] = future.result()
            except (OSError, HarnessError) as error:
                errors[broker] = error
        return answers, errors

    def connection(self, broker: int | Address, policy: RetryPolicy | None = None) -> closing[Connection]:
        """Connect for a ``with`` block. Raises as `connect`."""
        return closing(self.connect(broker, policy))

    def connect(self, broker: int | Address, policy: RetryPolicy | None = None) -> Connection:
        """Connect. Raises as `Connection` does, and ConnectionError for a broker that is not registered."""
        return Connection(self._address(broker), policy or self.policy, self.clock, self._dial)

    def close(self) -> None:
        """Close the connections that were kept."""
        while self._idle:
            self._idle.popitem()[1].close()

    def _address(self, broker: int | Address) -> Address:
        if isinstance(broker, Address):
            return broker
        if broker not in self.brokers:
            raise ConnectionError("it is not registered with the cluster")
        return self.brokers[broker]

    def _call(self, address: Address, request: Request[Any], policy: RetryPolicy | None) -> Any:
        self.requests += 1
        key = address, policy or self.policy
        idle = self._idle.pop(key, None)
        try:
            connection = idle or Connection(*key, self.clock, self._dial)
            try:
                answer = connection.call(request)
            except ConnectionError:
                if idle is None:
                    raise
                answer = connection.call(request)
        except TimeoutError:
            self._silent_until_s[address] = self.clock.now_s() + SILENT_S
            raise
        self._silent_until_s.pop(address, None)
        if self._keeps_connections:
            self._idle[key] = connection
        else:
            connection.close()
        return answer
