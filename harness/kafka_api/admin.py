"""Administrative requests to a cluster: topics, leaders, replica sets, settings.

Every request goes to any broker that answers; a KRaft broker forwards the controller's requests to the controller.
Kafka 3.9, Kafka 4.4 and Redpanda all support the request versions used here, where they have the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

from harness.errors import HarnessError
from harness.kafka_api import wire

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from kafka.protocol.api_message import ApiMessage

    from harness.kafka_api.replica import OpenTransaction

TIMEOUT_MS = 5_000
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
EVERY_BROKER = ""
METADATA_TOPIC = "__cluster_metadata"
SET_CONFIG, DELETE_CONFIG = 0, 1
PREFERRED_ELECTION = 0
FIRST_WITH_TOPIC_IDS = 10
"""Version of Metadata."""

NO_MARKER_YET = 0
"""The coordinator epoch where DescribeProducers has no marker, as in `AbortTransactionHandler`."""

ENDING_STATES = ["PrepareCommit", "PrepareAbort"]


@dataclass(frozen=True)
class PartitionState:
    """One partition as a broker's metadata has it; ``leader`` is -1 while there is no leader.

    ``leader_epoch``: None where it is unknown.
    """

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int | None = None


class Admin:
    """Administrative requests to the brokers that ``live_addresses`` returns at that moment."""

    def __init__(self, live_addresses: Callable[[], Sequence[wire.Address]]) -> None:
        """Store how to find live brokers; nothing is connected yet."""
        self._live_addresses = live_addresses

    def brokers(self) -> set[int]:
        """Return the node ids of the registered, unfenced brokers in the metadata."""
        answer = self._call(metadata_request([]))
        return {broker.node_id for broker in answer.brokers}

    def active_controller(self) -> int | None:
        """Return the node id of the controller that leads the quorum (KIP-595); None while there is none."""
        Topic = DescribeQuorumRequest.TopicData  # noqa: N806
        metadata = Topic(topic_name=METADATA_TOPIC, partitions=[Topic.PartitionData(partition_index=0)])
        answer = self._call(DescribeQuorumRequest[0](topics=[metadata]))
        leaders = [p.leader_id for topic in answer.topics for p in topic.partitions if p.error_code == 0]
        return leaders[0] if leaders and leaders[0] >= 0 else None

    def partitions(
        self, topics: Sequence[str], at: wire.Address | None = None
    ) -> dict[tuple[str, int], PartitionState]:
        """Return the state of every partition of these topics; unknown topics are left out.

        ``at``: the broker to ask, else the first that answers.
        """
        request = metadata_request(topics)
        answer = self._call(request) if at is None else wire.call(at, request)
        return {
            (topic.name, p.partition_index): PartitionState(
                p.leader_id, tuple(p.replica_nodes), tuple(p.isr_nodes), p.leader_epoch
            )
            for topic in answer.topics
            if topic.error_code == 0
            for p in topic.partitions
        }

    def ending_transactions(self) -> list[str]:
        """Return the transactional ids whose end is decided and whose markers are not all written yet (KIP-664).

        EndTxn answers before that; once a transaction is complete, its markers are on every in-sync replica. Asks every
        live broker, as each lists the transactions that it coordinates. Raises OSError where a broker is silent.
        """
        ending = []
        for address in self._live_addresses():
            answer = wire.call(address, ListTransactionsRequest[0](state_filters=ENDING_STATES, producer_id_filters=[]))
            # A coordinator that is still loading has no answer yet.
            ending += [f"unknown at {address}"] if answer.error_code else []
            ending += [state.transactional_id for state in answer.transaction_states]
        return ending

    def has_coordinator(self, transactional_id: str) -> bool:
        """Whether this id has a coordinator by now; the request creates ``__transaction_state`` where it is missing."""
        request = FindCoordinatorRequest[3](key=transactional_id, key_type=CoordinatorType.TRANSACTION)
        return not self._call(request).error_code

    def create_topics(self, replicas: Mapping[tuple[str, int], Sequence[int]], settings: Mapping[str, str]) -> None:
        """Create topics, each partition on its given replicas (the first is the preferred leader).

        Raises `HarnessError` with the broker's message where the broker refuses, for example an unknown setting.
        """
        Topic = CreateTopicsRequest.CreatableTopic  # noqa: N806
        configs = [Topic.CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
        assignments: dict[str, list[Any]] = {}
        for (name, partition), brokers in replicas.items():
            one = Topic.CreatableReplicaAssignment(partition_index=partition, broker_ids=list(brokers))
            assignments.setdefault(name, []).append(one)
        wanted = [
            Topic(name=name, num_partitions=-1, replication_factor=-1, assignments=assigned, configs=configs)
            for name, assigned in assignments.items()
        ]
        answer = self._call(CreateTopicsRequest[5](topics=wanted, timeout_ms=TIMEOUT_MS, validate_only=False))
        for topic in answer.topics:
            _raise_for(topic.error_code, topic.error_message, f"topic {topic.name} cannot be created")

    def topic_id(self, topic: str) -> UUID:
        """Return the id of a topic, which no other topic of its name has (KIP-516).

        Raises `HarnessError` where the broker that answers does not know it. Redpanda may not have the request.
        """
        (found,) = self._call(metadata_request([topic], version=FIRST_WITH_TOPIC_IDS)).topics
        _raise_for(found.error_code, None, f"topic {topic} has no id")
        topic_id: UUID = found.topic_id
        return topic_id

    def delete_topic(self, topic: str, topic_id: UUID | None = None) -> None:
        """Delete a topic; its metadata go some time later. Raises `HarnessError` where the broker refuses.

        With its ``topic_id``, a topic that was created again since is not deleted.
        """
        request = (
            DeleteTopicsRequest[5](topic_names=[topic], timeout_ms=TIMEOUT_MS)
            if topic_id is None
            else DeleteTopicsRequest[6](
                topics=[DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=TIMEOUT_MS
            )
        )
        for result in self._call(request).responses:
            _raise_for(result.error_code, result.error_message, f"topic {topic} cannot be deleted")

    def delete_records(self, leader: wire.Address, partition: tuple[str, int], before: int) -> None:
        """Have a partition's leader delete the records below an offset (KIP-107).

        Raises `HarnessError` where the broker refuses, OSError where it does not answer.
        """
        Topic = DeleteRecordsRequest.DeleteRecordsTopic  # noqa: N806
        name, index = partition
        part = Topic.DeleteRecordsPartition(partition_index=index, offset=before)
        request = DeleteRecordsRequest[1](topics=[Topic(name=name, partitions=[part])], timeout_ms=TIMEOUT_MS)
        answer = wire.call(leader, request, timeout_s=2 * TIMEOUT_MS / 1000)
        for topic in answer.topics:
            for p in topic.partitions:
                _raise_for(p.error_code, None, f"records of {name}-{index} cannot be deleted")

    def reassign(self, replicas: Mapping[tuple[str, int], Sequence[int]]) -> None:
        """Give partitions new replica lists; a new order alone changes the preferred leader (KIP-455)."""
        Topic = AlterPartitionReassignmentsRequest.ReassignableTopic  # noqa: N806
        wanted = [
            Topic(
                name=name,
                partitions=[Topic.ReassignablePartition(partition_index=index, replicas=list(brokers))],
            )
            for (name, index), brokers in replicas.items()
        ]
        answer = self._call(AlterPartitionReassignmentsRequest[0](timeout_ms=TIMEOUT_MS, topics=wanted))
        _raise_for(answer.error_code, answer.error_message, "replicas cannot be reassigned")
        for topic in answer.responses:
            for p in topic.partitions:
                _raise_for(p.error_code, p.error_message, f"{topic.name}-{p.partition_index} cannot be reassigned")

    def elect_preferred(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Ask for an election of the preferred leader (KIP-460). If it cannot lead yet, that is no error: ask again."""
        Topic = ElectLeadersRequest.TopicPartitions  # noqa: N806
        wanted = [Topic(topic=name, partitions=[index]) for name, index in partitions]
        self._call(
            ElectLeadersRequest[2](election_type=PREFERRED_ELECTION, topic_partitions=wanted, timeout_ms=TIMEOUT_MS)
        )

    def alter_topics(self, topics: Sequence[str], settings: Mapping[str, str | None]) -> None:
        """Set topic settings, leaving the others as they are (KIP-339); None removes a setting."""
        self._alter(TOPIC_RESOURCE, topics, settings)

    def alter_brokers(self, settings: Mapping[str, str | None]) -> None:
        """Set dynamic settings of all brokers, also of those that are down (KIP-226); None removes a setting."""
        self._alter(BROKER_RESOURCE, [EVERY_BROKER], settings)

    def alter_broker(self, broker: int, address: wire.Address, settings: Mapping[str, str | None]) -> None:
        """Set dynamic settings of this broker alone; None removes a setting."""
        self._alter(BROKER_RESOURCE, [str(broker)], settings, at=address)

    def _alter(
        self, kind: int, names: Sequence[str], settings: Mapping[str, str | None], at: wire.Address | None = None
    ) -> None:
        Resource = IncrementalAlterConfigsRequest.AlterConfigsResource  # noqa: N806
        configs = [
            Resource.AlterableConfig(
                name=name, config_operation=DELETE_CONFIG if value is None else SET_CONFIG, value=value
            )
            for name, value in settings.items()
        ]
        wanted = [Resource(resource_type=kind, resource_name=name, configs=configs) for name in names]
        request = IncrementalAlterConfigsRequest[1](resources=wanted, validate_only=False)
        answer = self._call(request) if at is None else wire.call(at, request)
        for result in answer.responses:
            action = f"settings of {result.resource_name or 'all brokers'} cannot be changed"
            _raise_for(result.error_code, result.error_message, action)

    def abort_transaction(self, leader: wire.Address, partition: tuple[str, int], transaction: OpenTransaction) -> None:
        """Make a partition's leader write an ABORT marker, as ``kafka-transactions.sh abort`` does (KIP-664).

        Raises `HarnessError` with the broker's reason where the broker refuses.
        """
        Marker = WriteTxnMarkersRequest.WritableTxnMarker  # noqa: N806
        name, index = partition
        marker = Marker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            transaction_result=False,
            topics=[Marker.WritableTxnMarkerTopic(name=name, partition_indexes=[index])],
            coordinator_epoch=NO_MARKER_YET,
        )
        answer = wire.call(leader, WriteTxnMarkersRequest[1](markers=[marker]))
        for result in answer.markers:
            for topic in result.topics:
                for p in topic.partitions:
                    _raise_for(p.error_code, None, f"the transaction in {name}-{index} cannot be aborted")

    def topic_settings(self, address: wire.Address, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return each topic's current settings on *this* broker."""
        return _describe(address, TOPIC_RESOURCE, topics)

    def broker_settings(self, broker: int, address: wire.Address) -> dict[str, str]:
        """Return the broker's current settings."""
        return _describe(address, BROKER_RESOURCE, [str(broker)])[str(broker)]

    def _call(self, request: ApiMessage) -> Any:
        """Send to the first live broker that answers. Raises `HarnessError` when none does."""
        last: OSError | None = None
        for address in self._live_addresses():
            try:
                return wire.call(address, request, timeout_s=TIMEOUT_MS / 1000)
            except OSError as error:
                last = error
        raise HarnessError(f"no broker answers {type(request).__name__}: {last}")


def metadata_request(topics: Sequence[str] | None, *, version: int = 8) -> ApiMessage:
    """Return a Metadata request for these topics, which creates none; for every topic where ``topics`` is None.

    With no topic it returns the brokers only.
    """
    Topic = MetadataRequest.MetadataRequestTopic  # noqa: N806
    return MetadataRequest[version](
        topics=None if topics is None else [Topic(name=topic) for topic in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


def _describe(address: wire.Address, kind: int, names: Sequence[str]) -> dict[str, dict[str, str]]:
    Resource = DescribeConfigsRequest.DescribeConfigsResource  # noqa: N806
    wanted = [Resource(resource_type=kind, resource_name=name, configuration_keys=None) for name in names]
    answer = wire.call(address, DescribeConfigsRequest[4](resources=wanted))
    return {result.resource_name: {c.name: c.value for c in result.configs} for result in answer.results}


def _raise_for(code: int, message: str | None, action: str) -> None:
    if code:
        raise HarnessError(f"{action}: {message or wire.error_name(code)}")
