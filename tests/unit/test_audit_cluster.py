"""A cluster described from its metadata: which topics match, and the message where they cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import kafka.errors
import pytest

from harness.audit.live.cluster import Cluster, describe, parse_bootstrap
from harness.errors import UsageError
from harness.kafka_api import wire
from harness.kafka_api.admin import PartitionState
from harness.kafka_api.wire import Address

TOPICS = ("orders", "orders-eu", "users", "__consumer_offsets", "__transaction_state")
UNKNOWN = kafka.errors.UnknownTopicOrPartitionError.errno
NOT_ALLOWED = kafka.errors.TopicAuthorizationFailedError.errno
POLICIES: dict[str, str] = {}
"""Cleanup policies of topics that are not ``compact``."""
BOOTSTRAP = [Address("away", 1), Address("here", 2)]


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Answer for a cluster of two brokers; error codes by topic, or by ``settings of`` a topic, go in here."""
    errors: dict[str, int] = {}

    def call(address: Address, request: Any, **_: float) -> Any:
        if address.host == "away":
            raise ConnectionRefusedError("refused")
        if type(request).__name__ == "DescribeConfigsRequest":
            return SimpleNamespace(results=[_configs(one.resource_name, errors) for one in request.resources])
        assert request.allow_auto_topic_creation is False
        names = TOPICS if request.topics is None else [topic.name for topic in request.topics]
        return SimpleNamespace(
            cluster_id="id",
            brokers=[SimpleNamespace(node_id=n, host=f"b{n}", port=9092) for n in (2, 1)],
            topics=[_topic(name, errors) for name in names],
        )

    monkeypatch.setattr(wire, "call", call)
    return errors


def _configs(name: str, errors: dict[str, int]) -> Any:
    configs = [SimpleNamespace(name="cleanup.policy", value=POLICIES.get(name, "compact"))]
    return SimpleNamespace(resource_name=name, error_code=errors.get(f"settings of {name}", 0), configs=configs)


def _topic(name: str, errors: dict[str, int]) -> Any:
    partitions = [
        SimpleNamespace(partition_index=n, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2], leader_epoch=5)
        for n in (1, 0)
    ]
    code = errors.get(name, 0 if name in TOPICS else UNKNOWN)
    return SimpleNamespace(name=name, error_code=code, partitions=partitions)


def described(*patterns: str) -> Cluster:
    return describe(BOOTSTRAP, patterns)


@pytest.mark.parametrize(
    ("patterns", "topics"),
    [
        (("orders",), ["orders"]),
        (("orders*",), ["orders", "orders-eu"]),
        (("*",), ["orders", "orders-eu", "users"]),
        (("users", "__c*"), ["__consumer_offsets", "users"]),
        (("__transaction_state",), ["__transaction_state"]),
    ],
)
@pytest.mark.usefixtures("refused")
def test_names_and_globs_match_internal_topics_only_where_they_name_them(
    patterns: tuple[str, ...], topics: list[str]
) -> None:
    assert list(described(*patterns).topics) == topics


def test_without_a_pattern_every_compacted_topic_is_read_and_said(refused: dict[str, int]) -> None:
    refused["settings of users"] = NOT_ALLOWED
    POLICIES["orders-eu"] = "delete"
    try:
        cluster = described()
    finally:
        del POLICIES["orders-eu"]
    assert list(cluster.topics) == ["__consumer_offsets", "__transaction_state", "orders"]
    (note,) = cluster.selection
    assert note == (
        "every compacted topic is audited, by the topics' settings: __consumer_offsets, __transaction_state, orders; 1 "
        "more topic is not compacted"
    )
    assert cluster.notes[1:] == ("left out, as it is not known whether they are compacted: users",)


def test_kafkas_own_topics_are_compacted_whoever_may_see_their_settings(refused: dict[str, int]) -> None:
    refused |= {f"settings of {topic}": NOT_ALLOWED for topic in TOPICS}
    assert list(described().topics) == ["__consumer_offsets", "__transaction_state"]


@pytest.mark.usefixtures("refused")
def test_a_cluster_without_a_compacted_topic_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in TOPICS:
        monkeypatch.setitem(POLICIES, topic, "delete")
    with pytest.raises(UsageError, match=r"no topic is compacted, .* name topics by --topic$"):
        described()


@pytest.mark.usefixtures("refused")
def test_what_a_pattern_leaves_out_is_said() -> None:
    (note,) = described("*").selection
    assert note == (
        "internal topics are left out: __consumer_offsets, __transaction_state; name them, or leave out --topic for "
        "every compacted topic"
    )
    assert described("orders*").selection == described("orders").selection == described("*", "__*").selection == ()


@pytest.mark.usefixtures("refused")
def test_who_holds_what_is_reported_of_brokers_that_are_down_too() -> None:
    cluster = described("users")
    assert cluster.brokers == {1: Address("b1", 9092), 2: Address("b2", 9092)}
    assert cluster.partitions == dict.fromkeys(
        (("users", 0), ("users", 1)), PartitionState(leader=1, replicas=(1, 2, 3), isr=(1, 2), leader_epoch=5)
    )
    assert cluster.replicas_by_broker == {broker: [("users", 0), ("users", 1)] for broker in (1, 2, 3)}
    assert cluster.topics["users"].settings == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("order", "topic order does not exist, or this user may not describe it; did you mean orders"),
        ("nothing*", "no topic matches nothing"),
        ("users", "this user may not describe topic users: an audit needs Describe and Read on it"),
        ("orders", "topic orders: LeaderNotAvailableError"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(refused: dict[str, int], pattern: str, words: str) -> None:
    refused["users"] = NOT_ALLOWED
    refused["orders"] = kafka.errors.LeaderNotAvailableError.errno
    with pytest.raises(UsageError) as raised:
        described(pattern)
    assert words in str(raised.value)


def test_settings_that_may_not_be_seen_are_a_note(refused: dict[str, int]) -> None:
    refused["settings of users"] = NOT_ALLOWED
    cluster = described("users", "orders")
    assert cluster.topics["users"].settings is None
    assert cluster.topics["orders"].settings is not None
    (note,) = cluster.notes
    assert note.startswith("settings of users could not be read (TopicAuthorizationFailedError")


def test_settings_of_several_topics_are_one_note_that_names_them(refused: dict[str, int]) -> None:
    refused |= {"settings of users": NOT_ALLOWED, "settings of orders": NOT_ALLOWED}
    (note,) = described("users", "orders").notes
    assert note.startswith("settings of orders, users could not be read (TopicAuthorizationFailedError")


@pytest.mark.usefixtures("refused")
def test_a_cluster_that_does_not_answer_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="no broker answers \\(away:1: refused\\)"):
        describe(BOOTSTRAP[:1], ["users"])


def test_bootstrap_servers_are_host_and_port() -> None:
    assert parse_bootstrap("a:1, b.example:22,[::1]:3") == [
        Address("a", 1),
        Address("b.example", 22),
        Address("::1", 3),
    ]


@pytest.mark.parametrize("text", ["", "a", "a:", ":1", "a:b", "a:1,"])
def test_what_is_no_host_and_port_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"give host:port"):
        parse_bootstrap(text)


def test_a_cluster_without_a_transaction_log_never_had_a_transaction(refused: dict[str, int]) -> None:
    assert described("orders").may_have_transactions
    refused["__transaction_state"] = kafka.errors.TopicAuthorizationFailedError.errno
    assert described("orders").may_have_transactions
    refused["__transaction_state"] = UNKNOWN
    assert not described("orders").may_have_transactions
