"""One request to one chosen broker, over kafka-python's protocol classes.

librdkafka routes every call by cluster metadata; reading a replica that is not the leader needs a
request to a chosen broker. Timeouts are short, as a paused broker accepts connections and
never answers.
"""

from __future__ import annotations

import socket
import struct
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import kafka.errors
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from harness.errors import HarnessError

if TYPE_CHECKING:
    from kafka.protocol.api_message import ApiMessage

    from harness.kafka_api.security import Security

CLIENT_ID = "compaction-harness"
DEFAULT_TIMEOUT_S = 3.0


@dataclass(frozen=True, order=True)
class Address:
    """The address of a broker's client listener, and its login; without ``security``, there is no login."""

    host: str
    port: int
    security: Security | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """Return host:port as every Kafka client takes it, with an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection:
    """A blocking connection to one broker. Not thread-safe: one owner, one request at a time."""

    def __init__(self, address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        """Connect, and log in. Raises OSError where nothing listens, TimeoutError after ``timeout_s`` seconds.

        Raises `HarnessError` where the broker refuses the login.
        """
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

    def call(self, request: ApiMessage) -> Any:
        """Send a versioned request and return its decoded response.

        The request's class sets its version (``FetchRequest[11](...)``). Raises OSError when
        the broker goes away or does not answer in time; the connection cannot be used after that.
        """
        self._correlation_id += 1
        request.with_header(correlation_id=self._correlation_id, client_id=CLIENT_ID)
        self._socket.sendall(bytes(request.encode(framed=True, header=True)))
        (size_bytes,) = struct.unpack(">i", self._read(4))
        body = self._read(size_bytes)
        response_class = request.header.get_response_class()
        return response_class.decode(body, header=True)

    def _log_in(self, security: Security) -> None:
        """TLS, then SASL in Kafka's own requests (KIP-152), by kafka-python's mechanisms."""
        if security.tls is not None:
            self._socket = security.tls.wrap_socket(self._socket, server_hostname=self.address.host)
        if security.mechanism is None:
            return
        user, password = security.credentials
        offered = self.call(SaslHandshakeRequest[1](mechanism=security.mechanism))
        if offered.error_code:
            raise HarnessError(
                f"{self.address} refuses {security.mechanism}; it offers {', '.join(offered.mechanisms)}"
            )
        mechanism = get_sasl_mechanism(security.mechanism)(
            security_protocol=security.protocol,
            sasl_mechanism=security.mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
        )
        while not mechanism.is_done():
            answer = self.call(SaslAuthenticateRequest[1](auth_bytes=mechanism.auth_bytes()))
            if answer.error_code:
                raise HarnessError(f"{self.address} refuses the login of {security.source}: {answer.error_message}")
            mechanism.receive(answer.auth_bytes)

    def _read(self, size_bytes: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < size_bytes:
            chunk = self._socket.recv(min(size_bytes - len(chunks), 1 << 20))
            if not chunk:
                raise ConnectionResetError(f"broker at {self.address} closed the connection")
            chunks += chunk
        return bytes(chunks)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def error_name(code: int) -> str:
    """Return the name of an error in an answer."""
    return str(kafka.errors.for_code(code).__name__)


def call(address: Address, request: ApiMessage, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Any:
    """One request on a connection of its own."""
    with closing(Connection(address, timeout_s=timeout_s)) as connection:
        return connection.call(request)
