"""Brokers that answer what a repair asks: metadata, settings, folders and reassignments of one partition."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kafka.protocol import admin
from kafka.protocol.metadata import MetadataResponse

from fakes.connections import AnsweringStream
from harness.kafka_api.address import Address
from harness.kafka_api.messages import message
from harness.protect.guard.cluster import PAUSE

TOPIC_ID = UUID(int=1)


@dataclass
class RepairedBrokers:
    """Implements `harness.kafka_api.connection.Dial`; ``asked``: port and message; ``silent``: ports that refuse."""

    silent: set[int] = field(default_factory=set)
    epochs: dict[int, int] = field(default_factory=dict)
    folder_error: int = 0
    listing_error: int = 0
    setting_error: int = 0
    asked: list[tuple[int, Any]] = field(default_factory=list)

    def __call__(self, address: Address, *, timeout_s: float) -> AnsweringStream:
        assert timeout_s > 0
        if address.port in self.silent:
            raise ConnectionRefusedError("refused")
        return AnsweringStream(lambda request: self._answer(address.port, request))

    def _answer(self, port: int, request: Any) -> Any:
        self.asked.append((port, request))
        answers = {
            "Metadata": self._metadata, "DescribeConfigs": self._configs, "DescribeLogDirs": self._folders,
            "ListPartitionReassignments": self._reassignments, "IncrementalAlterConfigs": self._altered,
        }  # fmt: skip
        return answers[type(request).__name__.removesuffix("Request")](port, request)

    def _metadata(self, port: int, request: Any) -> Any:
        assert not request.allow_auto_topic_creation
        partition = {
            "partition_index": 0, "leader_id": 1, "leader_epoch": self.epochs.get(port, 7),
            "replica_nodes": [1, 2, 3], "isr_nodes": [1, 3],
        }  # fmt: skip
        brokers = [{"node_id": n, "host": "b", "port": n} for n in (1, 2, 3)]
        topics = [{"name": "t", "topic_id": TOPIC_ID, "error_code": 0, "partitions": [partition]}]
        return message(MetadataResponse, 10, brokers=brokers, topics=topics, cluster_id="c1")

    def _configs(self, _port: int, request: Any) -> Any:
        """Return the settings of a topic, each of which it has itself except the first."""
        values = {"min.insync.replicas": "2", **PAUSE, "min.cleanable.dirty.ratio": "1.0"}
        (resource,) = request.resources
        source = {2: 1, 4: 2}[resource.resource_type]
        configs = [
            {"name": name, "value": values.get(name, "1"), "config_source": 5 if number == 0 else source}
            for number, name in enumerate(resource.configuration_keys)
        ]
        results = [{"resource_name": resource.resource_name, "error_code": self.setting_error, "configs": configs}]
        return message(admin.DescribeConfigsResponse, 4, results=results)

    def _altered(self, _port: int, request: Any) -> Any:
        (resource,) = request.resources
        refused = {"resource_name": resource.resource_name, "error_code": self.setting_error, "error_message": "no"}
        return message(admin.IncrementalAlterConfigsResponse, 1, responses=[refused])

    def _folders(self, port: int, request: Any) -> Any:
        sizes = {1: 90, 3: 80}
        present = [{"partition_index": 0, "partition_size": sizes[port]}] if port in sizes and request.topics else []
        topics = [{"name": "t", "partitions": present}]
        free = [{"error_code": 0, "topics": topics, "usable_bytes": n} for n in (500, 300)]
        return message(admin.DescribeLogDirsResponse, 4, error_code=self.folder_error, results=free)

    def _reassignments(self, _port: int, request: Any) -> Any:
        (topic,) = request.topics
        ongoing = {"partition_index": 0, "adding_replicas": [2], "removing_replicas": []}
        fields = {"error_message": None, "topics": [{"name": topic.name, "partitions": [ongoing]}]}
        return message(admin.ListPartitionReassignmentsResponse, 0, error_code=self.listing_error, **fields)
