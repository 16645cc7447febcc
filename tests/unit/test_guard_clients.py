"""The guard's requests to brokers, its channel and its group: fakes, and librdkafka's mock brokers in this process."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition
from fakes.clock import NOW_MS
from fakes.connections import AnsweringStream
from fakes.guarded import BoundedClock
from kafka.protocol import admin
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import ProduceResponse

from harness.broker_files.segments.batches import iter_batches, iter_records
from harness.errors import HarnessError, UsageError, WaitTimeoutError
from harness.host.clock import RealClock
from harness.kafka_api.address import Address
from harness.kafka_api.messages import message
from harness.protect.guard.channel import KEPT_WITH, TOPIC, GroupLeadership, KafkaChannel, consumer_config
from harness.protect.guard.cluster import PAUSE, READ, LiveCluster
from harness.protect.guard.journal import Pause, PausePhase, PauseState, entry_of
from harness.protect.guard.run import check_names

BROKERS = {number: Address("b", number) for number in (1, 2, 3)}


class Brokers:
    """Three brokers; ``down`` refuse connections, ``frozen`` do not answer, ``stale`` have an old ISR.

    Broker 1 does not answer writers, until broker 2 leads. ``refusal``: the error code of writes.
    """

    def __init__(self, down: Collection[int] = (), topic: str = "t", leader: int = 1, refusal: int = 0) -> None:
        self.down, self.frozen, self.stale, self.cut = set(down), set[int](), set[int](), set[int]()
        self.topic, self.leader, self.refusal, self.written = topic, leader, refusal, list[tuple[int, bytes]]()
        self.isr = [1, 2, 3]
        self.asked: list[tuple[int, Any]] = []

    def dial(self, address: Address, *, timeout_s: float) -> AnsweringStream:
        assert timeout_s > 0
        if address.port in self.down:
            raise ConnectionRefusedError(f"{address} refuses")
        return AnsweringStream(lambda request: self.answer(address.port, request))

    def answer(self, broker: int, request: Any) -> Any:
        self.asked.append((broker, request))
        if broker in self.cut | self.down:
            self.cut.discard(broker)
            raise ConnectionResetError("closed")
        if broker in self.frozen:
            raise TimeoutError("silent")
        name = type(request).__name__.partition("Request")[0]
        answers: dict[str, Callable[[int, Any], Any]] = {
            "Metadata": self.metadata, "DescribeConfigs": self.configs, "IncrementalAlterConfigs": self.altered,
            "ListPartitionReassignments": self.adding, "Produce": self.produced,
        }  # fmt: skip
        return answers[name](broker, request)

    def metadata(self, broker: int, _request: Any) -> Any:
        isr = [1, 2, 3] if broker in self.stale else self.isr
        partition = {"partition_index": 0, "leader_id": self.leader, "replica_nodes": [1, 2, 3], "isr_nodes": isr}
        brokers = [{"node_id": number, "host": "b", "port": number} for number in BROKERS]
        of_topics: tuple[tuple[str, int, list[Any]], ...] = ((self.topic, 0, [partition]), ("secret", 29, []))
        topics = [{"name": name, "error_code": code, "partitions": parts} for name, code, parts in of_topics]
        return message(MetadataResponse, 8, brokers=brokers, topics=topics)

    def configs(self, _broker: int, request: Any) -> Any:
        codes = {"secret": 29, "gone": 3}
        entries = [{"name": name, "value": "1", "config_source": 1 if name in PAUSE else 5} for name in READ]
        asked = [setting.resource_name for setting in request.resources]
        results = [{"resource_name": n, "error_code": codes.get(n, 0), "configs": entries} for n in asked]
        return message(admin.DescribeConfigsResponse, 4, results=results)

    def altered(self, _broker: int, request: Any) -> Any:
        names = [setting.resource_name for setting in request.resources]
        responses = [{"resource_name": name, "error_code": 29 * (name == "secret")} for name in names]
        return message(admin.IncrementalAlterConfigsResponse, 1, responses=responses)

    def adding(self, _broker: int, _request: Any) -> Any:
        ongoing = {"partition_index": 0, "adding_replicas": [2], "removing_replicas": []}
        topics = [{"name": "t", "partitions": [ongoing]}]
        return message(admin.ListPartitionReassignmentsResponse, 0, error_code=0, topics=topics)

    def produced(self, broker: int, request: Any) -> Any:
        if broker == 1:
            self.leader = 2
            raise TimeoutError("frozen")
        (topic,) = request.topic_data
        self.written += [(broker, bytes(partition.records)) for partition in topic.partition_data]
        written = [{"index": 0, "error_code": self.refusal}]
        return message(ProduceResponse, 9, responses=[{"name": TOPIC, "partition_responses": written}])

    def asked_for(self, name: str) -> list[int]:
        return [broker for broker, request in self.asked if type(request).__name__.startswith(name)]


def started(brokers: Brokers, clock: BoundedClock | None = None) -> LiveCluster:
    return LiveCluster([BROKERS[1]], clock or BoundedClock(now=1.0), brokers.dial)


@pytest.mark.parametrize("stale", [1, 2, 3])
def test_every_broker_is_asked_and_old_metadata_do_not_hide_what_the_others_see(stale: int) -> None:
    brokers = Brokers()
    cluster = started(brokers)
    brokers.asked.clear()
    assert not cluster.view().exposed
    assert sorted(brokers.asked_for("Metadata")) == [1, 2, 3]
    brokers.isr, brokers.stale = [1, 3], {stale}
    view = cluster.view()
    assert view.missing == {(("t", 0), 2)}
    assert cluster.with_added(view).adding == view.missing


def test_a_frozen_broker_is_left_in_peace_for_a_while() -> None:
    brokers, clock = Brokers(), BoundedClock(now=1.0)
    cluster = started(brokers, clock)
    brokers.frozen = {2}
    brokers.asked.clear()
    for _ in range(3):
        cluster.view()
    assert brokers.asked_for("Metadata").count(2) == 1
    cluster.settings(["t"])
    assert sorted(brokers.asked_for("DescribeConfigs")) == [1, 3]
    clock.now += 11
    cluster.view()
    assert brokers.asked_for("Metadata").count(2) == 2


@pytest.mark.parametrize("how", ["down", "frozen"])
def test_a_broker_that_has_just_stopped_answering_is_an_alarm_for_a_while(how: str) -> None:
    brokers, clock = Brokers(), BoundedClock(now=1.0)
    cluster, alarms = started(brokers, clock), []
    for after_s in (0, 1, 29, 2):
        clock.now += after_s
        cluster.view()
        alarms.append(cluster.is_alarmed)
        setattr(brokers, how, {2})
    assert alarms == [False, True, True, False], "a broker that has been down for long is not reported again"


def test_a_connection_that_a_broker_closed_is_opened_anew_and_where_no_broker_answers_the_round_fails() -> None:
    brokers = Brokers()
    cluster = started(brokers)
    brokers.cut = {1, 2, 3}
    assert (set(cluster.view().topics), brokers.cut) == ({"t"}, set[int]())
    brokers.down = {1, 2, 3}
    with pytest.raises(ConnectionError, match=r"no broker answers \(b:1: .*; b:2: .*; b:3: "):
        cluster.view()
    with pytest.raises(ConnectionError, match="no broker answers"):
        cluster.settings(["t"])
    brokers.down = {1, 3}
    assert cluster.view().topics == {"t"}
    with pytest.raises(UsageError, match="--bootstrap-server: no broker answers"):
        started(Brokers(down=BROKERS))


def test_settings_are_a_topics_own_or_inherited_and_errors_are_by_topic() -> None:
    read = started(Brokers()).settings({"t", "secret", "gone"})
    assert {name: setting.is_explicit for name, setting in read.settings["t"].items()} == {n: n in PAUSE for n in READ}
    assert (set(read.gone), read.refused) == ({"gone"}, {"secret": "TopicAuthorizationFailedError"})


def test_many_changes_are_one_request_and_a_refusal_concerns_its_topic() -> None:
    brokers = Brokers()
    cluster = started(brokers)
    changes: dict[str, dict[str, str | None]] = {"t": {"a": "1", "b": None}, "secret": {"a": "1"}}
    assert cluster.alter(changes) == {"secret": "TopicAuthorizationFailedError"}
    (request,) = [request for _, request in brokers.asked if type(request).__name__.startswith("Incremental")]
    (setting,) = [setting for setting in request.resources if setting.resource_name == "t"]
    assert [(c.name, c.config_operation, c.value) for c in setting.configs] == [("a", 0, "1"), ("b", 1, None)]
    assert cluster.alter({}) == {}


def test_a_change_goes_to_a_broker_that_has_just_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.protect.guard.cluster.ASKED", 1)
    brokers = Brokers()
    cluster = started(brokers)
    for _ in range(2):
        brokers.frozen = set(brokers.asked_for("Incremental"))
        cluster.settings(["t"])
        cluster.alter({"t": {"a": "1"}})
    assert len(brokers.asked_for("Incremental")) == 2


def test_a_named_topic_has_to_be_there_and_a_pattern_not() -> None:
    cluster = started(Brokers())
    check_names(cluster, ("t", "orders-*"))
    with pytest.raises(UsageError, match="topic orders does not exist"):
        check_names(cluster, ("t", "orders"))


def test_who_is_assigned_the_partition_leads() -> None:
    member = Mock(**{"poll.return_value": None, "assignment.return_value": []})
    leadership = GroupLeadership([BROKERS[1]], member)
    member.subscribe.assert_called_once_with(["compaction-guard"])
    assert not leadership.leads()
    other, first = Partition(TOPIC, 1), Partition(TOPIC, 0)
    member.assignment.return_value = [other, first]
    assert all(leadership.leads() for _ in range(3))
    member.pause.assert_called_once_with([first])  # nothing is fetched
    member.assignment.return_value = [other]
    assert not leadership.leads()
    leadership.close()
    member.close.assert_called_once_with()


def test_an_error_of_the_group_is_kept_or_raised() -> None:
    member = Mock(**{"assignment.return_value": []})
    member.poll.return_value.error.return_value = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    leadership = GroupLeadership([BROKERS[1]], member)
    assert not leadership.leads()
    assert "Group authorization failed" in str(leadership.error)
    member.poll.side_effect = KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    with pytest.raises(HarnessError, match="group compaction-guard"):
        leadership.leads()


CLOCK = RealClock()


@pytest.fixture
def bootstrap() -> Iterator[list[Address]]:
    owner = Producer({"test.mock.num.brokers": 3, "bootstrap.servers": "none", "log_level": 0})
    yield [Address(broker.host, broker.port) for broker in owner.list_topics(timeout=10).brokers.values()]
    del owner


def create_channel(bootstrap: Sequence[Address], *values: bytes | None) -> None:
    """Mock brokers create a topic for a producer that writes to it."""
    producer = Producer({"bootstrap.servers": ",".join(map(str, bootstrap)), "log_level": 0})
    for value in values or (None,):
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(10) == 0


def pause(topic: str, phase: PausePhase = PausePhase.PAUSING) -> Pause:
    return Pause(topic, phase, "c", {"min.cleanable.dirty.ratio": None}, 1)


def test_what_one_machine_keeps_another_one_reads_and_other_records_are_passed_over(bootstrap: list[Address]) -> None:
    first, other = KafkaChannel(bootstrap, CLOCK), KafkaChannel(bootstrap, CLOCK)
    assert first.read() == PauseState()
    create_channel(bootstrap, b"x", None, b"{}")
    first.append([entry_of(pause(f"t{number}")) for number in range(1500)])
    assert len(other.read().pauses) == len(first.read().pauses) == 1500
    other.append([entry_of(pause("t7", PausePhase.RELEASED))])
    assert "t7" not in first.read().pauses
    assert first.read() == other.read()
    other.append([entry_of(pause("t8", PausePhase.PAUSED))])
    assert first.read().pauses["t8"] == pause("t8", PausePhase.PAUSED)
    for channel in (first, other):
        channel.close()


@pytest.mark.parametrize("has_state", [False, True])
def test_a_topic_that_was_deleted_is_created_again_unless_it_had_a_state(
    bootstrap: list[Address], monkeypatch: pytest.MonkeyPatch, *, has_state: bool
) -> None:
    channel = KafkaChannel(bootstrap, CLOCK)
    monkeypatch.setattr(channel, "_values", lambda: KEPT_WITH)
    create_channel(bootstrap, b"x")
    channel.ensure()
    channel.append([entry_of(pause("t"))] * has_state)
    channel.read()
    with monkeypatch.context() as deleted:
        deleted.setattr(channel, "_leader", None)
        deleted.setattr(channel, "_find_leader", lambda: None)
        ensure = Mock()
        deleted.setattr(channel, "ensure", ensure)
        with pytest.raises(HarnessError, match="it does not exist"):
            channel.read()
        assert ensure.called != has_state
    channel._replayed.position += not has_state
    assert len(channel.read().pauses) == has_state
    channel.close()


@pytest.mark.parametrize(("name", "value"), [("cleanup.policy", "compact"), ("retention.ms", "604800000")])
def test_a_topic_that_may_lose_entries_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = KafkaChannel([BROKERS[1]], BoundedClock(now=1.0), Brokers(topic=TOPIC).dial)
    monkeypatch.setattr(channel, "_values", lambda: {**KEPT_WITH, name: value})
    with pytest.raises(UsageError, match=f"has {name}={value}, which could lose the guard's entries: set {name}="):
        channel.ensure()


def test_without_brokers_nothing_is_kept_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.protect.guard.channel.DELIVERY_S", 0.5)
    channel = KafkaChannel([Address("127.0.0.1", 1)], CLOCK)
    with pytest.raises(HarnessError, match="topic compaction-guard cannot be written: no broker answers"):
        channel.append([entry_of(pause("t"))])
    with pytest.raises(HarnessError, match="topic compaction-guard cannot be read"):
        channel.read()
    with pytest.raises(HarnessError, match="topic compaction-guard: "):
        channel.ensure()
    channel.close()


def test_entries_are_written_to_a_new_leader() -> None:
    brokers = Brokers(topic=TOPIC)
    channel = KafkaChannel([BROKERS[1]], BoundedClock(now=1.0), brokers.dial, writer="host:1")
    channel.append([entry_of(pause("t"))])
    ((broker, records),) = brokers.written
    (record,) = iter_records(next(iter_batches(records, source="")), source="")
    written = replace(entry_of(pause("t")), time_ms=NOW_MS + 1000, writer="host:1")
    assert (broker, record.value) == (2, written.to_json().encode())


def test_a_refused_entry_is_not_written_again() -> None:
    brokers = Brokers(topic=TOPIC, leader=2, refusal=kafka.errors.TopicAuthorizationFailedError.errno)
    channel = KafkaChannel([BROKERS[1]], BoundedClock(now=1.0), brokers.dial)
    with pytest.raises(HarnessError, match=r"cannot be written: .*TopicAuthorizationFailedError"):
        channel.append([entry_of(pause("t"))])
    assert len(brokers.written) == 1


def test_two_guards_never_lead_at_once_and_one_takes_over_from_the_other(bootstrap: list[Address]) -> None:
    create_channel(bootstrap)

    def joined() -> GroupLeadership:
        # The mock's coordinator takes a member that leaves for one that is silent.
        return GroupLeadership(bootstrap, Consumer({**consumer_config(bootstrap), "session.timeout.ms": 6_000}))

    first = joined()
    CLOCK.wait_until(first.leads, 20, "the lead")
    second = joined()
    with pytest.raises(WaitTimeoutError):
        # The mock's topics have four partitions: the first of them may move to the guard that comes later.
        CLOCK.wait_until(lambda: first.leads() and second.leads(), 5, "two leads")
    first.close()
    CLOCK.wait_until(second.leads, 30, "the other's lead")
    second.close()
