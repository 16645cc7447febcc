"""Fake brokers that listen on loopback, for requests from other processes."""

import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from socketserver import StreamRequestHandler, ThreadingTCPServer

from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest

from fakes.brokers import FakeBroker
from fakes.http_servers import serving
from harness.kafka_api.address import Address

REQUESTS = {
    kind.API_KEY: kind for kind in (ApiVersionsRequest, DescribeProducersRequest, FetchRequest, ListOffsetsRequest)
}


@contextmanager
def listening(brokers: Mapping[int, FakeBroker]) -> Iterator[dict[int, Address]]:
    """Answer requests over sockets; yield the address of each broker."""
    with ExitStack() as stack:
        yield {number: stack.enter_context(_listening(broker)) for number, broker in brokers.items()}


@contextmanager
def _listening(broker: FakeBroker) -> Iterator[Address]:
    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.read(4):
                body = self.rfile.read(*struct.unpack(">i", head))
                key, version, correlation_id = struct.unpack_from(">hhi", body)
                answer = broker.call(REQUESTS[key].decode(body, version=version, header=True))
                answer.API_VERSION = version
                answer.with_header(correlation_id=correlation_id)
                self.wfile.write(answer.encode(header=True, framed=True))

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with serving(server):
        yield Address(*server.server_address)
