"""The Java client, driven through py4j on the brokers' own jars: transactions v2 from 4.0 on (KIP-890)."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from harness.clients import OPERATION_TIMEOUT_S, TRANSACTION_TIMEOUT_MS, ClientError
from harness.host.leftovers import process_marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from harness.brokers.protocol.replica import TopicPartition
    from harness.clients import Answered, ClientSpec, MakeProducer

JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-XX:-UsePerfData")
STOP_TIMEOUT_S = 10.0

CONFIG = {
    "acks": "all",
    "linger.ms": "0",
    "request.timeout.ms": "5000",
    "delivery.timeout.ms": str(int(OPERATION_TIMEOUT_S * 1000)),
    "max.block.ms": str(int(OPERATION_TIMEOUT_S * 1000)),
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "200",
    "retry.backoff.ms": "20",
    "metadata.max.age.ms": "1000",
    "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
    "value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
}


@contextmanager
def opened(spec: ClientSpec) -> Iterator[MakeProducer]:
    """Start one JVM for all producers and give what makes them; it is ended with the block."""
    with spec.log_path.open("ab") as log:
        port, token, jvm = launch_gateway(
            classpath=spec.classpath,
            javaopts=[*JVM_FLAGS, f"-Djava.io.tmpdir={spec.work_dir}", process_marker(spec.run_id)],
            java_path=str(spec.java.path),
            die_on_exit=True,
            redirect_stderr=log,
            enable_auth=True,
            return_proc=True,
        )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        login = spec.security.properties if spec.security else {}
        yield lambda transactional_id: JavaProducer(gateway.jvm, spec.bootstrap, transactional_id, login)
    finally:
        with suppress(Py4JError, OSError):
            gateway.close()
        jvm.kill()
        jvm.wait(STOP_TIMEOUT_S)


class JavaProducer:
    """Implements `harness.clients.LibraryProducer`."""

    def __init__(self, jvm: Any, bootstrap: str, transactional_id: str | None, login: Mapping[str, str]) -> None:
        """Make the producer. Without a transactional id it is not idempotent, as librdkafka's is not."""
        config = jvm.java.util.HashMap()
        kind = {"enable.idempotence": "false"}
        if transactional_id is not None:
            kind = {"transactional.id": transactional_id, "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)}
        for name, value in {**CONFIG, **kind, **login, "bootstrap.servers": bootstrap}.items():
            config.put(name, value)
        self._jvm = jvm
        self._producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(config)
        self._sent: list[tuple[Any, Answered]] = []

    def init_transactions(self) -> None:
        """Obtain a producer id and fence earlier owners of the transactional id."""
        _told(self._producer.initTransactions)

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        _told(self._producer.beginTransaction)

    def commit_transaction(self) -> None:
        """Commit the open transaction."""
        _told(self._producer.commitTransaction)

    def abort_transaction(self) -> None:
        """Abort the open transaction."""
        _told(self._producer.abortTransaction)

    def send(
        self, to: TopicPartition, key: str, value: str | None, headers: list[tuple[str, bytes]], answered: Answered
    ) -> None:
        """Send a record; its acknowledgement is recorded in `flush`."""
        carried = self._jvm.org.apache.kafka.common.header.internals.RecordHeaders()
        for name, content in headers:
            carried.add(name, content)
        # With a timestamp of null the client stamps it.
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(*to, None, key, value, carried)
        try:
            self._sent.append((self._producer.send(record), answered))
        except Py4JJavaError as error:
            answered(_said(error), -1)

    def flush(self) -> int:
        """Wait for every answer."""
        self._producer.flush()
        sent, self._sent = self._sent, []
        for future, answered in sent:
            try:
                offset = future.get().offset()
            except Py4JJavaError as error:
                answered(_said(error), -1)
            else:
                answered(None, offset)
        return 0


def _told(operation: Callable[[], object]) -> None:
    try:
        operation()
    except Py4JJavaError as error:
        raise ClientError(_said(error)) from error


def _said(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString())
