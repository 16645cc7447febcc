"""Groups of a run: coordinators, operations of clients and members, offsets that expire, and observed consequences."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.clock import TickingClock
from fakes.coordinator_log import LoggedCoordinator, read_records_of

from harness.broker_files.internal_topics import decode
from harness.broker_files.internal_topics.decode import OffsetKey, decode_offset_key, encode_offset_key
from harness.clients import ClientError
from harness.errors import HarnessError, WaitTimeoutError
from harness.judge.consequences import group_consequences, stuck_groups
from harness.kafka_api import UNSTABLE_OFFSET, TopicPartition
from harness.kafka_api.client_requests import CommittedOffsets, commit_offsets
from harness.play.group_workload import GroupWorkload, groups_of
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.schedules.catalog import GROUP_SCENARIOS, scenarios_for
from harness.schedules.scenario import Deletion, group_in, offsets_partition
from harness.targets import find_target
from workloads.group_consumers import Group, GroupReader
from workloads.group_records import Coordinators, memberships_producer, offset_key, offsets_producer

WRITTEN_BY_A_COORDINATOR = "AAEAEWdyb3VwLXN0dWNrLWxzby0yABVncm91cC1zdHVjay1sc28taW5wdXQAAAAA"
OFFSETS: TopicPartition = ("__consumer_offsets", 0)


@pytest.mark.parametrize(("group", "partitions", "partition"), [
    ("", 50, 0),
    ("a", 50, 97 % 50),
    ("group-stuck-lso-2", 5, 0),
    ("polygenelubricants", 50, 0),  # the smallest integer, whose absolute value is out of range
    ("\U0001f600", 1000, 772_899 % 1000),  # two UTF-16 units, as in Java
])  # fmt: skip
def test_a_group_is_kept_where_java_puts_it(group: str, partitions: int, partition: int) -> None:
    assert offsets_partition(group, partitions) == partition


def test_each_partition_of_a_test_has_one_group_of_its_scenario() -> None:
    test = plan_run(RunOptions("kafka-4.4", "groups", partitions=2))
    groups = groups_of(test)
    assert sorted(groups) == [("__consumer_offsets", n) for n in range(14)]
    names = ["group-stuck-lso-input", "group-stuck-lso-input", "group-aborted-to-committed-input"]
    assert [groups["__consumer_offsets", n].topic for n in (0, 1, 2)] == names
    assert all(offsets_partition(group.name, 14) == tp[1] for tp, group in groups.items())
    assert test.broker_settings["offsets.topic.num.partitions"] == "14"
    assert group_in("g", 3, 10).startswith("g-")


def test_a_key_has_the_bytes_that_a_coordinator_writes() -> None:
    content = base64.b64decode(WRITTEN_BY_A_COORDINATOR)
    key = OffsetKey("group-stuck-lso-2", "group-stuck-lso-input", 0)
    assert (encode_offset_key(key), decode_offset_key(content)) == (content, key)
    assert offset_key("group-stuck-lso", "group-stuck-lso-2", "0") == content


@pytest.mark.parametrize("content", [
    b"", b"\x00", b"\x00\x01\x00\x05ab", b"\x00\x02\x00\x01g", b"\x00\x01\x00\x01\xff\x00\x01t\x00\x00\x00\x00",
])  # fmt: skip
def test_other_keys_are_none_of_committed_offsets(content: bytes) -> None:
    assert decode_offset_key(content) is None


@dataclass
class FakeGroups(LoggedCoordinator):
    """Implements `LibraryGroups` and `GroupsProducer` over a list of records. ``refuses``: whether commits fail."""

    partition: TopicPartition = OFFSETS
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


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> FakeGroups:
    return read_records_of(FakeGroups(), monkeypatch)


def sent(groups: FakeGroups, value: str | None, *, transactional_id: str | None = None, **more: Any) -> Any:
    topics = (groups.delete_topic, groups.create_topic)
    coordinators = Coordinators(lambda _: 1, groups.batches, *topics, groups.expire, TickingClock())
    producer = offsets_producer(groups, coordinators, transactional_id, **more)
    answers: list[tuple[str, int]] = []
    key = encode_offset_key(OffsetKey("g", "in", 0))
    producer.send(OFFSETS, key, value, [], lambda error, offset: answers.append((str(error or ""), offset)))
    return answers, producer, key


def test_a_put_commits_also_in_a_transaction_and_is_answered_with_the_coordinators_record(groups: FakeGroups) -> None:
    groups.log = [(b"other", b""), (encode_offset_key(OffsetKey("g", "in", 1)), b"")]
    answers, producer, key = sent(groups, "10")
    assert (answers, groups.calls) == ([("", 2)], ["commit 10 of in-0 for g"])
    producer.send(OFFSETS, key, "11", [], lambda error, offset: answers.append((str(error or ""), offset)))
    assert answers[-1] == ("", 3), "the newer one"
    answers, _, _ = sent(groups, "60", transactional_id="t")
    assert (answers, groups.calls[-2:]) == ([("", 4)], ["producer t", "commit 60 of in-0 for g"])


def test_a_delete_is_of_the_group_its_input_or_an_offset_that_expires(groups: FakeGroups) -> None:
    groups.log = [(encode_offset_key(OffsetKey("g", "in", 0)), b"10")]
    assert sent(groups, None)[0] == [("", 1)]
    assert sent(groups, None, deletes=Deletion.INPUT)[0] == [("", 2)]
    assert sent(groups, None, deletes=Deletion.EXPIRY)[0] == [("", 4)], "the tombstone, and not the commit before it"
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


@pytest.mark.parametrize(("offset", "there", "sentences"), [
    (60, 10, [f"{A_CONSUMER}skips offsets 10 to 59 of in-0; {BEGINS} at offset 10"]),
    (10, 11, [f"{A_CONSUMER}repeats offset 10 of in-0; {BEGINS} at offset 11"]),
    (10, None, [SKIPS_ALL, f"{WHO}offset 10 of in-0 is committed, which with broker 1 is deleted"]),
    (61, 61, []),
], ids=["skips", "repeats", "deleted", "no effect"])  # fmt: skip
def test_consequences_are_what_differs(offset: int, there: int | None, sentences: list[str]) -> None:
    events = seen(2, first={"0": offset, "1": 5}, offsets={"0": offset})
    events += seen(1, first={"0": there or 0, "1": 5}, offsets={} if there is None else {"0": there})
    assert group_consequences(events, [2]) == ({HERE: sentences} if sentences else {})


def test_a_consumer_that_gets_no_record_is_frozen_compared_with_a_broker_that_stayed() -> None:
    events = seen(2, first={}, offsets={}, answer="Unstable") + seen(1, first={"0": 61, "1": 0}, offsets={"0": 61})
    nothing = "got no record at all within 6 s (the broker answers Unstable)"
    expected = f"{A_CONSUMER}{nothing}; {BEGINS} in-0 at offset 61, in-1 at offset 0"
    assert group_consequences(events, [2])[HERE] == [expected]
    assert group_consequences(seen(2, first={}, offsets={}), [2]) == {}


def test_protocols_that_suffer_alike_share_a_sentence() -> None:
    events: list[Any] = []
    for protocol in ("classic", "consumer"):
        for broker, offset in ((2, 60), (1, 10)):
            events += seen(broker, first={"0": offset}, offsets={"0": offset}, protocol=protocol)
    (sentence,) = group_consequences(events, [2])[HERE]
    assert sentence.startswith(f"{WHO}a consumer (classic, consumer protocol) skips offsets 10 to 59")


@pytest.mark.parametrize(("changes", "brokers"), [
    ({}, [1, 3]),
    ({1: {"first": {"0": 61}}}, None),
    ({3: {"answer": None}}, [1]),
    ({1: {"answer": None}, 3: {"answer": None}}, None),
], ids=["all that stayed", "delivered", "one answers", "only the absent one"])  # fmt: skip
def test_stuck_groups(changes: dict[int, dict[str, Any]], brokers: list[int] | None) -> None:
    events: list[Any] = []
    for broker in (1, 2, 3):
        view = {"first": {}, "offsets": {}, "answer": UNSTABLE_OFFSET, **changes.get(broker, {})}
        events += seen(broker, **view)
    found = list(stuck_groups(events, [2]))
    assert [finding.witness["brokers"] for finding in found] == ([] if brokers is None else [brokers])
    for finding in found:
        assert (finding.anomaly, finding.place, finding.effect) == ("stuck-group", HERE[0], "visible")
        assert finding.explanation.startswith("group g got no record within 6 s from broker")


@pytest.mark.parametrize(("within_s", "first", "silent"), [
    (30.0, {"0": 61}, "1"), (30.0, {"0": 61, "1": 0}, ""), (6.0, {"0": 61}, ""), (30.0, {}, ""),
])  # fmt: skip
def test_a_group_that_gets_nothing_of_one_partition_is_stuck(within_s: float, first: Any, silent: str) -> None:
    """The machine may be too slow if no group gets anything."""
    events = [event | {"within_s": within_s} for broker in (1, 2, 3) for event in seen(broker, first=first, offsets={})]
    expected = f"group g got no record of partition {silent} of its input within 30 s from brokers 1, 3"
    assert [it.explanation for it in stuck_groups(events, [2])] == ([expected] if silent else [])


UPGRADED: TopicPartition = ("__consumer_offsets", 6)
GROUP = Group("g", UPGRADED, "in")
KEY = decode.encode_group_key("g")
NOWHERE: Any = str
NOBODY: Any = None


@pytest.mark.parametrize(("target", "missing"), [
    ("kafka-3.9", {"group-upgraded"}), ("kafka-4.0", set()), ("sim-kafka", {s.name for s in GROUP_SCENARIOS}),
])  # fmt: skip
def test_scenarios_need_the_group_protocols_of_the_target(target: str, missing: set[str]) -> None:
    names = {scenario.name for scenario in scenarios_for("all", find_target(target).group_protocols)}
    assert {scenario.name for scenario in GROUP_SCENARIOS} - names == missing


@dataclass
class FakeMembers(LoggedCoordinator):
    """A coordinator: as brokers do, it writes an empty group first; a member that is closed early does not leave."""

    partition: TopicPartition = UPGRADED
    joins: bool = True
    polls: int = 0

    def commit(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        self.calls.append(f"{group} commits {offsets}")

    def consumer(self, group: str, topic: str, protocol: str) -> FakeMembers:
        self.calls.append(f"{group} joins for {topic}: {protocol}")
        self.protocol, self.polls = protocol, 0
        return self

    def poll(self, timeout_s: float) -> Sequence[Any]:
        assert timeout_s > 0
        if not self.joins:
            raise ClientError("GROUP_AUTHORIZATION_FAILED")
        self.polls += 1
        if self.protocol == "consumer":
            self.log += [(b"other", b""), (KEY, None)]
        elif self.polls <= 2:
            self.log += [(b"other", b""), (KEY, b"" if self.polls == 1 else b"one member")]
        return [(("in", 0), 0)] if self.polls > 2 else []

    def close(self) -> None:
        self.calls.append("leaves" if self.polls > 2 else "ends without leaving")
        if self.polls > 2 and self.protocol == "classic":
            self.log.append((KEY, b"without members"))


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> FakeMembers:
    return read_records_of(FakeMembers(), monkeypatch)


def producer_of(members: FakeMembers) -> Any:
    coordinators = Coordinators(NOBODY, members.batches, NOBODY, NOBODY, NOBODY, TickingClock())
    return memberships_producer(members, coordinators, {UPGRADED: GROUP})  # type: ignore[arg-type]


def test_a_member_joins_and_leaves_and_the_record_of_the_empty_group_is_the_answer(members: FakeMembers) -> None:
    producer, answers = producer_of(members), []
    for value in ("classic", None):
        producer.send(UPGRADED, KEY, value, [], lambda error, offset: answers.append((str(error or ""), offset)))
    assert answers == [("", 4), ("", 6)]
    joins = ("g joins for in: classic", "leaves", "g joins for in: consumer", "leaves")
    assert members.calls == ["g commits {('in', 0): 20}", *joins]
    assert producer.flush() == 0


def test_a_member_that_is_rejected_is_no_record_and_none_is_part_of_a_transaction(members: FakeMembers) -> None:
    producer, answers = producer_of(members), []
    members.joins = False
    producer.send(UPGRADED, KEY, "classic", [], lambda error, offset: answers.append((str(error), offset)))
    assert answers == [("GROUP_AUTHORIZATION_FAILED", -1)]
    assert members.calls[-1] == "ends without leaving"
    with pytest.raises(TypeError, match="no transactional id"):
        producer.transact("begin")


def test_what_a_scenario_writes_depends_on_its_kind() -> None:
    test = plan_run(RunOptions("kafka-4.4", "groups"))
    cluster: Any = SimpleNamespace(admin=SimpleNamespace(delete_topic=None), clock=TickingClock())
    library: Any = SimpleNamespace(groups=FakeMembers())
    history: Any = SimpleNamespace(past=[], last_txn=lambda _: 0)
    (upgraded,) = [scenario for scenario in test.scenarios if scenario.name == "group-upgraded"]
    assert GroupWorkload(test, cluster, library, history).payload(upgraded).partitions == [UPGRADED]
    assert groups_of(test)[UPGRADED].topic == "group-upgraded-input"


@pytest.mark.parametrize(("retention_ms", "version"), [(None, 7), (1, 4)])
def test_a_commit_has_a_retention_of_its_own_only_in_older_versions(retention_ms: int | None, version: int) -> None:
    message: Any = commit_offsets("g", {("in", 0): 10}, retention_ms=retention_ms).message
    assert (message.API_VERSION, getattr(message, "retention_time_ms", -1)) == (version, retention_ms or -1)
    encoded = bytes(message.encode())
    assert (b"\x00" * 7 + b"\x01" in encoded) is (retention_ms is not None), "64 bits of milliseconds"


def test_the_offset_that_expires_is_committed_once_the_coordinator_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """``cluster.wait`` takes an OSError for "not yet", as the cluster's own does."""
    tries: list[tuple[Any, ...]] = []

    def ask(_address: Any, request: Any) -> None:
        (topic,) = request.message.topics
        tries.append((request.message.group_id, topic.name, request.message.retention_time_ms))
        if len(tries) == 1:
            raise ConnectionError("no coordinator yet")

    def wait(condition: Callable[[], bool], _what: str) -> None:
        with pytest.raises(OSError, match="no coordinator yet"):
            condition()
        assert condition()

    monkeypatch.setattr("harness.play.group_workload.ask", ask)
    test = plan_run(RunOptions("kafka-4.4", "groups"))
    (place,) = test.partitions["group-expired"]
    states, runtime = {place: SimpleNamespace(leader=1)}, SimpleNamespace(address=lambda _: "1")
    cluster: Any = SimpleNamespace(wait=wait, states=lambda: states, runtime=runtime)
    group = groups_of(test)[place]
    GroupWorkload(test, cluster, NOBODY, NOBODY).expire(group.name, group.inputs[0])
    assert tries == [(group.name, "group-expired-input", 1)] * 2


