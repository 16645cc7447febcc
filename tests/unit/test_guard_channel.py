"""The channel and the group with librdkafka's mock brokers, which run in this process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import kafka.errors
import pytest
from confluent_kafka import Consumer, Producer
from fakes.connections import AnsweringStream
from fakes.guarded import BoundedClock
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceResponse

from harness.broker_files.segments.batches import iter_batches, iter_records
from harness.errors import HarnessError, WaitTimeoutError
from harness.host.clock import RealClock
from harness.kafka_api.address import Address
from harness.kafka_api.messages import message
from harness.protect.guard.channel import TOPIC, GroupLeadership, KafkaChannel, consumer_config
from harness.protect.guard.journal import Pause, PausePhase, PauseState, entry_of

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


@dataclass
class MovingLeader:
    """Implements `harness.kafka_api.connection.Dial`: broker 1 leads and does not answer, until broker 2 leads."""

    leader: int = 1
    refusal: int = 0
    written: list[tuple[int, bytes]] = field(default_factory=list)

    def __call__(self, address: Address, *, timeout_s: float) -> AnsweringStream:
        assert timeout_s > 0
        return AnsweringStream(lambda request: self._answer(address.port, request))

    def _answer(self, broker: int, request: Any) -> Any:
        if isinstance(request, MetadataRequest):
            partition = {"partition_index": 0, "leader_id": self.leader, "replica_nodes": [1, 2], "isr_nodes": [2]}
            brokers = [{"node_id": number, "host": "b", "port": number} for number in (1, 2)]
            topics = [{"name": TOPIC, "error_code": 0, "partitions": [partition]}]
            return message(MetadataResponse, 8, brokers=brokers, topics=topics)
        if broker == 1:
            self.leader = 2
            raise TimeoutError("frozen")
        (topic,) = request.topic_data
        self.written += [(broker, bytes(partition.records)) for partition in topic.partition_data]
        written = [{"index": 0, "error_code": self.refusal}]
        return message(ProduceResponse, 9, responses=[{"name": TOPIC, "partition_responses": written}])


def test_entries_are_written_to_a_new_leader() -> None:
    brokers = MovingLeader()
    channel = KafkaChannel([Address("b", 1)], BoundedClock(now=1.0), brokers, writer="host:1")
    channel.append([entry_of(pause("t"))])
    ((broker, records),) = brokers.written
    (record,) = iter_records(next(iter_batches(records, source="")), source="")
    written = replace(entry_of(pause("t")), time_ms=1_001_000, writer="host:1")
    assert (broker, record.value) == (2, written.to_json().encode())


def test_a_refused_entry_is_not_written_again() -> None:
    brokers = MovingLeader(leader=2, refusal=kafka.errors.TopicAuthorizationFailedError.errno)
    channel = KafkaChannel([Address("b", 1)], BoundedClock(now=1.0), brokers)
    with pytest.raises(HarnessError, match=r"cannot be written: .*TopicAuthorizationFailedError"):
        channel.append([entry_of(pause("t"))])
    assert len(brokers.written) == 1


def test_a_guard_that_comes_later_does_not_take_the_lead(bootstrap: list[Address]) -> None:
    create_channel(bootstrap)

    def joined() -> GroupLeadership:
        # The mock's coordinator takes a member that leaves for one that is silent.
        return GroupLeadership(bootstrap, Consumer({**consumer_config(bootstrap), "session.timeout.ms": 6_000}))

    first = joined()
    CLOCK.wait_until(first.leads, 20, "the lead")
    second = joined()
    with pytest.raises(WaitTimeoutError):
        CLOCK.wait_until(lambda: second.leads() or not first.leads(), 5, "a change of the lead")
    first.close()
    CLOCK.wait_until(second.leads, 30, "the other's lead")
    second.close()
