"""A cluster described from its metadata: which topics match, and the message where they cannot be read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import kafka.errors
import pytest
from fakes.connections import AnsweringStream
from kafka.protocol.admin import DescribeConfigsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse

from harness.audit.live.cluster import AuditedCluster, describe
from harness.errors import UsageError
from harness.kafka_api.address import Address, parse_bootstrap
from harness.kafka_api.connection import ClusterClient
from harness.kafka_api.messages import message
from harness.kafka_api.metadata import PartitionState

TOPICS = ("orders", "orders-eu", "users", "__consumer_offsets", "__transaction_state")
UNKNOWN = kafka.errors.UnknownTopicOrPartitionError.errno
NOT_ALLOWED = kafka.errors.TopicAuthorizationFailedError.errno
BOOTSTRAP = [Address("away", 1), Address("here", 2)]


@dataclass
class Brokers:
    """Two brokers, of which one is down. ``refused``: error codes by topic, or by ``settings of`` a topic."""

    refused: dict[str, int] = field(default_factory=dict)
    policies: dict[str, str] = field(default_factory=dict)
    """Cleanup policies of topics that are not ``compact``."""
    metadata_version: int = 12
    cluster_id: str = "id"

    def describe(self, *patterns: str, bootstrap: Sequence[Address] = BOOTSTRAP) -> AuditedCluster:
        return describe(ClusterClient(lambda: bootstrap, dial=self._dial), patterns)

    def _dial(self, address: Address, *, timeout_s: float) -> AnsweringStream:
        assert timeout_s > 0
        if address.host != "here":
            raise ConnectionRefusedError("refused")
        return AnsweringStream(self._answer)

    def _answer(self, request: Any) -> Any:
        if type(request).__name__ == "DescribeConfigsRequest":
            results = [self._configs(topic_state.resource_name) for topic_state in request.resources]
            return message(DescribeConfigsResponse, 4, results=results)
        if isinstance(request, ApiVersionsRequest):
            keys = [{"api_key": MetadataRequest.API_KEY, "min_version": 0, "max_version": self.metadata_version}]
            return message(ApiVersionsResponse, 0, api_keys=keys)
        assert request.allow_auto_topic_creation is False
        names = TOPICS if request.topics is None else [topic.name for topic in request.topics]
        brokers = [{"node_id": n, "host": f"b{n}", "port": 9092} for n in (2, 1)]
        topics = [self._topic(name) for name in names]
        version = min(self.metadata_version, 10)
        return message(MetadataResponse, version, cluster_id=self.cluster_id, brokers=brokers, topics=topics)

    def _configs(self, name: str) -> dict[str, Any]:
        configs = [{"name": "cleanup.policy", "value": self.policies.get(name, "compact")}]
        return {"resource_name": name, "error_code": self.refused.get(f"settings of {name}", 0), "configs": configs}

    def _topic(self, name: str) -> dict[str, Any]:
        partition = {"leader_id": 1, "replica_nodes": [1, 2, 3], "isr_nodes": [2, 1], "leader_epoch": 5}
        code = self.refused.get(name, 0 if name in TOPICS else UNKNOWN)
        identity = {"name": name, "topic_id": UUID(int=len(name))} if self.metadata_version >= 10 else {"name": name}
        return {**identity, "error_code": code, "partitions": [{**partition, "partition_index": n} for n in (1, 0)]}


@pytest.mark.parametrize(("patterns", "topics"), [
    (("orders",), ["orders"]),
    (("orders*",), ["orders", "orders-eu"]),
    (("*",), ["orders", "orders-eu", "users"]),
    (("users", "__c*"), ["__consumer_offsets", "users"]),
    (("__transaction_state",), ["__transaction_state"]),
])  # fmt: skip
def test_patterns_match_internal_topics_only_where_they_name_them(patterns: tuple[str, ...], topics: list[str]) -> None:
    assert list(Brokers().describe(*patterns).state.topics) == topics


def test_without_a_pattern_every_compacted_topic_and_kafkas_own_are_read_and_that_is_said() -> None:
    cluster = Brokers({"settings of users": NOT_ALLOWED}, {"orders-eu": "delete"}).describe()
    assert list(cluster.state.topics) == ["__consumer_offsets", "__transaction_state", "orders"]
    topics = "__consumer_offsets, __transaction_state, orders; 1 more topic is not compacted"
    assert cluster.selection == (f"every compacted topic is audited, by the topics' settings: {topics}",)
    assert cluster.notes[1:] == ("left out, as it is not known whether they are compacted: users",)
    cluster = Brokers({f"settings of {topic}": NOT_ALLOWED for topic in TOPICS}).describe()
    assert list(cluster.state.topics) == ["__consumer_offsets", "__transaction_state"]
    with pytest.raises(UsageError, match=r"no topic is compacted among .* name topics by --topic$"):
        Brokers(policies=dict.fromkeys(TOPICS, "delete")).describe()


def test_what_a_pattern_leaves_out_is_said() -> None:
    described = Brokers().describe
    advice = "name them, or leave out --topic for every compacted topic"
    note = f"internal topics are left out: __consumer_offsets, __transaction_state; {advice}"
    assert described("*").selection == (note,)
    assert described("orders*").selection == described("orders").selection == described("*", "__*").selection == ()


def test_who_holds_what_is_reported_of_brokers_that_are_down_too() -> None:
    cluster = Brokers().describe("users")
    assert cluster.state.brokers == {1: Address("b1", 9092), 2: Address("b2", 9092)}
    assert cluster.state.partitions == dict.fromkeys(
        (("users", 0), ("users", 1)), PartitionState(leader=1, replicas=(1, 2, 3), isr=(1, 2), leader_epoch=5)
    )
    assert cluster.state.replicas_by_broker == {broker: [("users", 0), ("users", 1)] for broker in (1, 2, 3)}
    assert cluster.settings["users"] == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(("pattern", "words"), [
    ("order", "topic order does not exist, or this user may not describe it; did you mean orders"),
    ("nothing*", "no topic matches nothing*"),
    ("users", "this user may not describe topic users: an audit needs Describe and Read on it"),
    ("orders", "topic orders: LeaderNotAvailableError"),
])  # fmt: skip
def test_what_cannot_be_had_is_one_sentence(pattern: str, words: str) -> None:
    refused = {"users": NOT_ALLOWED, "orders": kafka.errors.LeaderNotAvailableError.errno}
    with pytest.raises(UsageError, match=re.escape(words)):
        Brokers(refused).describe(pattern)


@pytest.mark.parametrize("denied", [["users"], ["orders", "users"]])
def test_settings_that_may_not_be_seen_are_one_note_that_names_the_topics(denied: list[str]) -> None:
    cluster = Brokers({f"settings of {topic}": NOT_ALLOWED for topic in denied}).describe("users", "orders")
    assert cluster.settings.keys() == {"users", "orders"} - set(denied)
    (note,) = cluster.notes
    assert note.startswith(f"settings of {', '.join(denied)} could not be read (TopicAuthorizationFailedError")


def test_bootstrap_servers_are_host_and_port_and_one_has_to_answer() -> None:
    addresses = [Address("a", 1), Address("b.example", 22), Address("::1", 3)]
    assert parse_bootstrap("a:1, b.example:22,[::1]:3") == addresses
    with pytest.raises(UsageError, match="--bootstrap-server: no broker answers \\(away:1: refused\\)"):
        Brokers().describe("users", bootstrap=BOOTSTRAP[:1])


@pytest.mark.parametrize(("metadata_version", "ids"), [(10, {"users": "AAAAAAAAAAAAAAAAAAAABQ"}), (8, {})])
def test_topic_ids_are_known_if_the_brokers_have_them(metadata_version: int, ids: dict[str, str]) -> None:
    assert Brokers(metadata_version=metadata_version).describe("users").topic_ids == ids


def test_a_cluster_without_a_transaction_log_never_had_a_transaction() -> None:
    for code, may_have in ((0, True), (NOT_ALLOWED, True), (UNKNOWN, False)):
        assert Brokers({"__transaction_state": code}).describe("orders").may_have_transactions is may_have
    redpanda = Brokers({"__transaction_state": UNKNOWN}, cluster_id="redpanda.2d33")
    assert redpanda.describe("orders").may_have_transactions
