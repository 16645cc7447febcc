"""Simulated brokers: schedules, leaders, the ISR, stored batches, the start of cleaning, and Redpanda's compaction."""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from described import described, play
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
from harness.models.log.cleaner import Bounds, Cleaning
from harness.models.log.delivery import batches_up_to, delivered, listed_aborts
from harness.models.log.invariants import violations
from harness.models.log.redpanda import clean, progress
from harness.models.log.replica import Replica
from harness.models.log.systems import due_later_ms, is_due
from harness.models.world.world import BEGIN_MS, STEP_MS, Rules, World, begin, take
from harness.schedules import operations as ops
from harness.schedules.catalog import Anomaly
from harness.schedules.timers import DAY_MS, HOUR_MS

V1, V2 = Rules(), Rules(epoch_bump=True)


def wrong(world: World) -> set[tuple[int, str]]:
    return {(b, name) for b in world.replication.in_sync for name in violations(world.replicas[b], world.truth)}


def shown(world: World, broker: int) -> list[str]:
    batches = world.replicas[broker].batches()
    return [batch.marker or " ".join((record.key or b"").decode() for record in batch.records) for batch in batches]


CLEANS = "1 cleans; 1 cleans; time passes; 1 cleans; 2 returns"
WAYS = {
    Anomaly.TOMBSTONE_DIVERGENCE: (V1, "p puts K; 2 leaves; p deletes K; 1 cleans; time passes; 1 cleans; 2 returns"),
    Anomaly.STUCK_LSO: (V2, f"t puts K; 2 leaves; t aborts; {CLEANS}"),
    Anomaly.ABORTED_TO_COMMITTED: (V1, f"t puts K; 2 leaves; t aborts; t puts K; t commits; {CLEANS}"),
    Anomaly.COMMITTED_TO_ABORTED: (V1, f"t puts K; p puts K; 2 leaves; t commits; t puts K; t aborts; {CLEANS}"),
}


@pytest.mark.parametrize("name", WAYS)
def test_known_ways_lead_to_their_anomaly_and_without_the_outage_nothing_goes_wrong(name: Anomaly) -> None:
    rules, way = WAYS[name]
    assert (2, name) in wrong(play(rules, described(way)))
    stays = [step for step in described(way) if step not in described("2 leaves; 2 returns")]
    assert not wrong(play(rules, stays))


@pytest.mark.parametrize("operation", [
    ops.TakeSnapshot("after"), ops.Write("q", "K"), ops.End("q", "commit"), ops.End("p", "commit"),
    ops.Restart("i"), ops.Inject("partition", 2), ops.Heal("lossy", 2), ops.AddReplica(4), ops.CopyBatch(2),
], ids=str)  # fmt: skip
def test_what_models_do_not_perform_is_refused(operation: ops.Operation) -> None:
    with pytest.raises(UsageError, match=f"{operation}|{operation.process} (is not a client|has no transactions)"):
        take(begin(V1), operation)


@pytest.mark.parametrize(("before", "step"), [
    *(("time passes", step) for step in ("p deletes K", "t commits", "2 returns", "1 leads", "4 leads", "4 cleans")),
    *(("2 leaves", step) for step in ("2 leaves", "2 leads")),
    ("p puts K; 2 leaves", "2 cleans"),
    ("2 leads", "2 leaves"),
])  # fmt: skip
def test_what_cannot_happen_is_skipped_and_takes_no_time(before: str, step: str) -> None:
    world = play(V1, described(before))
    now_ms = world.now_ms
    assert (take(world, *described(step)), world.now_ms) == (False, now_ms)


def test_time_goes_by_default_timers() -> None:
    world = play(V1, described("p puts K", "time passes"))
    assert world.now_ms == BEGIN_MS + STEP_MS + DAY_MS + HOUR_MS


def test_who_is_down_neither_copies_nor_cleans() -> None:
    down = play(V1, described("p puts K", "p puts K", "2 leaves", "p puts L", "2 cleans"))
    assert (shown(down, 2), shown(down, 3)) == (["K", "K"], ["K", "K", "L"])


def test_markers_of_version_2_have_the_next_epoch() -> None:
    batches = play(V2, described("t puts K", "t commits", "t puts K", "u puts K")).replicas[1].batches()
    assert [(batch.producer_id, batch.producer_epoch) for batch in batches] == [(7, 0), (7, 1), (7, 1), (8, 0)]


CLEANING_OF_REDPANDA = Cleaning(delete_retention_ms=10, producer_expiration_ms=10)
KEPT = Bounds(tombstones=0, markers=0)


def offsets(log: Replica) -> list[int]:
    return [record.offset for batch in log.batches() for record in batch.records]


