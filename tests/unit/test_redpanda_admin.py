"""Redpanda's admin API, against a stand-in: an HTTP server that answers as the facts say."""

from collections.abc import Iterator

import pytest
from fakes.http_servers import FakeServer, served

from harness.errors import HarnessError
from harness.kafka_api.address import Address
from harness.kafka_api.redpanda_admin import RedpandaAdmin

TOPIC = ("stuck-lso", 0)
OFFSETS = {
    "max_cleanly_compacted_offset": 12,
    "max_transaction_free_offset": 11,
    "max_transaction_removable_offset": -1,
}


@pytest.fixture
def brokers() -> Iterator[dict[int, FakeServer]]:
    """Start two of them."""
    with served(2) as stand_ins:
        yield stand_ins


@pytest.fixture
def admin(brokers: dict[int, FakeServer]) -> RedpandaAdmin:
    return RedpandaAdmin(lambda: {broker: Address("127.0.0.1", it.port) for broker, it in brokers.items()})


def test_a_replicas_compaction_in_the_clusters_own_terms(admin: RedpandaAdmin, brokers: dict[int, FakeServer]) -> None:
    shown = {"committed_offset": 24, "high_watermark": 20, "last_stable_offset": 19, **OFFSETS}
    older = {"raft_state": {"node_id": 2}, **shown, "max_tombstone_removal_offset": 9}
    newer = {"raft_state": {"node_id": 1}, **shown, "max_tombstone_removable_offset": 10}
    silent = {"raft_state": {"node_id": 3}, "high_watermark": 20, "last_stable_offset": 20, "committed_offset": 24}
    brokers[1].answers["/v1/debug/partition/kafka/stuck-lso/0"] = (200, {"replicas": [older, newer, silent]})
    states = admin.compaction(TOPIC)
    assert {broker: state["tombstone_removable"] for broker, state in states.items()} == {1: 10, 2: 9, 3: None}
    assert states[1]["cleanly_compacted"] == 12
    assert states[1]["transaction_removable"] == -1
    assert states[3]["cleanly_compacted"] is None
    assert states[2]["last_stable_offset"] == 19


def test_leadership_is_asked_of_who_has_it(admin: RedpandaAdmin, brokers: dict[int, FakeServer]) -> None:
    path = "/v1/partitions/kafka/stuck-lso/0"
    brokers[1].answers[path] = (200, {"leader_id": 2, "raft_group_id": 5})
    brokers[2].answers[f"{path}/transfer_leadership?target=1"] = (200, None)
    admin.transfer_leadership(TOPIC, 1)
    assert brokers[2].asked == [("POST", f"{path}/transfer_leadership?target=1", None)]
    admin.transfer_leadership(TOPIC, 2)
    assert len(brokers[2].asked) == 1, "a broker that leads already gets no request"


def test_without_a_leader_there_is_nothing_to_transfer(admin: RedpandaAdmin, brokers: dict[int, FakeServer]) -> None:
    brokers[1].answers["/v1/partitions/kafka/stuck-lso/0"] = (200, {"leader_id": -1})
    assert admin.leader(TOPIC) is None
    with pytest.raises(HarnessError, match="stuck-lso-0 has no leader that could give way to broker 1"):
        admin.transfer_leadership(TOPIC, 1)


def test_the_coordinator_is_a_partition_with_a_leader(admin: RedpandaAdmin, brokers: dict[int, FakeServer]) -> None:
    ntp = {"namespace": "kafka_internal", "topic": "tx", "partition": 7}
    brokers[1].answers["/v1/transaction/stuck-lso.tx/find_coordinator"] = (200, {"coordinator": 2, "ntp": ntp})
    brokers[1].answers["/v1/partitions/kafka_internal/tx/7"] = (200, {"leader_id": 2})
    assert admin.coordinator("stuck-lso.tx") == (("tx", 7), 2)


@pytest.mark.parametrize(
    ("state", "removal", "expected"),
    [
        ("active", True, (True, True)),
        ("available", True, (False, True)),
        ("active", False, (True, False)),
        ("active", None, (True, False)),
    ],
)
def test_what_it_takes_to_compact_together(
    admin: RedpandaAdmin, brokers: dict[int, FakeServer], state: str, removal: object, expected: tuple[bool, bool]
) -> None:
    features = [{"name": "audit_logging", "state": "active"}, {"name": "coordinated_compaction", "state": state}]
    brokers[1].answers["/v1/features"] = (200, {"cluster_version": 17, "features": features})
    held = {} if removal is None else {"log_compaction_tx_batch_removal_enabled": removal}
    brokers[1].answers["/v1/cluster_config"] = (200, held)
    assert (admin.coordinates_compaction(), admin.removes_markers()) == expected


def test_properties_are_set_for_the_whole_cluster(admin: RedpandaAdmin, brokers: dict[int, FakeServer]) -> None:
    brokers[1].answers["/v1/cluster_config"] = (200, {"config_version": 4})
    assert admin.set_config({"log_compaction_interval_ms": 100}) == 4
    body = {"upsert": {"log_compaction_interval_ms": 100}, "remove": []}
    assert brokers[1].asked == [("PUT", "/v1/cluster_config", body)]


def test_brokers_that_are_alive(admin: RedpandaAdmin, brokers: dict[int, FakeServer]) -> None:
    brokers[1].answers["/v1/brokers"] = (200, [{"node_id": 1, "is_alive": True}, {"node_id": 2, "is_alive": False}])
    assert admin.brokers() == {1}


def test_a_broker_that_is_silent_is_passed_over(brokers: dict[int, FakeServer]) -> None:
    brokers[2].answers["/v1/cluster_config"] = (200, {"a": 1})
    nobody = Address("127.0.0.1", 1)
    admin = RedpandaAdmin(lambda: {1: nobody, 2: Address("127.0.0.1", brokers[2].port)})
    assert admin.config() == {"a": 1}
    with pytest.raises(HarnessError, match="no broker answers GET /v1/cluster_config"):
        RedpandaAdmin(lambda: {1: nobody}).config()


def test_a_refusal_is_reported_in_the_brokers_own_words(admin: RedpandaAdmin, brokers: dict[int, FakeServer]) -> None:
    path = "/v1/partitions/kafka/stuck-lso/0"
    brokers[1].answers[path] = (200, {"leader_id": 1})
    brokers[1].answers[f"{path}/transfer_leadership?target=9"] = (
        400,
        {"message": "Target node not found", "code": 400},
    )
    with pytest.raises(HarnessError, match=r"400 .*Target node not found"):
        admin.transfer_leadership(TOPIC, 9)


def test_who_is_asked_in_vain_redirects(admin: RedpandaAdmin, brokers: dict[int, FakeServer]) -> None:
    path = "/v1/cluster_config"
    brokers[1].answers[path] = (307, f"http://127.0.0.1:{brokers[2].port}{path}")
    brokers[2].answers[path] = (200, {"a": 1})
    assert admin.config() == {"a": 1}
