"""Groups of a run: their coordinators, the operations of their clients, and the observed consequences."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from fakes.clock import TickingClock
from fakes.coordinator_log import batches, read_records_of

from harness.broker_files.internal_topics.decode import OffsetKey, decode_offset_key, encode_offset_key
from harness.clients import ClientError
from harness.errors import WaitTimeoutError
from harness.judge.consequences import group_consequences, stuck_groups
from harness.kafka_api import UNSTABLE_OFFSET, TopicPartition
from harness.play.group_workload import groups_of
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.schedules.scenario import Deletion, group_in, offsets_partition
from workloads.group_records import Coordinators, offset_key, offsets_producer

WRITTEN_BY_A_COORDINATOR = "AAEAEWdyb3VwLXN0dWNrLWxzby0yABVncm91cC1zdHVjay1sc28taW5wdXQAAAAA"
OFFSETS: TopicPartition = ("__consumer_offsets", 0)


@pytest.mark.parametrize(
    ("group", "partitions", "partition"),
    [
        ("", 50, 0),
        ("a", 50, 97 % 50),
        ("group-stuck-lso-2", 5, 0),
        ("polygenelubricants", 50, 0),  # the smallest integer, whose absolute value is out of range
        ("\U0001f600", 1000, 772_899 % 1000),  # two UTF-16 units, as in Java
    ],
)
def test_a_group_is_kept_where_java_puts_it(group: str, partitions: int, partition: int) -> None:
    assert offsets_partition(group, partitions) == partition


def test_each_partition_of_a_test_has_one_group_of_its_scenario() -> None:
    test = plan_run(RunOptions("kafka-4.4", "groups", partitions=2))
    groups = groups_of(test)
    assert sorted(groups) == [("__consumer_offsets", n) for n in range(14)]
    stuck, second, poison = (groups["__consumer_offsets", n].topic for n in (0, 1, 2))
    assert (stuck, second, poison) == ("group-stuck-lso-input", stuck, "group-aborted-to-committed-input")
    assert all(offsets_partition(group.name, 14) == tp[1] for tp, group in groups.items())
    assert test.broker_settings["offsets.topic.num.partitions"] == "14"
    assert group_in("g", 3, 10).startswith("g-")


@pytest.mark.parametrize(("name", "protocols"), [("kafka-3.9", ("classic",)), ("kafka-4.0", ("classic", "consumer"))])
def test_group_protocols_are_those_of_the_version(name: str, protocols: tuple[str, ...]) -> None:
    assert plan_run(RunOptions(name, "groups")).target.group_protocols == protocols


def test_a_key_has_the_bytes_that_a_coordinator_writes() -> None:
    content = base64.b64decode(WRITTEN_BY_A_COORDINATOR)
    key = OffsetKey("group-stuck-lso-2", "group-stuck-lso-input", 0)
    assert encode_offset_key(key) == content
    assert decode_offset_key(content) == key
    assert offset_key("group-stuck-lso", "group-stuck-lso-2", "0") == content


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"\x00\x01\x00\x05ab", b"\x00\x02\x00\x01g", b"\x00\x01\x00\x01\xff\x00\x01t\x00\x00\x00\x00"],
)
def test_other_keys_are_none_of_committed_offsets(content: bytes) -> None:
    assert decode_offset_key(content) is None


@dataclass
class FakeGroups:
    """Implements `LibraryGroups` and `GroupsProducer` over a list of records. ``refuses``: whether commits fail."""

    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    refuses: bool = False
    writes: bool = True

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.send_offsets(group, offsets)

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        if self.refuses:
            raise ClientError("COORDINATOR_NOT_AVAILABLE")
        for (topic, partition), offset in offsets.items():
            self.calls.append(f"commit {offset} of {topic}-{partition} for {group}")
            if self.writes:
                self.log.append((encode_offset_key(OffsetKey(group, topic, partition)), b"%d" % offset))

    def delete(self, group: str) -> None:
        self.calls.append(f"delete {group}")
        self.log.append((encode_offset_key(OffsetKey(group, "in", 0)), None))

    def create_topic(self, topic: str) -> None:
        self.calls.append(f"create {topic}")

    def delete_topic(self, topic: str) -> None:
        self.calls.append(f"delete {topic}")
        self.log.append((encode_offset_key(OffsetKey("g", topic, 0)), None))

    def expire(self, group: str, partition: TopicPartition) -> None:
        self.calls.append(f"expire {partition[0]}-{partition[1]} of {group}")
        key = encode_offset_key(OffsetKey(group, *partition))
        self.log += [(key, b"0"), (key, None)]

    def producer(self, transactional_id: str) -> Any:
        self.calls.append(f"producer {transactional_id}")
        return self

    def consumer(self, group: str, topic: str, protocol: str) -> Any:
        raise NotImplementedError

    def batches(self, partition: TopicPartition) -> Sequence[Any]:
        assert partition == OFFSETS
        return batches(self)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> FakeGroups:
    fake = FakeGroups()
    read_records_of(fake, monkeypatch)
    return fake


def sent(groups: FakeGroups, value: str | None, *, transactional_id: str | None = None, **more: Any) -> Any:
    coordinators = Coordinators(
        lambda _: 1, groups.batches, groups.delete_topic, groups.create_topic, groups.expire, TickingClock()
    )
    producer = offsets_producer(groups, coordinators, transactional_id, **more)
    answers: list[tuple[str | None, int]] = []
    key = encode_offset_key(OffsetKey("g", "in", 0))
    producer.send(OFFSETS, key, value, [], lambda error, offset: answers.append((error, offset)))
    return answers, producer, key


def test_a_put_commits_and_is_answered_with_the_coordinators_record(groups: FakeGroups) -> None:
    groups.log = [(b"other", b""), (encode_offset_key(OffsetKey("g", "in", 1)), b"")]
    answers, producer, key = sent(groups, "10")
    assert (answers, groups.calls) == ([(None, 2)], ["commit 10 of in-0 for g"])
    producer.send(OFFSETS, key, "11", [], lambda error, offset: answers.append((error, offset)))
    assert answers[-1] == (None, 3), "the newer one"


def test_a_put_in_a_transaction_is_the_transactions(groups: FakeGroups) -> None:
    answers, _, _ = sent(groups, "60", transactional_id="t")
    assert (answers, groups.calls) == ([(None, 0)], ["producer t", "commit 60 of in-0 for g"])


def test_a_delete_is_of_the_group_its_input_or_an_offset_that_expires(groups: FakeGroups) -> None:
    groups.log = [(encode_offset_key(OffsetKey("g", "in", 0)), b"10")]
    assert sent(groups, None)[0] == [(None, 1)]
    assert sent(groups, None, deletes=Deletion.INPUT)[0] == [(None, 2)]
    assert sent(groups, None, deletes=Deletion.EXPIRY)[0] == [(None, 4)], "the tombstone, and not the commit before it"
    assert groups.calls == ["delete g", "delete in", "create in", "expire in-0 of g"]


def test_what_a_library_refuses_is_no_record_and_a_commit_that_no_log_shows_ends_the_wait(groups: FakeGroups) -> None:
    groups.writes = False
    with pytest.raises(WaitTimeoutError, match="the committed offset in __consumer_offsets-0"):
        sent(groups, "10")
    groups.refuses = True
    assert sent(groups, "10")[0] == [("COORDINATOR_NOT_AVAILABLE", -1)]


def seen(broker: int, *, first: dict[str, int], offsets: dict[str, int], protocol: str = "classic", **more: Any) -> Any:
    who = {"type": "ok", "topic": "__consumer_offsets", "partition": 3, "broker": broker, "group": "g", "input": "in"}
    return [
        {**who, "f": "fetch offsets", "stable": True, "offsets": offsets, **more},
        {**who, "f": "fetch offsets", "stable": False, "offsets": {"0": 99}},
        {**who, "f": "consume", "protocol": protocol, "first": first, "within_s": 6.0},
    ]


HERE = (("__consumer_offsets", 3), 2)
WHO = "while broker 2 coordinates group g, "
A_CONSUMER = f"{WHO}a consumer (classic protocol) "
BEGINS = "with broker 1 it begins"


SKIPS_ALL = f"{A_CONSUMER}skips offsets 0 to 9 of in-0; {BEGINS} at offset 0"


@pytest.mark.parametrize(
    ("offset", "there", "sentences"),
    [
        (60, 10, [f"{A_CONSUMER}skips offsets 10 to 59 of in-0; {BEGINS} at offset 10"]),
        (10, 11, [f"{A_CONSUMER}repeats offset 10 of in-0; {BEGINS} at offset 11"]),
        (10, None, [SKIPS_ALL, f"{WHO}offset 10 of in-0 is committed, which with broker 1 is deleted"]),
        (61, 61, []),
    ],
    ids=["skips", "repeats", "deleted", "no effect"],
)
def test_a_consequence_is_what_differs_between_coordinators(
    offset: int, there: int | None, sentences: list[str]
) -> None:
    events = seen(2, first={"0": offset, "1": 5}, offsets={"0": offset})
    events += seen(1, first={"0": there or 0, "1": 5}, offsets={} if there is None else {"0": there})
    assert group_consequences(events, [2]) == ({HERE: sentences} if sentences else {})


def test_a_consumer_that_gets_no_record_is_frozen() -> None:
    events = seen(2, first={}, offsets={}, answer="Unstable") + seen(1, first={"0": 61, "1": 0}, offsets={"0": 61})
    (sentence,) = group_consequences(events, [2])[HERE]
    assert sentence == (
        f"{A_CONSUMER}got no record at all within 6 s (the broker answers Unstable); "
        f"{BEGINS} in-0 at offset 61, in-1 at offset 0"
    )


def test_protocols_that_suffer_alike_share_a_sentence() -> None:
    events = [
        event
        for protocol in ("classic", "consumer")
        for broker, offset in ((2, 60), (1, 10))
        for event in seen(broker, first={"0": offset}, offsets={"0": offset}, protocol=protocol)
    ]
    (sentence,) = group_consequences(events, [2])[HERE]
    assert sentence.startswith(f"{WHO}a consumer (classic, consumer protocol) skips offsets 10 to 59")


def test_without_a_broker_that_stayed_nothing_is_concluded() -> None:
    assert group_consequences(seen(2, first={}, offsets={}), [2]) == {}


@pytest.mark.parametrize(
    ("changes", "brokers"),
    [
        ({}, [1, 3]),
        ({1: {"first": {"0": 61}}}, None),
        ({3: {"answer": None}}, [1]),
        ({1: {"answer": None}, 3: {"answer": None}}, None),
    ],
    ids=["all that stayed", "delivered", "one answers", "only the absent one"],
)
def test_a_group_that_no_coordinator_lets_go_on_is_stuck(
    changes: dict[int, dict[str, Any]], brokers: list[int] | None
) -> None:
    views = {
        broker: {"first": {}, "offsets": {}, "answer": UNSTABLE_OFFSET} | changes.get(broker, {})
        for broker in (1, 2, 3)
    }
    found = list(stuck_groups([event for broker, view in views.items() for event in seen(broker, **view)], [2]))
    assert [finding.witness["brokers"] for finding in found] == ([] if brokers is None else [brokers])
    for finding in found:
        assert (finding.anomaly, finding.place, finding.effect) == ("stuck-group", HERE[0], "visible")
        assert finding.explanation.startswith("group g got no record within 6 s from broker")
