"""Connections to one chosen broker, over kafka-python's messages, and a client of the brokers of one cluster.

librdkafka chooses the broker by itself, and sends all administrative requests to one broker, although that broker may
be frozen. Here the caller decides how long to wait for a broker, and whether to repeat a request (`RetryPolicy`): a
paused broker accepts connections and never answers.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from harness.errors import HarnessError, WaitTimeoutError, raised_as
from harness.host.clock import Clock, RealClock
from harness.kafka_api.address import Address
from harness.kafka_api.messages import Request
from harness.kafka_api.metadata import WITHOUT_TOPIC_IDS, ClusterState, describe_cluster

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiMessage

    from harness.kafka_api.security import Security

T = TypeVar("T")
SILENT_S: Final = 10.0


@dataclass(frozen=True)
class RetryPolicy:
    """``answer_s``: the limit on the wait for a connection, and for the next part of an answer, which may be large.

    ``repeat_s``: for so long a request without an answer is sent again, over a new connection; 0: never.
    """

    answer_s: float = 3.0
    repeat_s: float = 0.0


ONCE: Final = RetryPolicy()


class SocketStream:
    """Sends messages to one broker over a blocking socket, until an error. Its methods raise OSError."""

    def __init__(self, address: Address, *, timeout_s: float) -> None:
        """Connect and log in. Raises OSError, TimeoutError, `HarnessError` for a refused login."""
        self.address = address
        self._correlation_id = 0
        self._socket = socket.create_connection((address.host, address.port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.security is not None:
            try:
                self._log_in(address.security)
            except BaseException:
                self._socket.close()
                raise

    def call(self, message: ApiMessage) -> Any:
        """Send a versioned message and return its decoded answer."""
        self._correlation_id += 1
        message.with_header(correlation_id=self._correlation_id, client_id="compaction-harness")
        self._socket.sendall(bytes(message.encode(framed=True, header=True)))
        # One request at a time: this file never reads into another answer.
        with self._socket.makefile("rb") as file:
            size_bytes = int.from_bytes(file.read(4))
            body = file.read(size_bytes)
        if not size_bytes or len(body) < size_bytes:
            raise ConnectionResetError(f"broker at {self.address} closed the connection")
        return message.header.get_response_class().decode(body, header=True)

    def _log_in(self, security: Security) -> None:
        """TLS, then SASL in Kafka's own requests (KIP-152), by kafka-python's mechanisms."""
        if security.tls is not None:
            self._socket = security.tls.wrap_socket(self._socket, server_hostname=self.address.host)
        if security.mechanism is None:
            return
        offered = self.call(SaslHandshakeRequest[1](mechanism=security.mechanism))
        if offered.error_code:
            mechanisms = ", ".join(offered.mechanisms)
            raise HarnessError(f"{self.address} refuses {security.mechanism}; it offers {mechanisms}")
        try:
            mechanism = get_sasl_mechanism(security.mechanism)(
                host=self.address.host, security_protocol=security.protocol, **security.for_kafka_python
            )
            while not mechanism.is_done():
                mechanism.receive(self._authenticate(mechanism.auth_bytes(), security))
        except (OSError, HarnessError):
            raise
        except Exception as error:
            # Each mechanism raises errors of its own library.
            raise HarnessError(f"{self.address}: the login of {security.source} failed: {error}") from error

    def _authenticate(self, auth_bytes: bytes, security: Security) -> bytes:
        answer = self.call(SaslAuthenticateRequest[1](auth_bytes=auth_bytes))
        if answer.error_code:
            raise HarnessError(f"{self.address} refuses the login of {security.source}: {answer.error_message}")
        return bytes(answer.auth_bytes)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


Dial: TypeAlias = "Callable[..., SocketStream]"
"""Opens a stream to an address, as `SocketStream` does."""


def retried(
    attempt: Callable[[], T], clock: Clock, timeout_s: float, errors: tuple[type[Exception], ...] = (OSError,)
) -> T:
    """Return what ``attempt`` returns, which is called again after these errors; raise its last error in the end."""
    results: list[T] = []
    raised: list[Exception] = []

    def is_done() -> bool:
        try:
            results.append(attempt())
        except errors as error:
            raised.append(error)
        return bool(results)

    try:
        clock.wait_until(is_done, timeout_s, "an attempt without an error")
    except WaitTimeoutError as error:
        raise raised[-1] from error
    return results[0]


class Connection:
    """Sends requests to one broker, over a new connection after an error. One thread may use it."""

    def __init__(
        self, address: Address, policy: RetryPolicy = ONCE, clock: Clock | None = None, dial: Dial = SocketStream
    ) -> None:
        """Connect; no retry. Raises OSError where no broker answers, `HarnessError` where it refuses the login."""
        self.address = address
        self.policy = policy
        self._clock = clock or RealClock()
        self._dial = dial
        self._stream: SocketStream | None = dial(address, timeout_s=policy.answer_s)

    def ask(self, request: Request[T]) -> T:
        """Return the decoded answer. Raises as `call`, and what the request's ``decode`` raises."""
        return request.decode(self.call(request))

    def call(self, request: Request[Any]) -> Any:
        """Return the answer. Raises OSError where the broker gives none, `HarnessError` where it refuses the login."""
        if not self.policy.repeat_s:
            return self._send(request)
        with raised_as(ConnectionError, f"{self.address} does not answer", OSError):
            return retried(lambda: self._send(request), self._clock, self.policy.repeat_s)

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _send(self, request: Request[Any]) -> Any:
        try:
            self._stream = self._stream or self._dial(self.address, timeout_s=self.policy.answer_s)
            return self._stream.call(request.message)
        except BaseException:
            self.close()
            raise


