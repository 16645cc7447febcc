"""The Java client, driven through py4j on the brokers' own jars: transactions v2 from 4.0 on (KIP-890)."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from harness.clients import NO_OFFSET, OPERATION_TIMEOUT_S, TRANSACTION_TIMEOUT_MS, ClientError, Library
from harness.host.leftovers import process_marker
from harness.schedules.groups import CLASSIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.clients import Answered, ClientSpec
    from harness.kafka_api.messages import TopicPartition

JVM_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
STOP_TIMEOUT_S = 10.0

CONNECTION = {
    "request.timeout.ms": "5000",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "200",
    "retry.backoff.ms": "20",
    "metadata.max.age.ms": "1000",
}
SERIALIZATION = "org.apache.kafka.common.serialization"
CONFIG = {
    **CONNECTION,
    "acks": "all",
    "linger.ms": "0",
    "delivery.timeout.ms": str(int(OPERATION_TIMEOUT_S * 1000)),
    "max.block.ms": str(int(OPERATION_TIMEOUT_S * 1000)),
    "key.serializer": f"{SERIALIZATION}.StringSerializer",
    "value.serializer": f"{SERIALIZATION}.StringSerializer",
}
CONSUMER_CONFIG = {
    **CONNECTION,
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.max.wait.ms": "50",
    "default.api.timeout.ms": str(int(OPERATION_TIMEOUT_S * 1000)),
    "key.deserializer": f"{SERIALIZATION}.ByteArrayDeserializer",
    "value.deserializer": f"{SERIALIZATION}.ByteArrayDeserializer",
}
CLASSIC_CONFIG = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
"""Settings of members that with the new protocol are the brokers' (KIP-848)."""
CLOSE_TIMEOUT_MS = 2_000

ONCE = {"retries": "0"}


@contextmanager
def opened(spec: ClientSpec) -> Iterator[Library]:
    """Start one JVM for all clients and give what makes them; it is ended with the block."""
    login = spec.security.properties if spec.security else {}
    with virtual_machine(spec) as jvm:
        yield Library(
            lambda transactional_id: JavaProducer(jvm, spec.bootstrap, transactional_id, login),
            JavaGroups(jvm, spec.bootstrap, login),
            once=lambda: JavaProducer(jvm, spec.bootstrap, None, {**login, **ONCE}),
        )


@contextmanager
def virtual_machine(spec: ClientSpec, *, heap: str = "128m") -> Iterator[Any]:
    """Start a JVM on the spec's jars and give py4j's view of it, fields included; it is ended with the block."""
    with spec.log_path.open("ab") as log:
        port, token, jvm = launch_gateway(
            classpath=spec.classpath,
            javaopts=[*JVM_FLAGS, f"-Xmx{heap}", f"-Djava.io.tmpdir={spec.work_dir}", process_marker(spec.run_id)],
            java_path=str(spec.java.path),
            die_on_exit=True,
            redirect_stderr=log,
            enable_auth=True,
            return_proc=True,
        )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_field=True))
    try:
        yield gateway.jvm
    finally:
        with suppress(Py4JError, OSError):
            gateway.close()
        jvm.kill()
        jvm.wait(STOP_TIMEOUT_S)


