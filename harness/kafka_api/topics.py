"""Changes of topics: creation, deletion of topics and records, replicas, leaders; and the sizes of replicas.

Any broker takes these requests, except that a partition's leader deletes its records: a KRaft broker forwards them to
the controller.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from kafka.protocol import admin

from harness.kafka_api import TopicPartition
from harness.kafka_api.messages import (
    Request,
    acknowledged,
    error_codes,
    error_name,
    numbers_per_topic,
    partitions_in,
    per_topic,
    raise_if_refused,
    refusal,
    request,
)

TIMEOUT_MS: Final = 5_000
PREFERRED_ELECTION: Final = 0
ALREADY_EXISTS: Final = 36


def create_topics(
    replicas: Mapping[TopicPartition, Sequence[int]], settings: Mapping[str, str]
) -> Request[dict[str, str]]:
    """Create topics, each partition on these replicas, the first of which leads. Return the refusals by topic."""
    configs = [{"name": name, "value": value} for name, value in settings.items()]
    topics = per_topic(
        (((name, n), {"partition_index": n, "broker_ids": list(brokers)}) for (name, n), brokers in replicas.items()),
        partitions="assignments",
    )
    return request(
        admin.CreateTopicsRequest,
        5,
        lambda answer: {topic.name: why for topic in answer.topics if (why := refusal(topic))},
        topics=[{**topic, "num_partitions": -1, "replication_factor": -1, "configs": configs} for topic in topics],
        timeout_ms=TIMEOUT_MS,
    )


def create_topic(topic: str, replicas: int, settings: Mapping[str, str], partitions: int = 1) -> Request[None]:
    """Create a topic on brokers that the controller chooses, unless it exists."""

    def decode(answer: Any) -> None:
        refused = [result for result in answer.topics if result.error_code != ALREADY_EXISTS]
        raise_if_refused(refused, f"topic {topic} cannot be created")

    configs = [{"name": name, "value": value} for name, value in settings.items()]
    new = {"name": topic, "num_partitions": partitions, "replication_factor": replicas}
    return request(
        admin.CreateTopicsRequest,
        5,
        decode,
        topics=[{**new, "assignments": [], "configs": configs}],
        timeout_ms=TIMEOUT_MS,
    )


def delete_topic(topic: str, topic_id: UUID | None = None) -> Request[None]:
    """Delete a topic; with its ``topic_id``, a topic that was created again since is not deleted."""

    def decode(answer: Any) -> None:
        raise_if_refused(answer.responses, f"topic {topic} cannot be deleted")

    if topic_id is None:
        return request(admin.DeleteTopicsRequest, 5, decode, topic_names=[topic], timeout_ms=TIMEOUT_MS)
    topics = [{"name": None, "topic_id": topic_id}]
    return request(admin.DeleteTopicsRequest, 6, decode, topics=topics, timeout_ms=TIMEOUT_MS)


def delete_records(partition: TopicPartition, before: int) -> Request[None]:
    """Delete the records below an offset (KIP-107). For the partition's leader."""
    name, number = partition
    action = f"records of {name}-{number} cannot be deleted"
    topics = per_topic([(partition, {"partition_index": number, "offset": before})])
    return acknowledged(admin.DeleteRecordsRequest, 1, action, topics=topics, timeout_ms=TIMEOUT_MS)


def elect_preferred(partitions: Iterable[TopicPartition]) -> Request[None]:
    """Elect the preferred leaders (KIP-460). A replica that cannot lead yet is not an error: ask again."""
    return request(
        admin.ElectLeadersRequest,
        2,
        lambda _: None,
        election_type=PREFERRED_ELECTION,
        topic_partitions=numbers_per_topic(partitions, name="topic", partitions="partitions"),
        timeout_ms=TIMEOUT_MS,
    )


def reassign(replicas: Mapping[TopicPartition, Sequence[int]]) -> Request[None]:
    """Assign new replicas; a new order alone changes the preferred leader (KIP-455)."""

    def decode(answer: Any) -> None:
        raise_if_refused([answer], "replicas cannot be reassigned")
        for (name, number), p in partitions_in(answer.responses):
            raise_if_refused([p], f"{name}-{number} cannot be reassigned")

    topics = per_topic((tp, {"partition_index": tp[1], "replicas": list(ids)}) for tp, ids in replicas.items())
    return request(admin.AlterPartitionReassignmentsRequest, 0, decode, timeout_ms=TIMEOUT_MS, topics=topics)


@dataclass(frozen=True)
class Reassignment:
    """The brokers that get a replica of a partition, and those that lose theirs."""

    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()


def list_reassignments(partitions: Iterable[TopicPartition]) -> Request[dict[TopicPartition, Reassignment]]:
    """Return the reassignments under way of these partitions (KIP-455). A user needs Describe on the cluster."""

    def decode(answer: Any) -> dict[TopicPartition, Reassignment]:
        raise_if_refused([answer], "reassignments are unknown")
        return {
            tp: Reassignment(frozenset(p.adding_replicas), frozenset(p.removing_replicas))
            for tp, p in partitions_in(answer.topics)
        }

    topics = numbers_per_topic(partitions)
    return request(admin.ListPartitionReassignmentsRequest, 0, decode, timeout_ms=TIMEOUT_MS, topics=topics)


@dataclass(frozen=True)
class LogDirs:
    """The log directories of a broker. ``sizes_bytes``: of the segments of each replica.

    ``usable_bytes``: free on the fullest directory (KIP-827); None where the broker does not report it. ``error``: why
    replicas may be missing.
    """

    sizes_bytes: Mapping[TopicPartition, int]
    usable_bytes: int | None = None
    error: str | None = None


def describe_log_dirs(partitions: Iterable[TopicPartition], *, version: int = 1) -> Request[LogDirs]:
    """Return the sizes of these replicas (KIP-113). A user needs Describe on the cluster.

    A broker that refuses lists no directory; from version 3 on it says why. From version 4 on, it reports free space.
    """
    topics = numbers_per_topic(partitions, name="topic", partitions="partitions")

    def decode(answer: Any) -> LogDirs:
        errors = map(error_name, error_codes(answer.to_dict()))
        directories = [directory for directory in answer.results if not directory.error_code]
        replicas = (replica for directory in directories for replica in partitions_in(directory.topics))
        usable = min((directory.usable_bytes for directory in directories), default=-1)
        return LogDirs(
            {tp: p.partition_size for tp, p in replicas if not p.is_future_key},
            usable if usable >= 0 else None,
            next(errors, None if answer.results else "it lists no log directory"),
        )

    return request(admin.DescribeLogDirsRequest, version, decode, topics=topics)
