"""Requests to brokers and their answers, as a repair reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import kafka.errors
import pytest

from harness.brokers.protocol.wire import Address, Connection
from harness.errors import HarnessError
from harness.guard.settings import PAUSE
from harness.repair.live import LiveRepairCluster
from harness.repair.state import Entry

NOT_ALLOWED = kafka.errors.ClusterAuthorizationFailedError.errno
TP = ("t", 0)
ENTRY = Entry(TP, "id", (1, 2, 3), 1, (1, 3), (2,))


@dataclass
class Brokers:
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
    def __init__(self, brokers: Brokers, address: Address) -> None:
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


def cluster_of(brokers: Brokers) -> LiveRepairCluster:
    return LiveRepairCluster([Address("b", 9), Address("b", 1)], dial=brokers)


def test_an_observation_has_metadata_settings_folders_and_reassignments() -> None:
    cluster = cluster_of(Brokers(silent={9}))
    seen = cluster.observe([ENTRY])[TP]
    assert not isinstance(seen, str)
    assert (seen.topic_id, seen.leader, seen.leader_epoch, seen.replicas) == ("id", 1, 7, (1, 2, 3))
    assert [sorted(brokers) for brokers in (seen.isr, seen.adding, seen.online)] == [[1, 3], [2], [1, 2, 3]]
    assert (seen.folders_bytes, sorted(seen.answered), seen.is_held) == ({1: 90, 3: 80}, [1, 2, 3], True)
    assert cluster.cluster_id == "c1"
    assert cluster.usable_bytes(2) == 300


@pytest.mark.parametrize(
    ("brokers", "what"),
    [
        (Brokers(epochs={3: 8}), "the brokers' metadata to be the same"),
        (Brokers(silent={3}), "an answer of broker 3"),
        (Brokers(folder_error=NOT_ALLOWED), "the folders of broker 2: ClusterAuthorizationFailedError"),
    ],
)
def test_nothing_is_concluded_where_brokers_differ_or_do_not_answer(brokers: Brokers, what: str) -> None:
    assert cluster_of(brokers).observe([ENTRY])[TP] == what


def test_a_cluster_that_does_not_answer_or_refuses_is_an_error() -> None:
    with pytest.raises(ConnectionError, match="no broker answers"):
        cluster_of(Brokers(silent={1, 9})).observe([ENTRY])
    with pytest.raises(HarnessError, match="reassignments are unknown: ClusterAuthorizationFailedError"):
        cluster_of(Brokers(listing_error=NOT_ALLOWED)).observe([ENTRY])
    with pytest.raises(HarnessError, match="broker 5 is not registered"):
        cluster_of(Brokers()).address(5)