def test_groups_are_observed_with_brokers_that_have_their_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five brokers, only brokers that were down have every partition."""
    asked, needed, led = list[dict[TopicPartition, int]](), [], list[dict[TopicPartition, tuple[int, ...]]]()

    def observe(_: GroupReader, coordinators: dict[Group, int], *, needed_s: Any, **_more: object) -> dict[str, float]:
        asked.append({group.partition: broker for group, broker in coordinators.items()})
        needed.append(needed_s)
        return {"classic": float(len(asked))}

    monkeypatch.setattr(GroupReader, "ask", observe)
    monkeypatch.setattr(GroupReader, "consume", observe)
    test = plan_run(RunOptions("kafka-3.9", "groups", brokers=5, absent=2))
    cluster: Any = SimpleNamespace(
        absent=test.placement.absent, replicas=test.replicas, runtime=SimpleNamespace(address=NOWHERE),
        clock=TickingClock(), settle_s=1.0, lead=led.append, states=dict,
    )  # fmt: skip
    library: Any = SimpleNamespace(groups=None)
    monkeypatch.setattr(GroupWorkload, "_client", None)
    GroupWorkload(test, cluster, library, NOBODY).observe()
    assert asked[0] == {("__consumer_offsets", n): (1, 4, 5)[n % 3] for n in range(6)}
    assert [set(one.values()) for one in asked[1:3]] == [{2}, {3}]
    assert asked[3:] == asked[:3], "offsets are fetched from all before anyone joins"
    assert needed == [{}, {"classic": 1.0}, {"classic": 1.0}, {}, {"classic": 4.0}, {"classic": 4.0}]
    assert all(set(order) == set(test.replicas[tp]) for orders in led for tp, order in orders.items())
    assert [{tp: order[0] for tp, order in orders.items()} for orders in led] == asked


def observed(
    monkeypatch: pytest.MonkeyPatch, answers: Sequence[CommittedOffsets], needed_s: dict[str, float]
) -> list[dict[str, Any]]:
    """Return the events of a reader whose members get no record, and whose broker answers so; no answer: refuses."""

    def ask(*_: Any) -> CommittedOffsets:
        if not answers:
            raise ConnectionRefusedError
        return next(rest, answers[-1])

    def complete(kind: str, event: dict[str, Any], **fields: Any) -> None:
        completed.append({**event, **fields, "type": kind})

    rest, completed = iter(answers), list[dict[str, Any]]()
    monkeypatch.setattr("workloads.group_consumers.connection.ask", ask)
    history: Any = SimpleNamespace(invoke=dict, complete=complete)
    member = SimpleNamespace(poll=lambda _timeout_s: [], close=lambda: None)
    library: Any = SimpleNamespace(consumer=lambda *_: member)
    reader = GroupReader(library, history, TickingClock(), "after", NOWHERE, 30.0)
    reader.ask({GROUP: 2}, needed_s)
    reader.consume({GROUP: 2}, ("consumer",), needed_s)
    return completed


NOTHING = "got no record at all within 2.5 s (the broker answers NotCoordinatorError)"
BEGINS_AT_0 = "with broker 1 it begins in-0 at offset 0, in-1 at offset 0"
NO_COORDINATOR = CommittedOffsets({}, "NotCoordinatorError")
LOADED = CommittedOffsets({("in", 0): 10})
NEEDED_S = {"fetch offsets": 0.2, "consumer": 0.5}


def test_a_broker_is_asked_until_it_coordinates_or_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    events = observed(monkeypatch, [NO_COORDINATOR], NEEDED_S)
    refused = ("fetch offsets", "NotCoordinatorError")
    assert [(one["f"], one.get("answer")) for one in events] == [refused, refused, ("consume", None)]
    there = {"type": "ok", "topic": UPGRADED[0], "partition": UPGRADED[1], "broker": 1, "group": "g", "input": "in"}
    events += [
        {**there, "f": "fetch offsets", "stable": True, "offsets": {}, "answer": None},
        {**there, "f": "consume", "protocol": "consumer", "first": {"0": 0, "1": 0}, "within_s": 30.0},
    ]
    who = "while broker 2 leads the partition of group g, a consumer (consumer protocol)"
    assert group_consequences(events, [2]) == {(UPGRADED, 2): [f"{who} {NOTHING}; {BEGINS_AT_0}"]}
    events = observed(monkeypatch, [NO_COORDINATOR, NO_COORDINATOR, LOADED], NEEDED_S)
    assert [(one["offsets"], one["answer"]) for one in events[:2]] == [({"0": 10}, None)] * 2


def test_brokers_that_stayed_coordinate_and_all_brokers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HarnessError, match="broker 2 leads the partition of group g, and says NotCoordinatorError"):
        observed(monkeypatch, [NO_COORDINATOR], {})
    with pytest.raises(WaitTimeoutError):
        observed(monkeypatch, [], NEEDED_S)
