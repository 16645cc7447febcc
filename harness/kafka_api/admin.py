"""Administrative requests of a run to its cluster, in versions that Kafka 3.9, Kafka 4.4 and Redpanda support."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

from harness.errors import HarnessError, raised_as
from harness.kafka_api import TopicPartition, metadata, transactions
from harness.kafka_api import topics as topic_requests
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ClusterClient, RetryPolicy
from harness.kafka_api.messages import RefusedError, Request, RetriableError
from harness.kafka_api.topics import BROKER_RESOURCE, EVERY_BROKER, TOPIC_RESOURCE

T = TypeVar("T")
CHANGE: Final = RetryPolicy(answer_s=5.0)
"""For requests that a controller carries out, and which any broker answers."""


class Admin:
    """Sends requests to the brokers that ``live_addresses`` returns at that moment.

    Methods raise `HarnessError` where a broker refuses or no broker answers; OSError where one alone could answer.
    """

    def __init__(self, live_addresses: Callable[[], Sequence[Address]]) -> None:
        self.client = ClusterClient(live_addresses)

    def brokers(self) -> set[int]:
        """Return the node ids of the registered, unfenced brokers in the metadata."""
        return set(self._ask_any(metadata.describe_cluster([])).brokers)

    def active_controller(self) -> int | None:
        """Return the node id of the controller that leads the quorum; None while there is none."""
        return self._ask_any(metadata.find_active_controller())

    def partitions(
        self, topics: Sequence[str], at: Address | None = None
    ) -> dict[TopicPartition, metadata.PartitionState]:
        """Return the state of every partition of these topics, without unknown topics, from ``at`` or any broker."""
        return self._ask_any(metadata.describe_cluster(topics), at).partitions

    def ending_transactions(self) -> list[str]:
        """Return the transactional ids with an outcome whose markers are not all written yet, by every live broker.

        EndTxn answers before that; once a transaction is complete, its markers are on every in-sync replica.
        """
        ending: list[str] = []
        for address in self.client.addresses:
            answer = self.client.ask(address, transactions.list_transactions(transactions.ENDING_STATES))
            # A coordinator that is still loading has no answer yet.
            ending += [f"unknown at {address}"] if isinstance(answer, str) else answer
        return ending

    def has_coordinator(self, transactional_id: str) -> bool:
        """Return whether this id has a coordinator; the request creates ``__transaction_state`` if it is missing."""
        try:
            self.client.ask_any(metadata.find_coordinator(transactional_id), CHANGE)
        except (RetriableError, RefusedError):
            return False
        return True

    def create_topics(self, replicas: Mapping[TopicPartition, Sequence[int]], settings: Mapping[str, str]) -> None:
        """Create topics, each partition on its replicas (the first is the preferred leader)."""
        self._ask_any(topic_requests.create_topics(replicas, settings))

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic with one replica of each partition, wherever the cluster puts it."""
        self._ask_any(topic_requests.create_topic(topic, 1, settings, partitions))

    def topic_id(self, topic: str) -> UUID:
        """Return the id that no other topic of this name has (KIP-516). Redpanda may not have the request."""
        state = self._ask_any(metadata.describe_cluster([topic], version=metadata.FIRST_WITH_TOPIC_IDS)).topics[topic]
        if state.topic_id is None:
            raise HarnessError(f"topic {topic} has no id: {state.error}")
        return state.topic_id

    def delete_topic(self, topic: str, topic_id: UUID | None = None) -> None:
        """As `topics.delete_topic`; the topic's metadata go some time later."""
        self._ask_any(topic_requests.delete_topic(topic, topic_id))

    def delete_records(self, leader: Address, partition: TopicPartition, before: int) -> None:
        """Have a partition's leader delete the records below an offset."""
        self.client.ask(leader, topic_requests.delete_records(partition, before), RetryPolicy(answer_s=10.0))

    def reassign(self, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Assign new replicas to partitions; a new order alone changes the preferred leader."""
        self._ask_any(topic_requests.reassign(replicas))

    def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        """Elect preferred leaders. A replica that cannot lead yet is not an error: ask again."""
        self._ask_any(topic_requests.elect_preferred(partitions))

    def alter_topics(self, topics: Sequence[str], settings: Mapping[str, str | None]) -> None:
        """Set topic settings, leaving the others as they are; None removes a setting."""
        self._alter(TOPIC_RESOURCE, dict.fromkeys(topics, settings))

    def alter_brokers(self, settings: Mapping[str, str | None]) -> None:
        """Set dynamic settings of all brokers, also of brokers that are down; None removes a setting."""
        self._alter(BROKER_RESOURCE, {EVERY_BROKER: settings})

    def alter_broker(self, broker: int, address: Address, settings: Mapping[str, str | None]) -> None:
        """Set dynamic settings of this broker alone; None removes a setting."""
        self._alter(BROKER_RESOURCE, {str(broker): settings}, address)

    def topic_settings(self, address: Address, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return each topic's current settings on *this* broker; nothing of a topic that it does not know."""
        return self._settings(address, TOPIC_RESOURCE, topics)

    def broker_settings(self, broker: int, address: Address) -> dict[str, str]:
        """Return the broker's current settings."""
        return self._settings(address, BROKER_RESOURCE, [str(broker)])[str(broker)]

    def _settings(self, address: Address, kind: int, names: Sequence[str]) -> dict[str, dict[str, str]]:
        answers = self.client.ask(address, topic_requests.describe_configs(kind, names))
        return {n: {} if isinstance(answer, str) else topic_requests.values_of(answer) for n, answer in answers.items()}

    def _alter(self, kind: int, changes: Mapping[str, Mapping[str, str | None]], at: Address | None = None) -> None:
        for name, why in self._ask_any(topic_requests.alter_configs(kind, changes), at).items():
            raise HarnessError(f"settings of {name or 'all brokers'} cannot be changed: {why}")

    def _ask_any(self, request: Request[T], at: Address | None = None) -> T:
        if at is not None:
            return self.client.ask(at, request)
        with raised_as(HarnessError, type(request.message).__name__, OSError):
            return self.client.ask_any(request, CHANGE)
