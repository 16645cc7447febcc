"""A cluster to be audited by a user who may only read and describe. Others come by the inner listener of `secured`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kafka.protocol.admin import ListGroupsRequest
from secured import BOUND_S, BROKERS, PREFIXED, Secured, booted, login_file

from harness.audit.live.broker_reports import replica_statuses
from harness.audit.live.cluster import AuditedCluster, client_of, describe
from harness.clients.librdkafka import CONFIG
from harness.errors import UsageError
from harness.host.clock import RealClock
from harness.kafka_api.address import Address
from harness.kafka_api.admin import Admin
from harness.kafka_api.connection import ask
from harness.kafka_api.fetch import list_log_ends
from harness.kafka_api.messages import request
from harness.kafka_api.metadata import describe_cluster
from harness.kafka_api.security import read_security
from harness.runtimes.local import LocalRuntime

TOPIC, SECOND, HIDDEN = ("audited", 0), ("audited", 1), ("hidden", 0)
USER = "auditor"
KEPT = {
    "cleanup.policy": "compact", "segment.bytes": str(1 << 20), "delete.retention.ms": "600000",
    "min.cleanable.dirty.ratio": "1",
}  # fmt: skip
"""Several segments, which no cleaner changes under the test."""


@dataclass(frozen=True)
class Audited:
    """A running cluster, and who looks at it. ``open_producer`` has a transaction open in partition 0."""

    secured: Secured
    auditor: list[Address]
    open_producer: Producer

    @property
    def runtime(self) -> LocalRuntime:
        return self.secured.runtime

    @property
    def admin(self) -> Admin:
        return self.secured.admin

    @property
    def inside(self) -> list[Address]:
        return self.secured.inside

    def describe(self, *patterns: str) -> AuditedCluster:
        return describe(client_of(self.auditor), patterns or ("audited",))

    def producer(self, **settings: Any) -> Producer:
        return Producer({**CONFIG, "bootstrap.servers": ",".join(map(str, self.inside)), **settings})

    def write_plainly(self, partition: tuple[str, int], records: int = 1500) -> None:
        producer = self.producer()
        for number in range(records):
            producer.produce(partition[0], b"v" * 2000, str(number), partition[1])
        producer.flush(BOUND_S)

    def wait_for_replication(self) -> None:
        """Wait until every replica knows that all is replicated."""
        clock = RealClock()

        def is_level() -> bool:
            try:
                clusters = [describe(client_of([address], clock), ("audited",)) for address in self.auditor]
            except UsageError:
                return False  # ACLs reach brokers one after the other
            if any(cluster.notes for cluster in clusters):
                return False  # and one ACL after the other
            statuses = replica_statuses(clusters[0]).by_partition
            positions = [
                [(one.log_end, one.high_watermark) for one in statuses.get(tp, {}).values()] for tp in (TOPIC, SECOND)
            ]
            return all(len(of_one) == len(BROKERS) and len({end for pair in of_one for end in pair}) == 1
                       for of_one in positions)  # fmt: skip

        clock.wait_until(is_level, BOUND_S, "the replicas to be level")

    def everything(self) -> dict[str, Any]:
        """Return what an audit could have changed, as an administrator sees it on every broker."""
        broker = self.inside[0]
        groups = ask(broker, request(ListGroupsRequest, 3, lambda answer: [group.group_id for group in answer.groups]))
        topics = list(ask(broker, describe_cluster(None)).topics)
        return {
            "topics": sorted(topics),
            "states": [self.admin.partitions(topics, at=address) for address in self.inside],
            "settings": [self.admin.topic_settings(address, topics) for address in self.inside],
            "brokers": [self.admin.broker_settings(b, a) for b, a in zip(BROKERS, self.inside, strict=True)],
            "groups": groups,
            "ends": [ask(address, list_log_ends([TOPIC, SECOND])) for address in self.inside],
        }


@contextmanager
def running(target: str, folder: Path) -> Iterator[Audited]:
    """Boot a cluster, give the auditor its rights, and write some megabytes and transactions of both ends."""
    login = login_file(folder, USER, "secret")
    with booted(target, folder, login, {}) as secured:
        secured.admin.create_topics({TOPIC: (1, 2, 3), SECOND: (2, 3, 1)}, KEPT)
        secured.admin.create_topics({HIDDEN: (1, 2, 3)}, {})
        # All that the auditor may do; who may read may describe.
        secured.allow(USER, [("topic", "audited", operation) for operation in ("Read", "DescribeConfigs")], PREFIXED)
        secured.allow(USER, [("cluster", "kafka-cluster", "Describe"), ("transactional-id", "*", "Describe")])
        auditor = [replace(secured.runtime.address(broker), security=read_security(login)) for broker in BROKERS]
        servers = ",".join(map(str, secured.inside))
        settings = {**CONFIG, "bootstrap.servers": servers, "transaction.timeout.ms": 600_000}
        filler, open_producer = (Producer({**settings, "transactional.id": name}) for name in ("filler", "open"))
        for producer in (filler, open_producer):
            producer.init_transactions(BOUND_S)
        for number in range(6):
            filler.begin_transaction()
            for record in range(400):
                topic, partition = (TOPIC, SECOND)[record % 2]
                filler.produce(topic, f"{number}-{record}", b"v" * 2000, partition)
            filler.flush(BOUND_S)
            (filler.abort_transaction if number % 3 == 1 else filler.commit_transaction)(BOUND_S)
        open_producer.begin_transaction()
        open_producer.produce(TOPIC[0], "undecided", b"v", TOPIC[1])
        open_producer.flush(BOUND_S)
        audited = Audited(secured, auditor, open_producer)
        audited.wait_for_replication()
        yield audited
