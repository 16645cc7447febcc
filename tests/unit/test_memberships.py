"""Groups that change their protocol, offsets that expire, and brokers that cannot coordinate a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.clock import TickingClock
from fakes.coordinator_log import batches, read_records_of

from harness.broker_files.internal_topics.decode import encode_group_key
from harness.clients import ClientError
from harness.errors import HarnessError, WaitTimeoutError
from harness.judge.consequences import group_consequences
from harness.kafka_api import TopicPartition
from harness.kafka_api.client_requests import CommittedOffsets, commit_offsets
from harness.play.group_workload import GroupWorkload, groups_of
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.schedules.catalog import GROUP_SCENARIOS, scenarios_for
from harness.targets import find_target
from workloads.group_consumers import Group, GroupReader
from workloads.group_records import CoordinatorProducer, Coordinators, memberships_producer

OFFSETS: TopicPartition = ("__consumer_offsets", 6)
GROUP = Group("g", OFFSETS, "in")
KEY = encode_group_key("g")
NOWHERE: Any = str
NOBODY: Any = None


@pytest.mark.parametrize(
    ("target", "missing"),
    [("kafka-3.9", {"group-upgraded"}), ("kafka-4.0", set()), ("sim-kafka", {s.name for s in GROUP_SCENARIOS})],
)
def test_scenarios_need_the_group_protocols_of_the_target(target: str, missing: set[str]) -> None:
    names = {scenario.name for scenario in scenarios_for("all", find_target(target).group_protocols)}
    assert {scenario.name for scenario in GROUP_SCENARIOS} - names == missing


@dataclass
class FakeMembers:
    """A coordinator and its log. As brokers do, it writes an empty group before the first member has joined.

    Like librdkafka: a member that is closed before the answer to its join does not leave.
    """

    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
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

    def batches(self, partition: TopicPartition) -> Sequence[Any]:
        assert partition == OFFSETS
        return batches(self)


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> FakeMembers:
    fake = FakeMembers()
    read_records_of(fake, monkeypatch)
    return fake


def producer_of(members: FakeMembers) -> CoordinatorProducer:
    coordinators = Coordinators(NOBODY, members.batches, NOBODY, NOBODY, NOBODY, TickingClock())
    return memberships_producer(members, coordinators, {OFFSETS: GROUP})  # type: ignore[arg-type]


def test_a_member_joins_and_leaves_and_the_record_of_the_empty_group_is_the_answer(members: FakeMembers) -> None:
    producer, answers = producer_of(members), []
    for value in ("classic", None):
        producer.send(OFFSETS, KEY, value, [], lambda error, offset: answers.append((error, offset)))
    assert answers == [(None, 4), (None, 6)]
    assert members.calls == [
        "g commits {('in', 0): 20}", "g joins for in: classic", "leaves", "g joins for in: consumer", "leaves",
    ]  # fmt: skip
    assert producer.flush() == 0


def test_a_member_that_is_rejected_is_no_record_and_none_is_part_of_a_transaction(members: FakeMembers) -> None:
    producer, answers = producer_of(members), []
    members.joins = False
    producer.send(OFFSETS, KEY, "classic", [], lambda *answer: answers.append(answer))
    assert answers == [("GROUP_AUTHORIZATION_FAILED", -1)]
    assert members.calls[-1] == "ends without leaving"
    with pytest.raises(TypeError, match="no transactional id"):
        producer.transact("begin")


def test_what_a_scenario_writes_depends_on_its_kind() -> None:
    test = plan_run(RunOptions("kafka-4.4", "groups"))
    cluster: Any = SimpleNamespace(admin=SimpleNamespace(delete_topic=None), clock=TickingClock())
    library: Any = SimpleNamespace(groups=FakeMembers())
    history: Any = SimpleNamespace(past=[], last_txn=lambda _: 0)
    (upgraded,) = [one for one in test.scenarios if one.name == "group-upgraded"]
    assert GroupWorkload(test, cluster, library, history).payload(upgraded).partitions == [OFFSETS]
    assert groups_of(test)[OFFSETS].topic == "group-upgraded-input"


@pytest.mark.parametrize(("retention_ms", "version"), [(None, 7), (1, 4)])
def test_a_commit_has_a_retention_of_its_own_only_in_older_versions(retention_ms: int | None, version: int) -> None:
    message: Any = commit_offsets("g", {("in", 0): 10}, retention_ms=retention_ms).message
    assert version == message.API_VERSION
    assert getattr(message, "retention_time_ms", -1) == (-1 if retention_ms is None else retention_ms)
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
    cluster: Any = SimpleNamespace(
        wait=wait, states=lambda: {place: SimpleNamespace(leader=1)}, runtime=SimpleNamespace(address=lambda _: "1")
    )
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
        clock=TickingClock(), settle_s=1.0, lead=led.append,
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


NOTHING = "got no record at all within 4 s (the broker answers NotCoordinatorError)"
BEGINS = "with broker 1 it begins in-0 at offset 0, in-1 at offset 0"
NO_COORDINATOR = CommittedOffsets({}, "NotCoordinatorError")
LOADED = CommittedOffsets({("in", 0): 10})
NEEDED_S = {"fetch offsets": 0.2, "consumer": 0.5}


def test_a_broker_that_never_coordinates_a_group_is_an_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    events = observed(monkeypatch, [NO_COORDINATOR], NEEDED_S)
    refused = ("fetch offsets", "NotCoordinatorError")
    assert [(one["f"], one.get("answer")) for one in events] == [refused, refused, ("consume", None)]
    there = {"type": "ok", "topic": OFFSETS[0], "partition": OFFSETS[1], "broker": 1, "group": "g", "input": "in"}
    events += [
        {**there, "f": "fetch offsets", "stable": True, "offsets": {}, "answer": None},
        {**there, "f": "consume", "protocol": "consumer", "first": {"0": 0, "1": 0}, "within_s": 30.0},
    ]
    who = "while broker 2 leads the partition of group g, a consumer (consumer protocol)"
    assert group_consequences(events, [2]) == {(OFFSETS, 2): [f"{who} {NOTHING}; {BEGINS}"]}


def test_a_broker_that_coordinates_after_a_while_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    events = observed(monkeypatch, [NO_COORDINATOR, NO_COORDINATOR, LOADED], NEEDED_S)
    assert [(one["offsets"], one["answer"]) for one in events[:2]] == [({"0": 10}, None)] * 2


def test_a_broker_that_was_never_away_has_to_coordinate_and_every_broker_to_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(HarnessError, match="broker 2 leads the partition of group g, and says NotCoordinatorError"):
        observed(monkeypatch, [NO_COORDINATOR], {})
    with pytest.raises(WaitTimeoutError):
        observed(monkeypatch, [], NEEDED_S)