def test_the_last_record_of_each_key_stays_and_the_active_segment_and_open_transactions_are_left_alone() -> None:
    log = replica(data(0, "K=v"), data(1, "K=v"), data(2, "L=v"), data(3, "L=v"))
    assert clean(log, CLEANING_OF_REDPANDA, 0)
    assert offsets(log) == [1, 2, 3]
    assert not clean(log, CLEANING_OF_REDPANDA, 0)
    log = replica(data(0, "K=v"), data(1, "L=v", txn=7), data(2, "K=v"), data(3, "x=v"))
    assert clean(log, CLEANING_OF_REDPANDA, 0)
    assert offsets(log) == [0, 1, 2, 3], "nothing from an open transaction on is compacted"
    assert progress(log) == Bounds(1, 1)


def test_a_tombstone_waits_for_its_age_and_for_mtro() -> None:
    log = replica(data(0, "K=v"), data(1, "K"), data(2, "x=v"))
    clean(log, CLEANING_OF_REDPANDA, 0)
    assert offsets(log) == [1, 2]
    assert not clean(log, CLEANING_OF_REDPANDA, 9)
    assert not clean(log, CLEANING_OF_REDPANDA, 10, Bounds(tombstones=1))
    assert clean(log, CLEANING_OF_REDPANDA, 10, Bounds(tombstones=2))
    assert offsets(log) == [2]


def test_committed_data_become_plain_and_aborted_data_go() -> None:
    aborted = (data(2, "L=v", txn=7), marker(3, ABORT, 7))
    log = replica(data(0, "K=v", txn=7), marker(1, COMMIT, 7), *aborted, data(4, "x=v"))
    assert progress(log) == Bounds(0, 0)
    clean(log, CLEANING_OF_REDPANDA, 0, KEPT)
    assert offsets(log) == [0, 1, 3, 4]
    assert not any(batch.transactional for batch in log.batches() if not batch.control)
    assert progress(log) == Bounds(4, 4)


def test_a_marker_waits_for_its_age_for_mxro_and_for_a_snapshot() -> None:
    written = [data(0, "K=v", txn=7), marker(1, COMMIT, 7)]
    one_roll = replica(*written, data(2, "x=v"))
    clean(one_roll, CLEANING_OF_REDPANDA, 0)
    assert not clean(one_roll, CLEANING_OF_REDPANDA, 10)
    assert clean(one_roll.fork(), CLEANING_OF_REDPANDA, 10, without=frozenset({"snapshot-first"}))
    two_rolls = replica(*written, data(2, "x=v"), data(3, "y=v"))
    clean(two_rolls, CLEANING_OF_REDPANDA, 0)
    assert not clean(two_rolls, CLEANING_OF_REDPANDA, 9)
    assert not clean(two_rolls, CLEANING_OF_REDPANDA, 10, Bounds(markers=1))
    assert clean(two_rolls, CLEANING_OF_REDPANDA, 10, Bounds(markers=2))
    assert offsets(two_rolls) == [0, 2, 3]


def test_without_a_rule() -> None:
    log = replica(data(0, "K=v"), data(1, "K"), data(2, "x=v"))
    clean(log, CLEANING_OF_REDPANDA, 0, without=frozenset({"tombstones-age"}))
    assert offsets(log) == [2]
    log = replica(data(0, "K=v", txn=7), marker(1, COMMIT, 7), data(2, "x=v"), data(3, "x=v"))
    clean(log, CLEANING_OF_REDPANDA, 0, without=frozenset({"markers-age", "committed-is-plain"}))
    assert offsets(log) == [0, 2, 3]
    assert next(log.batches()).transactional
    log = replica(data(0, "K=v", txn=7), marker(1, COMMIT, 7), data(2, "x=v"))
    assert progress(log, frozenset({"free-not-ended"})) == Bounds(0, 3), "MXFO as the post has it"


def test_the_last_batch_of_a_pass_leaves_its_offsets() -> None:
    log = replica(data(0, "K=v", txn=7), marker(1, ABORT, 7))
    traffic = replace(CLEANING_OF_REDPANDA, active_too=True)
    clean(log, traffic, 0)
    clean(log, traffic, 10)
    (batch,) = log.batches()
    assert (batch.base_offset, batch.last_offset, batch.records) == (1, 1, ())
    assert (batch.producer_id, batch.marker) == (-1, None)
    assert not clean(log, traffic, 10)


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


