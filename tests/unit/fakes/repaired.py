"""Brokers that answer what a repair asks: metadata, settings, folders and reassignments of one partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from harness.kafka_api.wire import Address, Connection
from harness.protect.guard.settings import PAUSE


@dataclass
class RepairedBrokers:
    """Every broker in turn; to be called in place of `Connection`. ``silent`` brokers do not answer, by port."""

    silent: set[int] = field(default_factory=set)
    epochs: dict[int, int] = field(default_factory=dict)
    folder_error: int = 0
    listing_error: int = 0

    def __call__(self, address: Address, **_timeout_s: float) -> Connection:
        if address.port in self.silent:
            raise ConnectionRefusedError("refused")
        return _Answering(self, address)


class _Answering(Connection):
    def __init__(self, brokers: RepairedBrokers, address: Address) -> None:
        self.brokers, self.address = brokers, address

    def call(self, request: Any) -> Any:
        return getattr(self, type(request).__name__.removesuffix("Request"))(request)

    def close(self) -> None:
        """Nothing is open."""

    def Metadata(self, request: Any) -> Any:  # noqa: N802
        assert not request.allow_auto_topic_creation
        partition = SimpleNamespace(
            partition_index=0, leader_id=1, leader_epoch=self.brokers.epochs.get(self.address.port, 7),
            replica_nodes=[1, 2, 3], isr_nodes=[1, 3],
        )  # fmt: skip
        brokers = [SimpleNamespace(node_id=n, host="b", port=n) for n in (1, 2, 3)]
        topics = [SimpleNamespace(name="t", topic_id="id", error_code=0, partitions=[partition])]
        return SimpleNamespace(brokers=brokers, topics=topics, cluster_id="c1")

    def DescribeConfigs(self, request: Any) -> Any:  # noqa: N802
        values = {"min.insync.replicas": "2", **PAUSE, "min.cleanable.dirty.ratio": "1.0"}
        (resource,) = request.resources
        configs = [SimpleNamespace(name=name, value=values[name]) for name in resource.configuration_keys]
        return SimpleNamespace(results=[SimpleNamespace(resource_name="t", configs=configs)])

    def DescribeLogDirs(self, request: Any) -> Any:  # noqa: N802
        sizes = {1: 90, 3: 80}
        here = self.address.port in sizes and bool(request.topics)
        present = SimpleNamespace(partition_index=0, partition_size=sizes.get(self.address.port), is_future_key=False)
        topics = [SimpleNamespace(name="t", partitions=[present])] if here else []
        free = [SimpleNamespace(error_code=0, topics=topics, usable_bytes=n) for n in (500, 300)]
        return SimpleNamespace(error_code=self.brokers.folder_error, results=free)

    def ListPartitionReassignments(self, request: Any) -> Any:  # noqa: N802
        (topic,) = request.topics
        ongoing = SimpleNamespace(partition_index=0, adding_replicas=[2], removing_replicas=[])
        listed = [SimpleNamespace(name=topic.name, partitions=[ongoing])]
        return SimpleNamespace(error_code=self.brokers.listing_error, error_message=None, topics=listed)
