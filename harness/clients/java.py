"""The Java client, driven through py4j on the brokers' own jars: transactions v2 from 4.0 on (KIP-890)."""

# ruff: noqa: D102 (methods of the protocols of `harness.clients`)

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from harness import clients
from harness.errors import WaitTimeoutError
from harness.host.clock import RealClock
from harness.host.leftovers import process_marker
from harness.kafka_api import TopicPartition
from harness.schedules.scenario import CLASSIC, STREAMS

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
TIMEOUT_MS = str(int(clients.OPERATION_TIMEOUT_S * 1000))
CONFIG = {
    **CONNECTION,
    "acks": "all",
    "linger.ms": "0",
    "delivery.timeout.ms": TIMEOUT_MS,
    "max.block.ms": TIMEOUT_MS,
    "key.serializer": f"{SERIALIZATION}.StringSerializer",
    "value.serializer": f"{SERIALIZATION}.StringSerializer",
}
CONSUMER_CONFIG = {
    **CONNECTION,
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.max.wait.ms": "50",
    "default.api.timeout.ms": TIMEOUT_MS,
    "key.deserializer": f"{SERIALIZATION}.ByteArrayDeserializer",
    "value.deserializer": f"{SERIALIZATION}.ByteArrayDeserializer",
}
CLASSIC_CONFIG = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"}
"""Settings of members that with the new protocol are the brokers' (KIP-848)."""
STREAMS_CONFIG = {
    "group.protocol": STREAMS,
    "default.key.serde": f"{SERIALIZATION}.Serdes$ByteArraySerde",
    "default.value.serde": f"{SERIALIZATION}.Serdes$ByteArraySerde",
}
CLOSE_TIMEOUT_MS = 2_000
_REFUSALS = {
    "UnknownServerException": "UNKNOWN_SERVER_ERROR",
    "InvalidTxnStateException": "INVALID_TXN_STATE",
    "InvalidPidMappingException": "INVALID_PRODUCER_ID_MAPPING",
    "ConcurrentTransactionsException": "CONCURRENT_TRANSACTIONS",
    "OutOfOrderSequenceException": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "GroupIdNotFoundException": "GROUP_ID_NOT_FOUND",
    "TimeoutException": clients.TIMED_OUT,
}


@contextmanager
def opened(spec: clients.ClientSpec) -> Iterator[clients.Library]:
    """Start one JVM for all clients, which ends with the block."""
    connection = {**(spec.security.properties if spec.security else {}), "bootstrap.servers": spec.bootstrap}
    with virtual_machine(spec) as jvm:
        yield clients.Library(
            lambda transactional_id: JavaProducer(jvm, transactional_id, connection),
            JavaGroups(jvm, connection),
            once=lambda: JavaProducer(jvm, None, {**connection, "retries": "0"}),
        )


@contextmanager
def virtual_machine(spec: clients.ClientSpec, *, heap: str = "128m") -> Iterator[Any]:
    """Start a JVM with the spec's jars; yield py4j's view of it, including fields. It ends with the block."""
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

    def __init__(self, jvm: Any, transactional_id: str | None, connection: Mapping[str, str]) -> None:
        mode = {"enable.idempotence": "false"}  # like librdkafka's
        if transactional_id is not None:
            mode = {"transactional.id": transactional_id, "transaction.timeout.ms": str(clients.TRANSACTION_TIMEOUT_MS)}
        config = _java_map(jvm, {**CONFIG, **mode, **connection})
        self._jvm, self._producer = jvm, jvm.org.apache.kafka.clients.producer.KafkaProducer(config)
        self._sent: list[tuple[Any, clients.Answered]] = []

    def transact(self, step: clients.TransactionStep) -> None:
        with client_errors():
            getattr(self._producer, "initTransactions" if step == "init" else f"{step}Transaction")()

    def send(
        self, to: TopicPartition, key: str | bytes, value: str | None, headers: clients.Headers, reply: clients.Answered
    ) -> None:
        """Send a record; its acknowledgement is recorded in `flush`."""
        java_headers = self._jvm.org.apache.kafka.common.header.internals.RecordHeaders()
        for name, content in headers:
            java_headers.add(name, content)
        # With a timestamp of null the client stamps it.
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(*to, None, key, value, java_headers)
        try:
            self._sent.append((self._producer.send(record), reply))
        except Py4JJavaError as error:
            reply(_failure(error), clients.NO_OFFSET)

    def flush(self) -> int:
        self._producer.flush()
        sent, self._sent = self._sent, []
        for future, answered in sent:
            try:
                offset = future.get().offset()
            except Py4JJavaError as error:
                answered(_failure(error), clients.NO_OFFSET)
            else:
                answered(None, offset)
        return 0

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        member = self._jvm.org.apache.kafka.clients.consumer.ConsumerGroupMetadata(group)
        with client_errors():
            self._producer.sendOffsetsToTransaction(_java_offsets(self._jvm, offsets), member)