class JavaProducer:
    """Implements `harness.clients.LibraryProducer`."""

    def __init__(self, jvm: Any, bootstrap: str, transactional_id: str | None, login: Mapping[str, str]) -> None:
        """Make the producer. Without a transactional id it is not idempotent, as librdkafka's is not."""
        kind = {"enable.idempotence": "false"}
        if transactional_id is not None:
            kind = {"transactional.id": transactional_id, "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)}
        config = {**CONFIG, **kind, **login, "bootstrap.servers": bootstrap}
        self._jvm = jvm
        self._producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(_java_map(jvm, config))
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
        self,
        to: TopicPartition,
        key: str | bytes,
        value: str | None,
        headers: list[tuple[str, bytes]],
        answered: Answered,
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
            answered(_said(error), NO_OFFSET)

    def flush(self) -> int:
        """Wait for every answer."""
        self._producer.flush()
        sent, self._sent = self._sent, []
        for future, answered in sent:
            try:
                offset = future.get().offset()
            except Py4JJavaError as error:
                answered(_said(error), NO_OFFSET)
            else:
                answered(None, offset)
        return 0

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of a group as part of the open transaction."""
        member = self._jvm.org.apache.kafka.clients.consumer.ConsumerGroupMetadata(group)
        _told(lambda: self._producer.sendOffsetsToTransaction(_java_offsets(self._jvm, offsets), member))


class JavaGroups:
    """Implements `harness.clients.LibraryGroups`."""

    def __init__(self, jvm: Any, bootstrap: str, login: Mapping[str, str]) -> None:
        """Store where brokers are, and the login; nothing is connected yet."""
        self._jvm, self._bootstrap, self._login = jvm, bootstrap, login
        self._config = {**login, "bootstrap.servers": bootstrap}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets as a consumer that is assigned its partitions."""
        consumer = self._consumer({"group.id": group})
        try:
            _told(lambda: consumer.commitSync(_java_offsets(self._jvm, offsets)))
        finally:
            _close(self._jvm, consumer)

    def delete(self, group: str) -> None:
        """Delete a group without members."""
        config = {**CONNECTION, **self._config, "default.api.timeout.ms": CONFIG["max.block.ms"]}
        admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(_java_map(self._jvm, config))
        try:
            groups = self._jvm.java.util.List.of(group)
            _told(lambda: admin.deleteConsumerGroups(groups).all().get())
        finally:
            admin.close()

    def producer(self, transactional_id: str) -> JavaProducer:
        """Return a transactional producer."""
        return JavaProducer(self._jvm, self._bootstrap, transactional_id, self._login)

    def consumer(self, group: str, topic: str, protocol: str) -> JavaConsumer:
        """Return a consumer that joins the group."""
        # Clients of 3.9 know the setting, too, but only as an early access to the new protocol.
        own = CLASSIC_CONFIG if protocol == CLASSIC else {"group.protocol": protocol}
        return JavaConsumer(self._jvm, self._consumer({**own, "group.id": group}), topic)

    def _consumer(self, own: Mapping[str, str]) -> Any:
        config = _java_map(self._jvm, {**CONSUMER_CONFIG, **self._config, **own})
        return self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(config)


class JavaConsumer:
    """Implements `harness.clients.GroupConsumer`."""

    def __init__(self, jvm: Any, consumer: Any, topic: str) -> None:
        """Subscribe to the topic."""
        self._jvm, self._consumer = jvm, consumer
        consumer.subscribe(jvm.java.util.List.of(topic))

    def poll(self, timeout_s: float) -> Sequence[tuple[TopicPartition, int]]:
        """Return what is delivered next."""
        timeout = self._jvm.java.time.Duration.ofMillis(int(timeout_s * 1000))
        try:
            records = self._consumer.poll(timeout).iterator()
        except Py4JJavaError as error:
            raise ClientError(_said(error)) from error
        delivered = []
        while records.hasNext():
            one = records.next()
            delivered.append(((one.topic(), one.partition()), one.offset()))
        return delivered

    def close(self) -> None:
        """Leave the group."""
        _close(self._jvm, self._consumer)


def _close(jvm: Any, consumer: Any) -> None:
    consumer.close(jvm.java.time.Duration.ofMillis(CLOSE_TIMEOUT_MS))


def _java_map(jvm: Any, content: Mapping[str, str]) -> Any:
    converted = jvm.java.util.HashMap()
    for name, value in content.items():
        converted.put(name, value)
    return converted


def _java_offsets(jvm: Any, offsets: Mapping[TopicPartition, int]) -> Any:
    converted = jvm.java.util.HashMap()
    for partition, offset in offsets.items():
        committed = jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(offset)
        converted.put(jvm.org.apache.kafka.common.TopicPartition(*partition), committed)
    return converted


def _told(operation: Callable[[], object]) -> None:
    try:
        operation()
    except Py4JJavaError as error:
        raise ClientError(_said(error)) from error


def _said(error: Py4JJavaError) -> str:
    return str(error.java_exception.toString())
