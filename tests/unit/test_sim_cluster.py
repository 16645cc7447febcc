"""Simulated brokers: leaders, the ISR, stored batches, and the start of cleaning."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from model_logs import data, marker, replica

from harness.broker_files.segments.records import ABORT, COMMIT
from harness.clients import ClientError
from harness.clients.simulated import SimulatedClient, SimulatedProducer
from harness.errors import UsageError
from harness.models.clock import VirtualClock
from harness.models.cluster.cluster import ClusterRules, SimCluster
from harness.models.cluster.partition import SimPartition, begins_segment
from harness.models.cluster.settings import BROKER, TOPIC, Settings
from harness.models.cluster.transactions import TransactionCoordinator
from harness.models.log.batch import ModelBatch
from harness.models.log.cleaner import Cleaning
from harness.models.log.delivery import batches_up_to, delivered, listed_aborts
from harness.models.log.systems import due_later_ms, is_due

TP = ("t", 0)
QUICK = {
    "broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "100", "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "100", "log.cleaner.backoff.ms": "50",
}  # fmt: skip
COMPACTED = {"segment.ms": "100", "delete.retention.ms": "300", "min.cleanable.dirty.ratio": "0.01"}


def kind(batch: ModelBatch) -> str:
    return batch.marker or ((batch.records[0].key or b"").decode() if batch.records else "empty")


@dataclass
class Subject:
    """Three brokers that are up, and one partition that broker 1 leads."""

    rules: ClusterRules = field(default_factory=ClusterRules)
    clock: VirtualClock = field(default_factory=VirtualClock)
    cluster: SimCluster = field(init=False)
    client: SimulatedClient = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = SimCluster(self.clock, Random("test"), (1, 2, 3), QUICK, self.rules)  # noqa: S311
        for broker in (1, 2, 3):
            self.cluster.start(broker)
        self.wait(lambda: all(broker.is_registered for broker in self.cluster.brokers.values()))
        self.cluster.create({TP: (1, 2, 3)}, COMPACTED)
        self.client = SimulatedClient(self.cluster, TransactionCoordinator(self.cluster), raises_epoch=False)

    @property
    def partition(self) -> SimPartition:
        return self.cluster.partitions[TP]

    def wait(self, condition: Any, bound_s: float = 30.0) -> None:
        self.clock.wait_until(condition, bound_s, "a test's condition")

    def wait_for_isr(self, *brokers: int) -> None:
        self.wait(lambda: self.partition.in_sync == [*brokers])

    def pass_time(self, seconds: float) -> None:
        until_s = self.clock.now_s() + seconds
        self.wait(lambda: self.clock.now_s() >= until_s, seconds + 1)

    def producer(self, transactional_id: str | None = None) -> SimulatedProducer:
        made = SimulatedProducer(self.client, transactional_id)
        if transactional_id is not None:
            made.transact("init")
        return made

    def put(self, producer: SimulatedProducer, key: str, value: str | None = "v") -> int:
        """Write and wait; return the offset."""
        offsets: list[int] = []
        producer.send(TP, key, value, [], lambda _, offset: offsets.append(offset))
        assert producer.flush() == 0
        return offsets[0]

    def batches(self, broker: int) -> list[tuple[int, str]]:
        """Return offsets and keys, or what kind of batch it is."""
        return [(batch.base_offset, kind(batch)) for batch in self.partition.replica(broker).batches()]

    def is_replicated(self) -> bool:
        ends = {self.partition.replica(b).high_watermark for b in self.partition.in_sync}
        return ends == {self.partition.leader.log_end}

    def fill(self, producer: SimulatedProducer, times: int, key: str = "filler") -> None:
        for _ in range(times):
            self.pass_time(0.2)
            self.put(producer, key)


@pytest.fixture
def subject() -> Subject:
    return Subject()


def test_what_is_acknowledged_is_with_everybody_in_sync(subject: Subject) -> None:
    producer = subject.producer()
    assert [subject.put(producer, key) for key in "ab"] == [0, 1]
    assert all(subject.batches(broker) == [(0, "a"), (1, "b")] for broker in (1, 2, 3))
    subject.wait(subject.is_replicated)


def test_a_killed_follower_leaves_the_isr_with_its_session_and_joins_when_it_has_everything(subject: Subject) -> None:
    producer = subject.producer()
    subject.cluster.kill(2)
    subject.wait_for_isr(1, 3)
    assert 0.9 < subject.clock.now_s() < 5
    subject.put(producer, "a")
    assert subject.batches(2) == []
    subject.cluster.start(2)
    subject.wait_for_isr(1, 2, 3)
    assert subject.batches(2) == [(0, "a")]


def test_a_follower_that_lags_for_too_long_leaves_the_isr(subject: Subject) -> None:
    subject.cluster.network.lost[3] = 1.0
    producer = subject.producer()
    began_s = subject.clock.now_s()
    subject.put(producer, "a")
    assert subject.partition.in_sync == [1, 2]
    assert 2.9 < subject.clock.now_s() - began_s < 3.2
    subject.cluster.network.clear()
    subject.wait_for_isr(1, 2, 3)


def test_what_only_a_failed_leader_has_is_sent_again_and_goes_from_its_log(subject: Subject) -> None:
    producer = subject.producer()
    subject.put(producer, "a")
    subject.cluster.network.lost.update({2: 1.0, 3: 1.0})
    offsets: list[int] = []
    producer.send(TP, "lost", "v", [], lambda _, offset: offsets.append(offset))
    subject.cluster.kill(1)
    subject.cluster.network.clear()
    subject.wait(lambda: subject.partition.leader_id == 2)
    subject.put(subject.producer(), "later")
    assert producer.flush() == 0
    assert subject.batches(2) == [(0, "a"), (1, "later"), (2, "lost")]
    assert offsets == [2]
    subject.cluster.start(1)
    subject.wait_for_isr(1, 2, 3)
    assert subject.batches(1) == subject.batches(2)


def test_a_marker_that_a_leader_failed_with_is_written_anew(subject: Subject) -> None:
    producer = subject.producer("tx")
    subject.put(producer, "a")
    subject.cluster.network.lost.update({2: 1.0, 3: 1.0})
    producer.transact("commit")
    subject.wait(lambda: subject.batches(1)[-1] == (1, "commit"))
    subject.cluster.kill(1)
    subject.cluster.network.clear()
    subject.wait(lambda: not subject.client.coordinator.ending())
    assert subject.batches(2) == [(0, "a"), (1, "commit")]
    assert subject.partition.replica(2).open_transactions == []


def test_the_next_transaction_begins_once_the_markers_of_the_last_one_are_stored(subject: Subject) -> None:
    producer = subject.producer("tx")
    subject.put(producer, "a")
    producer.transact("abort")
    assert subject.client.coordinator.ending() == ["tx"]
    assert subject.put(producer, "b") == 2
    assert subject.batches(3) == [(0, "a"), (1, "abort"), (2, "b")]


def test_a_broker_that_is_cut_off_goes_on_cleaning_alone(subject: Subject) -> None:
    subject.fill(subject.producer(), 3, "a")
    subject.pass_time(0.2)
    subject.cluster.cut(2)
    subject.pass_time(2)
    assert subject.partition.in_sync == [1, 3]
    assert subject.partition.replica(2).cleaned_to == 2
    assert subject.batches(2) == [(1, "a"), (2, "a")]


def test_a_broker_that_is_frozen_does_nothing(subject: Subject) -> None:
    producer = subject.producer()
    subject.put(producer, "a")
    subject.wait(subject.is_replicated)
    subject.cluster.pause(2, is_paused=True)
    subject.fill(producer, 3, "a")
    subject.pass_time(0.2)
    assert (subject.batches(2), subject.partition.replica(2).cleaned_to) == ([(0, "a")], None)
    subject.cluster.pause(2, is_paused=False)
    subject.wait_for_isr(1, 2, 3)


@pytest.mark.parametrize("coordinated", [False, True])
def test_only_replicas_that_compact_together_keep_a_tombstone_for_one_that_is_down(*, coordinated: bool) -> None:
    subject = Subject(ClusterRules(coordinated=coordinated))
    producer = subject.producer()
    subject.put(producer, "a")
    subject.wait(subject.is_replicated)
    subject.cluster.kill(2)
    subject.put(producer, "a", None)
    subject.fill(producer, 10)
    assert [key for _, key in subject.batches(1)].count("a") == int(coordinated)
    subject.cluster.start(2)
    subject.wait_for_isr(1, 2, 3)
    subject.fill(producer, 10)
    remaining = {broker for broker in (1, 2, 3) if "a" in {key for _, key in subject.batches(broker)}}
    assert remaining == (set() if coordinated else {2})


def test_a_new_replica_copies_no_faster_than_it_may(subject: Subject) -> None:
    subject.cluster.reassign(subject.partition, (1, 3))
    producer = subject.producer()
    for number in range(4):
        subject.put(producer, f"{number}", "x" * 1000)
    rate = {f"{side}.replication.throttled.rate": "500" for side in ("leader", "follower")}
    subject.cluster.alter_brokers((1, 2, 3), rate)
    subject.cluster.reassign(subject.partition, (1, 3, 2))
    began_s = subject.clock.now_s()
    subject.wait(lambda: 2 in subject.partition.in_sync)
    assert 6 < subject.clock.now_s() - began_s < 9


def batch(offset: int, at_ms: int, size: int = 10) -> ModelBatch:
    return data(offset, f"k{offset}={'v' * size}", at_ms=at_ms)


CLEANING = Cleaning(delete_retention_ms=1000, producer_expiration_ms=1000)


@pytest.mark.parametrize(
    ("settings", "due"),
    [
        ({"min.cleanable.dirty.ratio": 0.5}, False),
        ({"min.cleanable.dirty.ratio": 0.05}, True),
        ({"min.cleanable.dirty.ratio": 1.0, "max.compaction.lag.ms": 499}, True),
        ({"min.cleanable.dirty.ratio": 1.0, "max.compaction.lag.ms": 500}, False),
    ],
)
def test_a_pass_begins_where_much_is_dirty_or_has_been_for_long(settings: dict[str, float], *, due: bool) -> None:
    log = replica(batch(0, 0, 1000), batch(1, 500), batch(2, 600))
    log.cleaned_to = 1
    assert is_due(log, CLEANING, {**TOPIC, **settings}, 1000) is due


def test_time_alone_makes_a_pass_due_unless_nothing_is_dirty() -> None:
    log = replica(batch(0, 100), batch(1, 500))
    assert due_later_ms(log, {**TOPIC, "max.compaction.lag.ms": 1000}, 200) == 1101
    assert due_later_ms(log, {**TOPIC, "min.compaction.lag.ms": 300}, 200) == 401
    assert due_later_ms(log, TOPIC, 200) is None
    log.cleaned_to = 1
    topic = {**TOPIC, "min.cleanable.dirty.ratio": 0.0, "max.compaction.lag.ms": 0}
    assert (is_due(log, CLEANING, topic, 1000), due_later_ms(log, topic, 1000)) == (False, None)


def test_segments_end_by_the_time_of_their_batches_and_by_size() -> None:
    assert not begins_segment(100, 1, replica(), batch(0, 0))
    for at_ms, segment_bytes, begins in ((100, 10**9, False), (101, 10**9, True), (50, 120, True)):
        assert begins_segment(100, segment_bytes, replica(batch(0, 0)), batch(1, at_ms)) is begins


@pytest.mark.parametrize("settings", [{"segment.colour": "1"}, {"segment.ms": "soon"}])
def test_settings_without_a_rule_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="setting"):
        Settings("topic", own=settings)
    assert Settings("broker", {"request.timeout.ms": "1"}).numbers == BROKER


def test_a_consumer_is_given_what_its_broker_does_not_call_aborted() -> None:
    log = replica(
        data(0, "plain=v"), data(1, "aborted=v", txn=7), data(2, "other=v", txn=8), marker(3, ABORT, 7),
        data(4, "next=v", txn=7), marker(5, COMMIT, 7), marker(6, COMMIT, 8), data(7, "open=v", txn=7),
        data(8, "later=v"),
    )  # fmt: skip
    assert listed_aborts(log) == ((7, 1),)
    assert [record.key for record in delivered(log)] == [b"plain", b"other", b"next"]
    assert [batch.base_offset for batch in batches_up_to(log, log.last_stable_offset)] == list(range(7))
    log.delete_before(2)
    assert listed_aborts(log) == ((7, 1),), "its marker is still ahead of the log start"
    assert [record.key for record in delivered(log)] == [b"other", b"next"]
    log.delete_before(4)
    assert listed_aborts(log) == ()


def test_a_deleted_topic_is_gone_and_one_of_its_name_begins_empty(subject: Subject) -> None:
    producer, transactional = subject.producer(), subject.producer("tx")
    subject.put(producer, "a")
    subject.put(transactional, "b")
    subject.cluster.kill(2)
    subject.cluster.delete("t")
    with pytest.raises(ClientError, match="t-0 does not exist"):
        subject.put(producer, "c")
    transactional.transact("abort")
    subject.wait(lambda: not subject.client.coordinator.ending())
    subject.wait(lambda: not subject.cluster.brokers[2].is_registered)
    subject.cluster.create({TP: (2, 1, 3)}, COMPACTED)
    assert (subject.partition.leader_id, subject.partition.in_sync) == (1, [1, 3])
    subject.cluster.start(2)
    subject.wait_for_isr(2, 1, 3)
    assert subject.put(producer, "d") == 0
    subject.wait(subject.is_replicated)
    assert all(subject.batches(broker) == [(0, "d")] for broker in (1, 2, 3))


def test_what_was_sent_to_a_topic_that_is_deleted_is_answered_with_an_error(subject: Subject) -> None:
    producer, errors = subject.producer(), list[str | None]()
    producer.send(TP, "a", "v", [], lambda error, _: errors.append(error))
    subject.cluster.delete("t")
    assert producer.flush() == 0
    assert errors == ["the topic was deleted"]


def test_records_that_are_deleted_go_from_every_replica(subject: Subject) -> None:
    producer = subject.producer()
    for key in "abcd":
        subject.put(producer, key)
    subject.wait(subject.is_replicated)
    subject.cluster.delete_records(subject.partition, 3)
    subject.wait(lambda: {subject.partition.replica(broker).log_start for broker in (1, 2, 3)} == {3})
    subject.cluster.delete_records(subject.partition, 99)
    assert subject.partition.leader.log_start == 4, "no further than the high watermark"


def test_a_dead_broker_may_be_elected_where_nobody_knows_yet(subject: Subject) -> None:
    subject.cluster.kill(2)
    subject.partition.replication.away.add(3)
    subject.cluster.reassign(subject.partition, (2, 3))
    assert subject.partition.leader_id == 2
    assert set(subject.partition.replication.replicas) == {2, 3}


@pytest.mark.parametrize("raises_epoch", [False, True])
def test_a_producer_is_fenced_by_a_later_one_of_its_id(subject: Subject, *, raises_epoch: bool) -> None:
    subject.client = replace(subject.client, raises_epoch=raises_epoch)
    first = subject.producer("tx")
    subject.put(first, "a")
    first.transact("commit")
    subject.put(first, "b")
    second = subject.producer("tx")
    with pytest.raises(ClientError, match="another producer has tx now") as error:
        first.transact("commit")
    assert error.value.certainly
    with pytest.raises(ClientError, match="another producer has tx now"):
        subject.put(first, "c")
    subject.put(second, "d")
    second.transact("commit")
    subject.wait(lambda: not subject.client.coordinator.ending())
    # The aborted record may be cleaned away by now.
    assert [key for _, key in subject.batches(1) if key != "b"] == ["a", "commit", "abort", "d", "commit"]
