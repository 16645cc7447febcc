"""A cluster for one known bug of Kafka: brokers of any version in KRaft mode, and a JVM with that version's clients."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.broker_files.segments.batches import iter_records
from harness.clients.java import virtual_machine
from harness.cluster.boot import booted_cluster, client_spec, equip
from harness.errors import HarnessError, UsageError
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.kafka_api import TopicPartition
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import CONSUMER_REPLICA_ID, DEBUG_REPLICA_ID, ReplicaState, WireReader
from harness.run_folder.store import new_run_id
from harness.runtimes import LOCAL
from harness.runtimes.base import ClusterSpec, RuntimeRequest
from harness.targets import TARGETS, find_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.broker_files.segments.batches import Record
    from harness.clients import ClientSpec
    from harness.cluster.cluster import Cluster
    from harness.runtimes.base import Need
    from harness.targets import Target

BOUND_S = 60.0
SILENCE_S = 10.0
SOURCE = "a Fetch answer"
SERIALIZATION = "org.apache.kafka.common.serialization"
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "1050000",
    "log.initial.task.delay.ms": "0",
    "file.delete.delay.ms": "1000",
    # No broker leaves an ISR unless a scenario makes it leave.
    "broker.session.timeout.ms": "60000",
    "replica.lag.time.max.ms": "60000",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0.0001",
    "max.compaction.lag.ms": "200",
}
"""Topic settings with which a record is cleaned within a second, if others follow it."""


@dataclass(frozen=True)
class Bed:
    """A cluster that runs. ``jvm``: py4j's view of a JVM that has the clients of the brokers' version."""

    cluster: Cluster
    client: ClientSpec
    jvm: Any
    logs_dir: Path
    work_dir: Path

    def create_topic(self, name: str, replicas: tuple[int, ...], settings: Mapping[str, str] = COMPACTED) -> None:
        """Create a topic with one partition, and wait for its leader."""
        self.cluster.admin.create_topics({(name, 0): replicas}, settings)

        def has_leader() -> bool:  # the broker that answers may not know of the topic yet
            return any(one.leader in replicas for one in self.cluster.admin.partitions([name]).values())

        self.cluster.wait(has_leader, f"a leader of {name}")

    def read(self, broker: int, tp: TopicPartition, *, committed: bool = False) -> ReplicaState:
        """Return a replica as its broker serves it; with ``committed`` to a read_committed consumer."""
        with closing(WireReader(Connection(self.cluster.runtime.address(broker)))) as reader:
            answer = reader.read([tp], replica_id=CONSUMER_REPLICA_ID if committed else DEBUG_REPLICA_ID)[tp]
        if isinstance(answer, str):
            raise HarnessError(f"{tp[0]}-{tp[1]} on broker {broker}: {answer}")
        return answer

    def records(self, broker: int, tp: TopicPartition) -> list[Record]:
        """Return the data records of a replica up to its log end offset."""
        return [
            record
            for batch in self.read(broker, tp).batches
            if not batch.is_control
            for record in iter_records(batch, source=SOURCE)
        ]

    def values(self, broker: int, tp: TopicPartition) -> list[str]:
        """Return the values of K in a replica, in the order of offsets; a tombstone is a dash."""
        return ["-" if one.value is None else one.value.decode() for one in self.records(broker, tp) if one.key == b"K"]

    def isr(self, tp: TopicPartition) -> set[int]:
        """Return the members of a partition's ISR."""
        return set(self.cluster.admin.partitions([tp[0]])[tp].isr)

    def elect(self, tp: TopicPartition, leader: int) -> None:
        """Ask for the preferred leader until it leads. Raises `WaitTimeoutError`."""

        def leads() -> bool:
            self.cluster.admin.elect_preferred([tp])
            return self.cluster.admin.partitions([tp[0]])[tp].leader == leader

        self.cluster.wait(leads, f"broker {leader} to lead")

    def partition_folder(self, broker: int, tp: TopicPartition) -> Path:
        """Return where the broker has the files of a replica."""
        return self.work_dir / f"broker-{broker}" / "data" / f"{tp[0]}-{tp[1]}"

    def log_text(self, broker: int) -> str:
        """Return what the broker has logged so far."""
        return (self.logs_dir / str(broker) / "server.log").read_text(errors="replace")

    def restart(self, broker: int) -> None:
        """Stop and start a broker, and wait until it answers."""
        self.cluster.runtime.stop(broker)
        self.cluster.runtime.start(broker)
        self.cluster.wait(lambda: broker in self.cluster.admin.brokers(), f"broker {broker} to be back")

    def producer(self, **config: str) -> Any:
        """Return a KafkaProducer of strings."""
        strings = f"{SERIALIZATION}.StringSerializer"
        return self.jvm.org.apache.kafka.clients.producer.KafkaProducer(
            self.config({"key.serializer": strings, "value.serializer": strings, "linger.ms": "0", **_dotted(config)})
        )

    def consumer(self, **config: str) -> Any:
        """Return a KafkaConsumer of strings."""
        strings = f"{SERIALIZATION}.StringDeserializer"
        return self.jvm.org.apache.kafka.clients.consumer.KafkaConsumer(
            self.config({"key.deserializer": strings, "value.deserializer": strings, **_dotted(config)})
        )

    def served(self, tp: TopicPartition, offset: int = 0) -> list[str]:
        """Return the keys that a read_committed consumer is delivered from this offset on, until none comes for 10 s.

        A consumer's position stays before the last stable offset where the records up to it were compacted away.
        """
        consumer = self.consumer(
            isolation_level="read_committed", auto_offset_reset="earliest", enable_auto_commit="false"
        )
        try:
            partition = self.jvm.org.apache.kafka.common.TopicPartition(*tp)
            consumer.assign(self.jvm.java.util.List.of(partition))
            consumer.seek(partition, offset)
            keys: list[str] = []
            end = consumer.endOffsets(self.jvm.java.util.List.of(partition)).get(partition)
            until_s = self.cluster.clock.now_s() + SILENCE_S
            while consumer.position(partition) < end and self.cluster.clock.now_s() < until_s:
                records = consumer.poll(self.jvm.java.time.Duration.ofMillis(500)).iterator()
                while records.hasNext():
                    keys.append(records.next().key())
                    until_s = self.cluster.clock.now_s() + SILENCE_S
            return keys
        finally:
            consumer.close()

    def config(self, content: Mapping[str, str]) -> Any:
        """Return the configuration of a client, with the brokers' addresses."""
        converted = self.jvm.java.util.Properties()
        for name, value in {"bootstrap.servers": self.client.bootstrap, **content}.items():
            converted.put(name, value)
        return converted

    def record(self, topic: str, key: str, value: str | None) -> Any:
        """Return a record for a producer."""
        return self.jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, key, value)


