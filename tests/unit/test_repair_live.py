"""Requests to brokers and their answers, as a repair reads them."""

from __future__ import annotations

import kafka.errors
import pytest
from fakes.repaired import TOPIC_ID, RepairedBrokers

from harness.errors import HarnessError
from harness.kafka_api.address import Address
from harness.protect.repair.channel import BROKER, TOPIC
from harness.protect.repair.live import LiveRepairCluster
from harness.protect.repair.steps import PartitionRepair

NOT_ALLOWED = kafka.errors.ClusterAuthorizationFailedError.errno
TP = ("t", 0)
ENTRY = PartitionRepair(TP, str(TOPIC_ID), (1, 2, 3), 1, (1, 3), (2,))


def cluster_of(brokers: RepairedBrokers) -> LiveRepairCluster:
    return LiveRepairCluster([Address("b", 9), Address("b", 1)], dial=brokers)


def test_an_observation_has_metadata_settings_folders_and_reassignments() -> None:
    cluster = cluster_of(RepairedBrokers(silent={9}))
    observed = cluster.observe([ENTRY])[TP]
    assert not isinstance(observed, str)
    assert (observed.topic_id, observed.leader, observed.leader_epoch, observed.replicas) == (
        str(TOPIC_ID),
        1,
        7,
        (1, 2, 3),
    )
    assert [sorted(brokers) for brokers in (observed.isr, observed.adding, observed.online)] == [[1, 3], [2], [1, 2, 3]]
    assert (observed.folders_bytes, sorted(observed.answered), observed.is_held) == ({1: 90, 3: 80}, [1, 2, 3], True)
    assert cluster.cluster_id == "c1"
    assert cluster.usable_bytes(2) == 300


@pytest.mark.parametrize(
    ("brokers", "condition"),
    [
        (RepairedBrokers(epochs={3: 8}), "the brokers' metadata to be the same"),
        (RepairedBrokers(silent={3}), "an answer of broker 3"),
        (RepairedBrokers(folder_error=NOT_ALLOWED), "the folders of broker 2: ClusterAuthorizationFailedError"),
    ],
)
def test_nothing_is_concluded_where_brokers_differ_or_do_not_answer(brokers: RepairedBrokers, condition: str) -> None:
    assert cluster_of(brokers).observe([ENTRY])[TP] == condition


def test_a_cluster_that_does_not_answer_or_refuses_is_an_error() -> None:
    with pytest.raises(ConnectionError, match="no broker answers"):
        cluster_of(RepairedBrokers(silent={1, 9})).observe([ENTRY])
    with pytest.raises(HarnessError, match="reassignments are unknown: ClusterAuthorizationFailedError"):
        cluster_of(RepairedBrokers(listing_error=NOT_ALLOWED)).observe([ENTRY])
    with pytest.raises(ConnectionError, match="it is not registered with the cluster"):
        cluster_of(RepairedBrokers()).usable_bytes(5)


def test_explicit_settings_are_those_that_a_topic_or_a_broker_has_itself() -> None:
    brokers = RepairedBrokers()
    cluster = cluster_of(brokers)
    cluster.connect()
    brokers.asked.clear()
    assert cluster.explicit(TOPIC, "t", ["b", "a"]) == {"a": "1", "b": None}
    assert cluster.explicit(BROKER, "3", ["b", "a"]) == {"a": "1", "b": None}
    cluster.alter(BROKER, "2", {"a": "5", "b": None})
    assert [port for port, _ in brokers.asked] == [9, 3, 2], "a broker's settings are asked of the broker itself"
    configs = brokers.asked[-1][1].resources[0].configs
    assert [(config.name, config.config_operation, config.value) for config in configs] == [
        ("a", 0, "5"),
        ("b", 1, None),
    ]
    brokers.setting_error = 29
    with pytest.raises(HarnessError, match="settings of topic t: no"):
        cluster.alter(TOPIC, "t", {"a": "1"})