@dataclass(frozen=True)
class JavaGroups:
    """Implements `harness.clients.LibraryGroups`."""

    _jvm: Any
    _connection: Mapping[str, str]

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        consumer = self._consumer({"group.id": group})
        with client_errors(), closing(JavaConsumer(self._jvm, consumer)):
            consumer.commitSync(_java_offsets(self._jvm, offsets))

    def delete(self, group: str) -> None:
        # A paused broker may be asked first, and again: the time is enough for seven requests.
        timeouts = {"default.api.timeout.ms": TIMEOUT_MS, "request.timeout.ms": "3000"}
        config = {**CONNECTION, **self._connection, **timeouts}
        admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(_java_map(self._jvm, config))
        with closing(admin), client_errors():
            admin.deleteConsumerGroups(self._jvm.java.util.List.of(group)).all().get()

    def producer(self, transactional_id: str) -> JavaProducer:
        return JavaProducer(self._jvm, transactional_id, self._connection)

    def consumer(self, group: str, topic: str, protocol: str) -> clients.GroupConsumer:
        if protocol == STREAMS:
            return JavaStreams(self._jvm, {**CONNECTION, **self._connection, "application.id": group}, topic)
        # Clients of 3.9 have the setting, too, but only as an early access to the new protocol.
        settings = CLASSIC_CONFIG if protocol == CLASSIC else {"group.protocol": protocol}
        return JavaConsumer(self._jvm, self._consumer({**settings, "group.id": group}), topic)

    def _consumer(self, settings: Mapping[str, str]) -> Any:
        config = _java_map(self._jvm, {**CONSUMER_CONFIG, **self._connection, **settings})
        return self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(config)


class JavaConsumer:
    """Implements `harness.clients.GroupConsumer`."""

    def __init__(self, jvm: Any, consumer: Any, topic: str | None = None) -> None:
        self._jvm, self._consumer = jvm, consumer
        if topic is not None:
            consumer.subscribe(jvm.java.util.List.of(topic))

    def poll(self, timeout_s: float) -> Sequence[tuple[TopicPartition, int]]:
        timeout = self._jvm.java.time.Duration.ofMillis(int(timeout_s * 1000))
        with client_errors():
            records = self._consumer.poll(timeout).iterator()
        delivered = []
        while records.hasNext():
            record = records.next()
            delivered.append(((record.topic(), record.partition()), record.offset()))
        return delivered

    def close(self) -> None:
        self._consumer.close(self._jvm.java.time.Duration.ofMillis(CLOSE_TIMEOUT_MS))


class JavaStreams:
    """An application of Kafka Streams that reads a topic (KIP-1071). Implements `harness.clients.GroupConsumer`."""

    def __init__(self, jvm: Any, config: Mapping[str, str], topic: str) -> None:
        self._jvm, api, properties = jvm, jvm.org.apache.kafka.streams, jvm.java.util.Properties()
        properties.putAll(_java_map(jvm, {**STREAMS_CONFIG, **config}))
        builder = api.StreamsBuilder()
        builder.stream(topic)
        self._streams = api.KafkaStreams(builder.build(), properties)
        with client_errors():
            self._streams.start()

    def poll(self, timeout_s: float) -> Sequence[tuple[TopicPartition, int]]:
        """Return the partitions that it reads, each with its committed offset."""
        with suppress(WaitTimeoutError), client_errors():
            return RealClock().wait_until(self._partitions, timeout_s, "tasks")
        return []

    def _partitions(self) -> list[tuple[TopicPartition, int]]:
        tasks = [task for thread in self._streams.metadataForLocalThreads() for task in thread.activeTasks()]
        return [((it.topic(), it.partition()), at) for task in tasks for it, at in task.committedOffsets().items()]

    def close(self) -> None:
        self._streams.close(self._jvm.java.time.Duration.ofMillis(CLOSE_TIMEOUT_MS))


def _java_map(jvm: Any, content: Mapping[Any, Any]) -> Any:
    converted = jvm.java.util.HashMap()
    for name, value in content.items():
        converted.put(name, value)
    return converted


def _java_offsets(jvm: Any, offsets: Mapping[TopicPartition, int]) -> Any:
    partition, metadata = jvm.org.apache.kafka.common.TopicPartition, jvm.org.apache.kafka.clients.consumer
    return _java_map(jvm, {partition(*tp): metadata.OffsetAndMetadata(offset) for tp, offset in offsets.items()})


@contextmanager
def client_errors() -> Iterator[None]:
    """Raise `ClientError` for an exception of the client."""
    try:
        yield
    except Py4JJavaError as error:
        raise _failure(error) from error


def _failure(error: Py4JJavaError) -> clients.ClientError:
    failure = error.java_exception
    # The exception of a future has the broker's as its cause.
    names = [str(each.getClass().getSimpleName()) for each in (failure, failure.getCause()) if each is not None]
    refusal = next((_REFUSALS[name] for name in names if name in _REFUSALS), "")
    return clients.ClientError(str(failure.toString()), refusal=refusal)