def _dotted(config: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in config.items()}


def target_of(version: str) -> Target:
    """Return the target of a version; those older than the harness's oldest are set up as that. Raises `UsageError`."""
    try:
        return find_target(f"kafka-{version}")
    except UsageError:
        if not version.startswith(("3.", "2.8.")):
            raise
        return replace(TARGETS["kafka-3.9"], name=f"kafka-{version}", version=version)


@contextmanager
def booted(
    version: str,
    brokers: tuple[int, ...] = (1,),
    settings: Mapping[str, str] | None = None,
    *,
    with_jars: str = "",
    jvm_flags: tuple[str, ...] = (),
    needs: frozenset[Need] = frozenset(),
) -> Iterator[Bed]:
    """Boot brokers, the first a controller as well; they end with the block. Raises `HarnessError`.

    ``with_jars``: a class path of the clients' JVM in place of the brokers'. ``jvm_flags``: of every broker.
    ``needs``: of links; then brokers have a separate network, which takes root.
    """
    target, java = target_of(version), find_java()
    run_id = f"known-bug-{new_run_id()}"
    count = str(len(brokers))
    factors = {f"{topic}.replication.factor": count for topic in ("offsets.topic", "transaction.state.log")}
    equipment = equip(RuntimeRequest(target, java, lambda *_: None, needs=needs), LOCAL)
    with ExitStack() as owned:
        folder = Path(owned.enter_context(tempfile.TemporaryDirectory(prefix="known-bug-")))
        workspace = owned.enter_context(Workspace(run_id, folder))
        spec = ClusterSpec(
            run_id,
            workspace.path,
            folder / "logs",
            {**SETTINGS, **factors, **(settings or {})},
            brokers,
            controllers=brokers[:1],
            needs=needs,
            jvm_flags=jvm_flags,
        )
        cluster = owned.enter_context(booted_cluster(equipment, spec, settle_s=BOUND_S))
        # Also where no broker answers: some scenarios have one broker, and stop it.
        cluster.tolerated = (OSError, HarnessError)
        client = client_spec(equipment, spec, cluster.runtime, folder / "java.log")
        if with_jars:
            client = replace(client, classpath=with_jars)
        jvm = owned.enter_context(virtual_machine(client, heap="256m"))
        yield Bed(cluster, client, jvm, folder / "logs", workspace.path)
