"""Administrative requests: topics, records, replicas, leaders, sizes of replicas, settings of topics and brokers.

Any broker takes changes, as a KRaft broker forwards them to the controller. But a partition's leader deletes its
records, and only the broker itself describes and changes the settings that it alone has. A broker answers with its own
view of a topic's settings.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from kafka.errors import TopicAlreadyExistsError
from kafka.protocol import admin

from harness.broker_files.copies.selection import listed
from harness.kafka_api import TopicPartition, messages
from harness.kafka_api.messages import Request, acknowledged, numbers_per_topic, per_topic, request

TIMEOUT_MS: Final = 5_000


def create_topics(replicas: Mapping[TopicPartition, Sequence[int]], settings: Mapping[str, str]) -> Request[None]:
    """Create topics, each partition on these replicas, the first of which leads."""
    assigned = (((name, n), {"partition_index": n, "broker_ids": list(ids)}) for (name, n), ids in replicas.items())
    topics = per_topic(assigned, partitions="assignments")
    return _creation([{**topic, "num_partitions": -1, "replication_factor": -1} for topic in topics], settings)


def create_topic(topic: str, replicas: int, settings: Mapping[str, str], partitions: int = 1) -> Request[None]:
    """Create a topic on brokers that the controller chooses, unless it exists."""
    new = {"name": topic, "num_partitions": partitions, "replication_factor": replicas, "assignments": []}
    return _creation([new], settings, accepted=TopicAlreadyExistsError.errno)


def _creation(
    topics: Sequence[Mapping[str, Any]], settings: Mapping[str, str], accepted: int | None = None
) -> Request[None]:
    configs = [{"name": name, "value": value} for name, value in settings.items()]
    return acknowledged(
        admin.CreateTopicsRequest,
        5,
        f"topic {', '.join(topic['name'] for topic in topics)} cannot be created",
        accepted=accepted,
        topics=[{**topic, "configs": configs} for topic in topics],
        timeout_ms=TIMEOUT_MS,
    )


def delete_topic(topic: str, topic_id: UUID | None = None) -> Request[None]:
    """Delete a topic; with its ``topic_id``, a topic that was created again since is not deleted."""
    by_name, by_id = {"topic_names": [topic]}, {"topics": [{"name": None, "topic_id": topic_id}]}
    version, fields = (5, by_name) if topic_id is None else (6, by_id)
    action = f"topic {topic} cannot be deleted"
    return acknowledged(admin.DeleteTopicsRequest, version, action, timeout_ms=TIMEOUT_MS, **fields)


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
        election_type=0,  # the preferred leader
        topic_partitions=numbers_per_topic(partitions, name="topic", partitions="partitions"),
        timeout_ms=TIMEOUT_MS,
    )


def reassign(replicas: Mapping[TopicPartition, Sequence[int]]) -> Request[None]:
    """Assign new replicas; a new order alone changes the preferred leader (KIP-455)."""
    topics = per_topic((tp, {"partition_index": tp[1], "replicas": list(ids)}) for tp, ids in replicas.items())
    action = f"replicas of {listed([f'{name}-{number}' for name, number in replicas])} cannot be reassigned"
    return acknowledged(admin.AlterPartitionReassignmentsRequest, 0, action, timeout_ms=TIMEOUT_MS, topics=topics)


@dataclass(frozen=True)
class Reassignment:
    """The brokers that get a replica of a partition, and those that lose theirs."""

    adding: frozenset[int] = frozenset()
    removing: frozenset[int] = frozenset()


def list_reassignments(partitions: Iterable[TopicPartition]) -> Request[dict[TopicPartition, Reassignment]]:
    """Return the reassignments under way of these partitions (KIP-455). A user needs Describe on the cluster."""

    def decode(answer: Any) -> dict[TopicPartition, Reassignment]:
        messages.raise_for_errors(answer, "reassignments are unknown")
        return {
            tp: Reassignment(frozenset(p.adding_replicas), frozenset(p.removing_replicas))
            for tp, p in messages.partitions_in(answer.topics)
        }

    topics = numbers_per_topic(partitions)
    return request(admin.ListPartitionReassignmentsRequest, 0, decode, timeout_ms=TIMEOUT_MS, topics=topics)


@dataclass(frozen=True)
class LogDirs:
    """The size of each replica's segments. ``error``: the reason why replicas may be missing.

    ``usable_bytes``: free on the fullest directory (KIP-827); None where the broker does not report it.
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
        errors = (why for _, why in messages.errors_in(answer.to_dict()))
        directories = [directory for directory in answer.results if not directory.error_code]
        replicas = (replica for directory in directories for replica in messages.partitions_in(directory.topics))
        usable = min((directory.usable_bytes for directory in directories), default=-1)
        return LogDirs(
            {tp: p.partition_size for tp, p in replicas if not p.is_future_key},
            usable if usable >= 0 else None,
            next(errors, None if answer.results else "it lists no log directory"),
        )

    return request(admin.DescribeLogDirsRequest, version, decode, topics=topics)


TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
EVERY_BROKER: Final = ""
EXPLICIT_SOURCE: Final = {TOPIC_RESOURCE: 1, BROKER_RESOURCE: 2}
"""``DescribeConfigsResponse.ConfigSource``: TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG."""


@dataclass(frozen=True)
class ConfigEntry:
    """The effective value of a setting. ``is_explicit``: the topic or broker itself has a dynamic value."""

    value: str
    is_explicit: bool

    @property
    def explicit(self) -> str | None:
        """The value that the topic or broker itself has; None where the value is inherited."""
        return self.value if self.is_explicit else None


def describe_configs(
    kind: int, names: Iterable[str], settings: Collection[str] | None = None
) -> Request[dict[str, dict[str, ConfigEntry] | str]]:
    """Return settings by topic or broker, or the error's name. ``settings``: names of settings; None for all."""
    keys = None if settings is None else list(settings)
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys} for name in names]

    def decode(answer: Any) -> dict[str, dict[str, ConfigEntry] | str]:
        return {
            result.resource_name: messages.error_name(result.error_code)
            if result.error_code
            else {c.name: ConfigEntry(c.value, c.config_source == EXPLICIT_SOURCE[kind]) for c in result.configs}
            for result in answer.results
        }

    return request(admin.DescribeConfigsRequest, 4, decode, resources=resources)


def alter_configs(kind: int, changes: Mapping[str, Mapping[str, str | None]]) -> Request[dict[str, str]]:
    """Set values by topic or broker, or remove them with None; other settings stay. Return the refusals.

    `EVERY_BROKER` changes the default of all brokers, also of brokers that are down (KIP-226).
    """
    resources = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [
                {"name": setting, "config_operation": 1 if value is None else 0, "value": value}  # DELETE or SET
                for setting, value in values.items()
            ],
        }
        for name, values in changes.items()
    ]
    return request(
        admin.IncrementalAlterConfigsRequest,
        1,
        lambda answer: {
            result.resource_name: result.error_message or messages.error_name(result.error_code)
            for result in answer.responses
            if result.error_code
        },
        resources=resources,
    )


def values_of(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """Return the effective values by setting."""
    return {name: entry.value for name, entry in entries.items()}
