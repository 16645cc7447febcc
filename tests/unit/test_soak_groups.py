"""Offsets of groups: the knowledge of clients, and wrong views, on histories and logs of few lines."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from test_soak_clients import history, of_id
from test_soak_truth import TRANSACTIONAL, end, replica

from harness.broker_files.internal_topics.decode import OffsetKey, encode_group_key, encode_offset_key
from harness.broker_files.segments.batches import Record
from harness.broker_files.segments.encode import encode_batch
from harness.judge.group_offsets import GroupView, replayed, wrong_offsets
from harness.kafka_api import UNSTABLE_OFFSET
from harness.run_folder.history import FAIL, INVOKE, OK, RECREATE
from harness.run_folder.store import RunFolder
from harness.soak.evidence.internal_topics import ANSWERS, answered, refusal_in, serves_groups
from harness.soak.judge.group_truth import NAMELESS, GroupLog, compare_groups, group_log_of

INFO = "info"
KEY = ("g", ("t", 0))
ABORTED_SERVED, HIDDEN, BACK, STUCK = (
    "aborted-to-committed", "committed-to-aborted", "tombstone-divergence", "stuck-lso",
)  # fmt: skip


def log(*lines: tuple[Any, ...]) -> GroupLog:
    """Return the knowledge from events of (type, f, op, more)."""
    return group_log_of(history(*lines))


def plain(op: int, kind: str = INVOKE) -> Any:
    return kind, "commit offset", op, {"group": "g", "input": "t-0", "committed": op}


def sent(op: int, kind: str = INVOKE) -> Any:
    more = {"group": "g", "input": "t-0", "committed": op, "transactional_id": "id", "txn": 1}
    return kind, "send offset", op, more


def deleted(op: int, kind: str = INVOKE) -> Any:
    return kind, "delete group", op, {"group": "g"}


def done(make: Any, op: int) -> list[Any]:
    return [make(op), make(op, OK)]


def ended(f: str, op: int) -> list[Any]:
    return [of_id(INVOKE, f, op, 1), of_id(OK, f, op, 1)]


@pytest.mark.parametrize(("lines", "possible"), [
    (done(plain, 1), {1}),
    ([plain(1)], {1, None}),
    ([plain(1), plain(1, FAIL)], {None}),
    ([*done(plain, 1), *done(plain, 2)], {2}),
    # Both were under way at once: no client knows which of them is the later one.
    ([plain(1), plain(2), plain(1, OK), plain(2, OK)], {1, 2}),
    ([*done(plain, 1), plain(2), plain(2, INFO)], {1, 2}),
    ([*done(sent, 1), *ended("commit", 2)], {1}),
    ([*done(plain, 1), *done(sent, 2), *ended("abort", 3)], {1}),
    ([*done(plain, 1), *done(sent, 2), of_id(INVOKE, "commit", 3, 1)], {1, 2}),
    # The new start of the transactional id aborts what its former client left open.
    ([*done(plain, 1), *done(sent, 2), of_id(INVOKE, "init", 3), of_id(OK, "init", 3)], {1}),
    # By when it was sent, and not by when its transaction has ended.
    ([*done(sent, 1), *done(plain, 2), *ended("commit", 3)], {2}),
    ([*done(plain, 1), *done(deleted, 2)], {None}),
    ([*done(plain, 1), deleted(2), deleted(2, INFO)], {1, None}),
    ([*done(deleted, 1), *done(plain, 2)], {2}),
    # The old coordinator deletes no pending offset.
    ([*done(sent, 1), *done(deleted, 2), *ended("commit", 3)], {1, None}),
    ([*done(sent, 1), *ended("commit", 2), *done(deleted, 3)], {None}),
    ([*done(plain, 1), (INVOKE, RECREATE, 2, {"topic": "t"}), (OK, RECREATE, 2, {"topic": "t"})], {1, None}),
])  # fmt: skip
def test_offsets_that_a_group_may_have_in_the_end(lines: list[Any], possible: set[int | None]) -> None:
    # A deletion counts as a change of the keys that were ever committed.
    assert log(*lines).possible(KEY).keys() == possible


def view(offset: int | None, *pending: int) -> GroupView:
    committed = {} if offset is None else {KEY: offset}
    return GroupView(2, 0, "its replica", committed, {KEY: set(pending)} if pending else {})


@pytest.mark.parametrize(("lines", "here", "name"), [
    (done(plain, 1), view(1), None),
    ([*done(plain, 1), *done(plain, 2)], view(1), NAMELESS),
    (done(plain, 1), view(None), NAMELESS),
    (done(plain, 1), view(9), NAMELESS),
    ([*done(plain, 1), *done(sent, 2), *ended("abort", 3)], view(2), ABORTED_SERVED),
    ([*done(plain, 1), *done(sent, 2), *ended("commit", 3)], view(1), HIDDEN),
    ([*done(sent, 2), *ended("commit", 3)], view(None), HIDDEN),
    ([*done(plain, 1), *done(deleted, 2)], view(1), BACK),
    ([*done(plain, 1), *done(sent, 2), *ended("commit", 3)], view(1, 2), STUCK),
    # Pending as long as no client knows that its transaction has ended.
    ([*done(plain, 1), *done(sent, 2)], view(1, 2), None),
])  # fmt: skip
def test_a_view_is_wrong_by_name(lines: list[Any], here: GroupView, name: str | None) -> None:
    truth = compare_groups(log(*lines), [here])
    assert [anomaly for _, anomaly, _ in truth.wrongs] == ([] if name is None else [name])
    assert truth.counts == {"keys": 1, "views": 1, "unknown": truth.unknown, "wrong": len(truth.wrongs)}


def test_a_finding_has_the_partition_and_says_whose_view_it_is() -> None:
    lines = [*done(plain, 1), *done(sent, 2), *ended("abort", 3)]
    (symptom,) = compare_groups(log(*lines), [view(1), view(2)]).symptoms()
    assert (symptom.anomaly, symptom.broker, symptom.partition) == (ABORTED_SERVED, 2, ("__consumer_offsets", 0))
    assert symptom.explanation == "group g, t-0: by its replica, broker 2 has offset 2, by clients offset 1"


LOG = """\
10:18:03.980 [kafka-scheduler-0] [INFO] org.example.Other - Replaying nothing
10:18:03.985 [kafka-scheduler-0] [ERROR] org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl - Replaying \
record CoordinatorRecord(key=ConsumerGroupCurrentMemberAssignmentKey(groupId='g', memberId='m'), value=null) from \
__consumer_offsets-0 at offset 256 with producer id -1 and producer epoch -1 failed.
java.lang.IllegalStateException: Group g is not a consumer group
\tat org.apache.kafka.coordinator.group.GroupMetadataManager.replay(GroupMetadataManager.java:6152)
"""
"""The log of a broker of 4.4.0 in a soak: it had missed the tombstones of a classic group."""


@pytest.mark.parametrize(("log_text", "name"), [(LOG, BACK), (LOG.replace("a consumer", "a streams"), "stuck-group")])
def test_a_coordinator_that_cannot_load_its_partition_has_a_finding(log_text: str, name: str) -> None:
    refusal = refusal_in(log_text)
    assert refusal is not None
    content = {"broker": 2, "partition": 0, "answers": [], "refusal": refusal}
    (symptom,) = compare_groups(log(*done(plain, 1)), [view(1), answered(content)]).symptoms()
    assert (symptom.anomaly, symptom.broker) == (name, 2)
    assert symptom.explanation.startswith(
        "groups had no coordinator: broker 2 could not load the partition: IllegalStateException: Group g is "
    )
    assert "groupId='g'" in symptom.explanation
    assert refusal_in(log_text.splitlines()[0]) is None, "a line without a refusal"
    line = "Failed to load metadata from __consumer_offsets-0 with epoch 1 due to a."
    reason = "UnknownMemberIdException: m"
    assert refusal_in(f"{line}{reason}\n{line}NotLeaderOrFollowerException: n") == reason, "3.9 names no record"


def test_a_cluster_without_a_coordinator_is_of_no_more_use(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert serves_groups(folder)
    for content, serves in (([{"answers": []}], True), ([{}, {"refusal": "it cannot"}], False)):
        (tmp_path / ANSWERS).write_text(json.dumps(content))
        assert serves_groups(folder) is serves


def offset_batch(at: int, offset: int | None, *, transactional: bool = False) -> bytes:
    """Return a batch as a coordinator writes it (``OffsetCommitValue`` of version 3)."""
    value = None if offset is None else struct.pack(">hqihq", 3, offset, -1, 0, 0)
    record = Record(at, 0, encode_offset_key(OffsetKey("g", "t", 0)), value, ())
    return encode_batch(base_offset=at, records=[record], **(TRANSACTIONAL if transactional else {}))


WRITTEN, SENT = offset_batch(0, 5), offset_batch(1, 6, transactional=True)


@pytest.mark.parametrize(("batches", "committed", "pending"), [
    ([WRITTEN], 5, set()),
    ([WRITTEN, offset_batch(1, None)], None, set()),
    ([WRITTEN, SENT], 5, {6}),
    ([WRITTEN, SENT, end(2, commit=True)], 6, set()),
    ([WRITTEN, SENT, end(2, commit=False)], 5, set()),
    ([offset_batch(0, 6, transactional=True), offset_batch(1, 7), end(2, commit=True)], 7, set()),
])  # fmt: skip
def test_the_view_of_a_replica(tmp_path: Path, batches: list[bytes], committed: int | None, pending: set[int]) -> None:
    group = encode_batch(base_offset=9, records=[Record(9, 0, encode_group_key("g"), None, ())])
    group_view = replayed(replica(tmp_path / "__consumer_offsets-0", *batches, group), 1, drops_pending=True)
    assert (group_view.broker, group_view.partition) == (1, 0)
    assert group_view.committed.get(KEY) == committed
    assert set(group_view.pending.get(KEY, ())) == pending


def test_what_a_coordinator_answers_is_a_view_and_is_what_its_replica_has(tmp_path: Path) -> None:
    (tmp_path / "brokers" / "1" / "after-rejoin").mkdir(parents=True)
    replica(tmp_path / "brokers" / "1" / "after-rejoin" / "__consumer_offsets-0", WRITTEN)
    right = {"f": "fetch offsets", "stable": False, "broker": 1, "topic": "__consumer_offsets", "partition": 0,
             "group": "g", "offsets": {"0": 5}}  # fmt: skip
    wrong = {**right, "offsets": {}}
    assert not [*wrong_offsets([right], [], RunFolder(tmp_path)), *wrong_offsets([wrong], [1], RunFolder(tmp_path))]
    (finding,) = wrong_offsets([wrong], [], RunFolder(tmp_path))
    assert finding.explanation.endswith("group g: none; its replica has: 5 in partition 0")
    answer = {"group": "g", "topic": "t", "partition": 0, "offset": 5, "error": None}
    unstable = {**answer, "partition": 1, "offset": None, "error": UNSTABLE_OFFSET}
    group_view = answered({"broker": 3, "partition": 0, "answers": [answer, unstable]})
    assert (group_view.broker, group_view.committed, set(group_view.pending)) == (3, {KEY: 5}, {("g", ("t", 1))})