def test_what_is_acknowledged_is_with_everybody_in_sync_and_what_is_deleted_goes_from_all(subject: Subject) -> None:
    producer = subject.producer()
    assert [subject.put(producer, key) for key in "abcd"] == [0, 1, 2, 3]
    assert all(subject.batches(broker) == list(enumerate("abcd")) for broker in (1, 2, 3))
    subject.wait(subject.is_replicated)
    subject.cluster.delete_records(subject.partition, 3)
    subject.wait(lambda: {subject.partition.replica(broker).log_start for broker in (1, 2, 3)} == {3})
    subject.cluster.delete_records(subject.partition, 99)
    assert subject.partition.leader.log_start == 4, "no further than the high watermark"


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
    assert (producer.flush(), offsets) == (0, [2])
    assert subject.batches(2) == [(0, "a"), (1, "later"), (2, "lost")]
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
    assert (subject.partition.in_sync, subject.partition.replica(2).cleaned_to) == ([1, 3], 2)
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


@pytest.mark.parametrize(("settings", "due"), [
    ({"min.cleanable.dirty.ratio": 0.5}, False),
    ({"min.cleanable.dirty.ratio": 0.05}, True),
    ({"min.cleanable.dirty.ratio": 1.0, "max.compaction.lag.ms": 499}, True),
    ({"min.cleanable.dirty.ratio": 1.0, "max.compaction.lag.ms": 500}, False),
])  # fmt: skip
def test_a_pass_begins_where_much_is_dirty_or_has_been_for_long(settings: dict[str, float], *, due: bool) -> None:
    log = replica(batch(0, 0, 1000), batch(1, 500), batch(2, 600))
    log.cleaned_to = 1
    assert is_due(log, CLEANING, {**TOPIC, **settings}, 1000) is due


@pytest.mark.parametrize(("ratio", "due"), [(0.49, True), (0.5, False)])
def test_a_segment_with_the_log_start_inside_is_dirty_and_clean(ratio: float, *, due: bool) -> None:
    log = Replica(1)
    for number in range(3):
        log.append(batch(number, number), roll=number > 1)
    log.advance_high_watermark(3)
    log.delete_before(1)
    assert is_due(log, CLEANING, {**TOPIC, "min.cleanable.dirty.ratio": ratio}, 1000) is due


def test_time_alone_makes_a_pass_due_unless_nothing_is_dirty() -> None:
    log = replica(batch(0, 100), batch(1, 500))
    for setting, due_ms in ({"max.compaction.lag.ms": 1000}, 1101), ({"min.compaction.lag.ms": 300}, 401), ({}, None):
        assert due_later_ms(log, {**TOPIC, **setting}, 200) == due_ms
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
    producer, transactional, errors = subject.producer(), subject.producer("tx"), list[str]()
    subject.put(producer, "a")
    subject.put(transactional, "b")
    subject.cluster.kill(2)
    producer.send(TP, "sent", "v", [], lambda error, _: errors.append(str(error)))
    subject.cluster.delete("t")
    assert (producer.flush(), errors) == (0, ["the topic was deleted"])
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


@pytest.mark.parametrize("deletes", [False, True])
def test_what_a_failed_leader_had_alone_stays_lost_when_others_are_deleted(subject: Subject, *, deletes: bool) -> None:
    """A deletion raises the starts of leader epochs, above the offset of what was lost."""
    producer, transactional, offsets = subject.producer(), subject.producer("tx"), list[int]()
    subject.put(transactional, "a")
    subject.cluster.network.lost.update({2: 1.0, 3: 1.0})
    producer.send(TP, "lost", "v", [], lambda _, offset: offsets.append(offset))
    transactional.transact("commit")
    subject.wait(lambda: subject.batches(1)[-1] == (2, "commit"))
    subject.cluster.kill(1)
    subject.cluster.network.clear()
    subject.wait(lambda: subject.partition.leader_id == 2)
    for key in "bcd":
        subject.put(subject.producer(), key)
    if deletes:
        subject.cluster.delete_records(subject.partition, 4)
    assert (producer.flush(), offsets[0] >= 4) == (0, True)
    subject.wait(lambda: not subject.client.coordinator.ending())
    assert subject.partition.replica(2).open_transactions == []


def test_a_dead_broker_may_be_elected_where_nobody_knows_yet(subject: Subject) -> None:
    subject.cluster.kill(2)
    subject.partition.replication.away.add(3)
    subject.cluster.reassign(subject.partition, (2, 3))
    assert (subject.partition.leader_id, {*subject.partition.replication.replicas}) == (2, {2, 3})


@pytest.mark.parametrize("raises_epoch", [False, True])
def test_a_producer_is_fenced_by_a_later_one_of_its_id(subject: Subject, *, raises_epoch: bool) -> None:
    subject.client = replace(subject.client, raises_epoch=raises_epoch)
    first = subject.producer("tx")
    subject.put(first, "a")
    first.transact("commit")
    subject.put(first, "b")
    second = subject.producer("tx")
    abort = [batch.producer_epoch for batch in subject.partition.leader.batches() if batch.marker == ABORT]
    assert (abort, second.epoch) == ([1 + raises_epoch], 2 + raises_epoch)
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