def ask(address: Address, request: Request[T], policy: RetryPolicy = ONCE) -> T:
    """Send one request over a new connection."""
    with closing(Connection(address, policy)) as connection:
        return connection.ask(request)


class NotRegisteredError(ConnectionError):
    """A broker is not in the cluster's metadata."""


class ClusterClient:
    """Sends requests to brokers; several threads may use it. ``brokers``: by node id, as `remember` got them.

    The brokers of the last metadata come before those of ``--bootstrap-server``, the broker of the last answer is
    first, and for `SILENT_S` a broker is last that did not answer in time.
    """

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

    def describe(
        self, topics: Iterable[str] | None, policy: RetryPolicy | None = None, version: int = WITHOUT_TOPIC_IDS
    ) -> ClusterState:
        """Return the metadata of the first broker that answers, and remember the brokers. Raises as `ask_any`."""
        state = self.ask_any(describe_cluster(topics, version=version), policy)
        self.remember([state])
        return state

    def remember(self, states: Iterable[ClusterState]) -> None:
        """Store the addresses of the brokers in this metadata, in place of earlier ones."""
        security = self._bootstrap()[0].security
        addresses = {node: address for state in states for node, address in state.brokers.items()}
        self.brokers = {node: replace(addresses[node], security=security) for node in sorted(addresses)}

    def ask_any(self, request: Request[T], policy: RetryPolicy | None = None) -> T:
        """Ask until a broker answers. Raises ConnectionError, `HarnessError` for a refused login, and as ``decode``."""
        errors: dict[Address, OSError | HarnessError] = {}
        for address in self.addresses:
            try:
                answer = self._call(address, request, policy)
            except (OSError, HarnessError) as error:
                errors[address] = error
            else:
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
        """Connect. Raises as `Connection` does, and `NotRegisteredError`."""
        return Connection(self._address(broker), policy or self.policy, self.clock, self._dial)

    def close(self) -> None:
        """Close the connections that were kept."""
        while self._idle:
            self._idle.popitem()[1].close()

    def _address(self, broker: int | Address) -> Address:
        if isinstance(broker, Address):
            return broker
        if broker not in self.brokers:
            raise NotRegisteredError("it is not registered with the cluster")
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
        self._answered_last = address
        if self._keeps_connections:
            self._idle[key] = connection
        else:
            connection.close()
        return answer
