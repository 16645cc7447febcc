"""The state of a cluster by Metadata, in the view of one broker, which may be old. Requests create no topic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin import DescribeQuorumRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest

from harness.broker_files.internal_topics.decode import CLUSTER_METADATA
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.messages import Request, error_name, raise_for_errors, request

FIRST_WITH_TOPIC_IDS: Final = 10
WITHOUT_TOPIC_IDS: Final = 8
VERSIONS: Final = (FIRST_WITH_TOPIC_IDS, WITHOUT_TOPIC_IDS)
"""Versions of Metadata. Redpanda may not have the first."""


@dataclass(frozen=True)
class PartitionState:
    """One partition in a broker's metadata. ``leader``: -1 without a leader. ``isr``: in ascending order."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int | None = None


@dataclass(frozen=True)
class TopicState:
    """``partitions`` by number. ``topic_id``: None unless it was asked for. ``error``: why there are no partitions."""

    name: str
    partitions: Mapping[int, PartitionState]
    topic_id: UUID | None = None
    error: str | None = None


@dataclass(frozen=True)
class ClusterState:
    """A cluster in one broker's metadata. ``brokers``: the addresses of registered, unfenced brokers by node id."""

    cluster_id: str
    brokers: Mapping[int, Address]
    topics: Mapping[str, TopicState]

    @property
    def partitions(self) -> dict[TopicPartition, PartitionState]:
        """Every partition of every topic."""
        return {(topic.name, n): state for topic in self.topics.values() for n, state in topic.partitions.items()}

    @property
    def replicas_by_broker(self) -> dict[int, list[TopicPartition]]:
        """The partitions of which each broker is assigned a replica, also for brokers that are down."""
        replicas_by_broker: dict[int, list[TopicPartition]] = {}
        for tp, state in sorted(self.partitions.items()):
            for broker in state.replicas:
                replicas_by_broker.setdefault(broker, []).append(tp)
        return replicas_by_broker


def describe_cluster(topics: Iterable[str] | None, *, version: int = WITHOUT_TOPIC_IDS) -> Request[ClusterState]:
    """Return these topics, every topic where ``topics`` is None, and the brokers."""
    names = None if topics is None else [{"name": topic} for topic in topics]

    def decode(answer: Any) -> ClusterState:
        addresses = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        states = {topic.name: _topic(topic) for topic in answer.topics}
        return ClusterState(answer.cluster_id or "", dict(sorted(addresses.items())), dict(sorted(states.items())))

    return request(MetadataRequest, version, decode, topics=names, allow_auto_topic_creation=False)


def _topic(topic: Any) -> TopicState:
    if topic.error_code:
        return TopicState(topic.name, {}, error=error_name(topic.error_code))
    partitions = {
        p.partition_index: PartitionState(
            p.leader_id, tuple(p.replica_nodes), tuple(sorted(p.isr_nodes)), p.leader_epoch
        )
        for p in topic.partitions
    }
    return TopicState(topic.name, dict(sorted(partitions.items())), topic.topic_id)


def find_active_controller() -> Request[int | None]:
    """Return the controller that leads the quorum (KIP-595); None while there is none."""
    topics = [{"topic_name": CLUSTER_METADATA, "partitions": [{"partition_index": 0}]}]

    def decode(answer: Any) -> int | None:
        leaders = [p.leader_id for topic in answer.topics for p in topic.partitions if not p.error_code]
        return leaders[0] if leaders and leaders[0] >= 0 else None

    return request(DescribeQuorumRequest, 0, decode, topics=topics)


def find_coordinator(key: str, kind: CoordinatorType = CoordinatorType.TRANSACTION) -> Request[int]:
    """Return the coordinator of a transactional id, or of a group. Raises `RetriableError` where none is known yet.

    Creates a missing ``__transaction_state`` or ``__consumer_offsets``.
    """

    def decode(answer: Any) -> int:
        raise_for_errors(answer, f"the coordinator of {key}")
        return int(answer.node_id)

    return request(FindCoordinatorRequest, 3, decode, key=key, key_type=kind)
