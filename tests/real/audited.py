"""A cluster to be audited by a user who may only read and describe.

Brokers log in to each other without a name, and that nobody may do everything; the auditor comes by the clients'
listener, where ACLs hold.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kafka.protocol.admin import CreateAclsRequest, ListGroupsRequest
from local_cluster import local_cluster

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
from harness.schedules.timers import FAST

BOUND_S = 60.0
BROKERS = (1, 2, 3)
TOPIC, SECOND = ("audited", 0), ("audited", 1)
LOGIN = "auditor.properties"
HIDDEN = ("hidden", 0)
AUTHORIZED = {
    **FAST.broker,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
KEPT = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "delete.retention.ms": "600000",
    "min.cleanable.dirty.ratio": "1",
}
"""Several segments, which no cleaner changes under the test."""
TOPICS, CLUSTER, TRANSACTIONAL_IDS = 2, 4, 5
READ, DESCRIBE, DESCRIBE_CONFIGS = 3, 8, 10
PREFIXED, ALLOW = 4, 3
LITERAL = 3
MAY = (
    (TOPICS, "audited", PREFIXED, READ),
    (TOPICS, "audited", PREFIXED, DESCRIBE_CONFIGS),
    (CLUSTER, "kafka-cluster", LITERAL, DESCRIBE),
    (TRANSACTIONAL_IDS, "*", LITERAL, DESCRIBE),
)
"""All that the auditor may do; who may read may describe."""


@dataclass(frozen=True)
class Audited:
    """A running cluster, and who looks at it. ``open_producer`` has a transaction open in partition 0."""

    runtime: LocalRuntime
    admin: Admin
    auditor: list[Address]
    open_producer: Producer
    inside: tuple[Address, ...]
    work: Path

    def describe(self, *patterns: str) -> AuditedCluster:
        return describe(client_of(self.auditor), patterns or ("audited",))


@contextmanager
def running(target: str, folder: Path) -> Iterator[Audited]:
    """Boot a cluster whose clients' listener has ACLs, fill it, and end it."""
    (folder / LOGIN).write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="auditor" password="secret";\n'
    )
    security = read_security(folder / LOGIN)
    with local_cluster(target, folder, AUTHORIZED, security=security) as cluster:
        runtime = cluster.runtime
        assert isinstance(runtime, LocalRuntime)
        inside = tuple(runtime._inner[broker] for broker in BROKERS)
        admin = Admin(lambda: inside)
        runtime.start_cluster()
        cluster.wait(lambda: admin.brokers() == set(BROKERS), "the brokers to register")
        fill(admin, inside)
        open_producer = hold_open(",".join(map(str, inside)))
        auditor = [replace(runtime.address(broker), security=security) for broker in BROKERS]
        wait_for_replication(auditor)
        yield Audited(runtime, admin, auditor, open_producer, inside, folder)


def fill(admin: Admin, inside: Sequence[Address]) -> None:
    """Make the topics, give the auditor its rights, and write some megabytes and transactions of both ends."""
    admin.create_topics({TOPIC: (1, 2, 3), SECOND: (2, 3, 1)}, KEPT)
    admin.create_topics({HIDDEN: (1, 2, 3)}, {})
    may(inside[0], "auditor", MAY)
    bootstrap = ",".join(map(str, inside))
    producer = Producer({**CONFIG, "bootstrap.servers": bootstrap, "transactional.id": "filler"})
    producer.init_transactions(BOUND_S)
    for number in range(6):
        producer.begin_transaction()
        for record in range(400):
            topic, partition = (TOPIC, SECOND)[record % 2]
            producer.produce(topic, f"{number}-{record}", b"v" * 2000, partition)
        producer.flush(BOUND_S)
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(BOUND_S)


def may(broker: Address, user: str, rights: Iterable[tuple[int, str, int, int]]) -> None:
    """Allow a user the listed operations: type of the resource, its name, type of the pattern, operation."""
    creations = [
        {"resource_type": kind, "resource_name": name, "resource_pattern_type": pattern, "principal": f"User:{user}",
         "host": "*", "operation": operation, "permission_type": ALLOW}
        for kind, name, pattern, operation in rights
    ]  # fmt: skip
    creating = request(CreateAclsRequest, 3, lambda answer: [r.error_code for r in answer.results], creations=creations)
    assert ask(broker, creating) == [0] * len(creations)


def write_plainly(audited: Audited, partition: tuple[str, int], records: int = 1500) -> None:
    producer = Producer({**CONFIG, "bootstrap.servers": ",".join(map(str, audited.inside))})
    for number in range(records):
        producer.produce(partition[0], str(number), b"v" * 2000, partition[1])
    producer.flush(BOUND_S)


def hold_open(bootstrap: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": "open", "transaction.timeout.ms": 600_000}
    producer = Producer({**CONFIG, **settings})
    producer.init_transactions(BOUND_S)
    producer.begin_transaction()
    producer.produce(TOPIC[0], "undecided", b"v", TOPIC[1])
    producer.flush(BOUND_S)
    return producer


def wait_for_replication(auditor: list[Address]) -> None:
    """Wait until every replica knows that all is replicated."""
    clock = RealClock()

    def is_level() -> bool:
        try:
            clusters = [describe(client_of([address], clock), ("audited",)) for address in auditor]
        except UsageError:
            return False  # ACLs reach brokers one after the other
        if any(cluster.notes for cluster in clusters):
            return False  # and one ACL after the other
        statuses = replica_statuses(clusters[0]).by_partition
        ends = {tp: {(s.log_end, s.high_watermark) for s in statuses.get(tp, {}).values()} for tp in (TOPIC, SECOND)}
        seen = all(len(statuses.get(tp, {})) == len(BROKERS) for tp in ends)
        return seen and all(len(positions) == 1 and len(set(*positions)) == 1 for positions in ends.values())

    clock.wait_until(is_level, BOUND_S, "the replicas to be level")


def everything(audited: Audited) -> dict[str, Any]:
    """Return what an audit could have changed, as an administrator sees it on every broker."""
    broker = audited.inside[0]
    groups = ask(broker, request(ListGroupsRequest, 3, lambda answer: [group.group_id for group in answer.groups]))
    topics = list(ask(broker, describe_cluster(None)).topics)
    return {
        "topics": sorted(topics),
        "states": [audited.admin.partitions(topics, at=address) for address in audited.inside],
        "settings": [audited.admin.topic_settings(address, topics) for address in audited.inside],
        "brokers": [audited.admin.broker_settings(b, a) for b, a in zip(BROKERS, audited.inside, strict=True)],
        "groups": groups,
        "ends": [ask(address, list_log_ends([TOPIC, SECOND])) for address in audited.inside],
    }
