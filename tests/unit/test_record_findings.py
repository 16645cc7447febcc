"""Findings on internal topics: what each replica serves decoded, who coordinates, and what to do about it."""

import json
import re
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import test_attribution
from copied import segment_name
from findings import verdict
from hostile import HOSTILE, raise_if_forged, raise_if_raw
from pyspark.sql import SparkSession
from stored_records import GROUPS, KEY_BYTES, TRANSACTIONS, VALUES, offset_key, offset_value
from test_attribution import disagreement, received_by
from verdict_schema import schema, violations

from checkers.attribution.coverage import EpochCoverage
from harness import console, errors, json_codec, terminal
from harness.audit import judge_copies
from harness.audit.explain.advice import with_advice
from harness.audit.explain.attribution import Disputes, attribute
from harness.audit.explain.internal_records import on_brokers, read_values, with_coordinator, with_states
from harness.audit.explain.metadata_evidence import MetadataEvidence
from harness.broker_files.copies.copies import Copies, ReplicaCopy
from harness.broker_files.segments.batches import Record
from harness.broker_files.segments.encode import encode_batch
from harness.cli.main import cli

ALL = (1, 2, 3)
KEY = offset_key("g", "data", 0)
STUCK, POISON, DIVERGED = "stuck-lso", "aborted-to-committed", "tombstone-divergence"
COMMITS = {3: offset_value(10), 5: offset_value(60), 8: offset_value(61)}
row = partial(disagreement, topic=GROUPS, key=KEY)
COMMITTED = row(POISON, believed_here="committed")


def serves(
    broker: int, offset: int | None, *, key: bytes = KEY, topic: str = GROUPS, open_from: int | None = None
) -> dict[str, Any]:
    """Return what a replica has: its last committed value, at a log offset, and the offset of a pending one."""
    state = test_attribution.serves(broker, offset, belief="committed" if offset == 5 else None)
    return {**state, "topic": topic, "key": key, "open_from": open_from}


ABORTED_COUNTS = [serves(1, 3), serves(2, 5), serves(3, 3)]
"""Broker 2 counts the aborted offset 60 at log offset 5; the others have 10 at log offset 3."""


def explain(
    facts: dict[str, Any],
    states: list[dict[str, Any]],
    values: Mapping[int, bytes] = COMMITS,
    *,
    right: tuple[int, ...] = (),
    leader: int | None = None,
    partitions: int = 1,
) -> dict[str, Any]:
    """Return the finding; ``values`` by log offset, the same on every replica; ``right``: shown by coverage."""
    place = (facts["topic"], 0)
    replica = {"topic": place[0], "partition": 0, "log_start": 0, "has_transactions": True}
    coverage = {place: received_by(*right) if right else EpochCoverage()}
    disputes = Disputes.of(states, [{**replica, "broker": broker} for broker in ALL], MetadataEvidence(coverage))
    served = {(place, broker, offset): value for broker in ALL for offset, value in values.items()}
    leaders = {} if leader is None else {place: leader}
    evidence = MetadataEvidence(leaders=leaders, partition_counts={place[0]: partitions}, is_current=True)
    findings = [with_states(finding, disputes, served) for finding in attribute([facts], disputes)]
    findings = [with_coordinator(finding, evidence) for finding in findings]
    (explained,) = with_advice(findings, {place: ALL})
    return json_codec.to_json(explained)  # type: ignore[no-any-return]


def test_an_aborted_offset_that_counts_or_is_consumed_again() -> None:
    explained = explain(COMMITTED, ABORTED_COUNTS, right=(1, 3), leader=1)
    assert explained["explanation"].startswith(
        "group g, data-0: committed offset 60 on broker 2, 10 on brokers 1 and 3; in the log: record "
        '"group g, data-0" is wrong'
    )
    assert "\\x00" not in explained["explanation"]
    record = explained["record"]
    assert (record["type"], record["key"]) == ("OffsetCommit", {"group": "g", "topic": "data", "partition": 0})
    assert record["states"] == [
        {"brokers": [2], "state": "committed offset 60", "committed_offset": 60, "pending": False},
        {"brokers": [1, 3], "state": "committed offset 10", "committed_offset": 10, "pending": False},
    ]
    assert record["coordinator"] == {"broker": 1, "is": "right", "text": "coordinator of group g: broker 1 (right)"}
    assert record["consumers"] == (
        "group g: with broker 2 as coordinator it starts data-0 at 60, and skips offsets 10 to 59; with broker 1 or 3 "
        "as coordinator it starts data-0 at 10"
    )
    assert record["commit"] == (
        'kafka-consumer-groups.sh --bootstrap-server "$BOOTSTRAP" --command-config "$CONFIG" --group g --topic data:0 '
        "--reset-offsets --to-offset 10 --execute"
    )
    means = "while broker 2 coordinates, offsets of an aborted transaction count as committed"
    assert explained["means"].startswith(means)
    content: dict[str, Any] = {**dict.fromkeys(schema()["required"], ""), "findings": [explained]}
    assert [violation for violation in violations(content) if violation.startswith("$.findings")] == []
    explained = explain(COMMITTED, [serves(1, 8), serves(2, 5), serves(3, 8)], right=(1, 3))
    assert "starts data-0 at 60, and consumes offset 60 again" in explained["record"]["consumers"]


def test_the_order_of_commands_coordinator_then_commit_then_replica() -> None:
    explained = explain(COMMITTED, ABORTED_COUNTS, right=(1, 3))
    commands = explained["commands"]
    pause, elect, commit, describe = (
        next(index for index, command in enumerate(commands) if text in command)
        for text in ("min.cleanable.dirty.ratio=1", "leader-election", 'after "commit"', "is gone")
    )
    plans = [json.loads(shlex.split(command)[1]) for command in commands if command.startswith("echo")]
    assert [plan["partitions"][0]["replicas"] for plan in plans] == [[1, 3, 2], [1, 3], [1, 3, 2], [1, 2, 3]]
    assert pause < elect < commit < describe
    advice = [explained["do"].index(text) for text in ("make broker 1 the leader", "commit", "remove broker 2")]
    assert advice == sorted(advice)


def test_an_undecided_finding_removes_no_copy_and_commits_nothing() -> None:
    explained = explain(COMMITTED, ABORTED_COUNTS, leader=2)
    assert not explained["decided"]
    text = "group g, data-0: committed offset 10 on brokers 1 and 3, 60 on broker 2; in"
    assert explained["explanation"].startswith(text)
    assert explained["record"]["coordinator"]["text"] == "coordinator of group g: broker 2 (undecided)"
    assert "commit" not in explained["record"]
    assert re.search("save the folder of __consumer_offsets-0 of every replica.*smallest", explained["do"])
    assert "Do not rebuild a replica" in explained["do"]
    words = [command.split()[0] for command in explained["commands"]]
    assert words == ["BOOTSTRAP=HOST:PORT", "CONFIG=/dev/null", "kafka-configs.sh", "#"]


def test_a_deleted_group_that_is_back() -> None:
    states = [serves(2, 5)]
    explained = explain(row(DIVERGED, proven=True, deleted_at=6), states, {5: offset_value(10)}, leader=2)
    assert explained["explanation"].startswith(
        "group g, data-0: committed offset 10 on broker 2, no committed offset on brokers 1 and 3; in the log: "
    )
    coordinator = {"broker": 2, "is": "wrong", "text": "coordinator of group g: broker 2 (diverged)"}
    assert explained["record"]["coordinator"] == coordinator
    assert explained["record"]["consumers"] == (
        "group g: with broker 2 as coordinator it starts data-0 at 10; with broker 1 or 3 as coordinator it starts "
        "data-0 by auto.offset.reset"
    )
    assert "commit" not in explained["record"]
    assert "committed offsets are back that were deleted" in explained["means"]


@pytest.mark.parametrize(("message", "is_proven", "means"), [
    ("GroupMetadata", True, "they answer NOT_COORDINATOR for every group in it"),
    ("ConsumerGroupMemberMetadata", True, "A member keeps its partitions until its session times out"),
    ("StreamsGroupMetadata", True, "no group in it has a coordinator"),
    ("GroupMetadata", False, "replicas have different states of groups"),
])  # fmt: skip
def test_a_group_or_a_member_that_is_back(message: str, is_proven: bool, means: str) -> None:  # noqa: FBT001
    key = KEY_BYTES[message]
    value = next(value for explained, value, *_ in VALUES if explained == message)
    facts = row(DIVERGED, key=key, proven=is_proven, deleted_at=6)
    explained = explain(facts, [serves(2, 5, key=key)], {5: value}, leader=2)
    assert explained["decided"] is is_proven
    assert means in explained["means"]
    assert "{" not in explained["means"]


def test_an_offset_that_stays_pending() -> None:
    states = [serves(1, 8), serves(2, 8, open_from=5), serves(3, 8)]
    explained = explain(row(STUCK, proven=True), states, leader=3)
    assert explained["explanation"].startswith(
        "group g, data-0: committed offset 61, and committed offset 60 pending in an open transaction on broker 2, "
        "61 on brokers 1 and 3; "
    )
    assert "it gets no record of data-0" in explained["record"]["consumers"]
    assert explained["record"]["coordinator"]["is"] == "not accused"
    assert "UNSTABLE_OFFSET_COMMIT" in explained["means"]


def test_records_of_one_text_or_without_a_readable_value_are_shown_by_their_place_in_the_log() -> None:
    explained = explain(COMMITTED, ABORTED_COUNTS, {3: offset_value(10), 5: offset_value(10)})
    texts = [state["state"] for state in explained["record"]["states"]]
    assert texts == [f"committed offset 10 (log offset {offset})" for offset in (3, 5)]
    text = "the record of log offset 3 on brokers 1 and 3, the record of log offset 5 on broker 2"
    assert text in explain(COMMITTED, ABORTED_COUNTS, {})["explanation"]


def test_a_replica_without_segments_serves_nothing(tmp_path: Path) -> None:
    empty = ReplicaCopy(1, "__consumer_offsets", 0, tmp_path)
    assert read_values([Copies("audit", (empty,))], [{"run": "audit", **serves(1, 3)}]) == []


@pytest.mark.parametrize(("where", "text"), [
    # The topic got more partitions: a group's records stay where they were, and nobody reads them.
    ({"leader": 2, "partitions": 50}, "3 of __consumer_offsets, which has 50 partitions: no coordinator reads"),
    ({"leader": -1}, "coordinator of group g: none, the partition has no leader"),
])  # fmt: skip
def test_a_record_that_no_coordinator_reads(where: dict[str, Any], text: str) -> None:
    coordinator = explain(row(POISON), ABORTED_COUNTS, **where)["record"]["coordinator"]
    assert (coordinator["broker"], coordinator["is"]) == (None, "not accused")
    assert text in coordinator["text"]


def test_a_transactional_id() -> None:
    key = KEY_BYTES["TransactionLog"]
    value = next(value for message, value, *_ in VALUES if message == "TransactionLog")
    states = [serves(broker, 5, key=key, topic=TRANSACTIONS) for broker in (1, 3)]
    explained = explain(row(DIVERGED, 1, key=key, topic=TRANSACTIONS), states, {5: value}, leader=3)
    assert explained["explanation"].startswith(
        "transactional id payments: Ongoing of producer 5000000000, epoch 7 on brokers 1 and 3, no transactional id on "
        "broker 2; "
    )
    text = "coordinator of transactional id payments: broker 3 (undecided)"
    assert explained["record"]["coordinator"]["text"] == text
    assert explained["means"].startswith("replicas have different states of transactional ids")


def test_a_topic_of_a_tool_is_led() -> None:
    key = b'{"keytype":"SCHEMA","subject":"o-value","version":3,"magic":1}'
    states = [serves(1, 5, key=key, topic="_schemas")]
    explained = explain(row(DIVERGED, 1, key=key, topic="_schemas"), states, {5: b'{"id":7}'}, leader=1)
    text = "subject o-value, version 3: schema id 7 on broker 1, no schema on brokers 2 and 3"
    assert explained["explanation"].startswith(text)
    assert explained["record"]["coordinator"]["text"] == "leader of the partition: broker 1 (undecided)"
    assert explained["key"] == {"text": key.decode()}


def test_an_unknown_key_is_as_before_with_a_note() -> None:
    key = b"\0\x63\0\1g"
    explained = explain(row(DIVERGED, 1, key=key), [serves(1, 5, key=key)], {})
    assert explained["record"] == {
        "topic_kind": "group coordinator's topic",
        "text": "key \\x00c\\x00\\x01g",
        "note": "the key is shown escaped: unknown key type 99 of a group coordinator's topic",
    }
    assert "key \\x00" in explained["explanation"] or "key \0" in explained["explanation"]


def of_group(group: str, **where: Any) -> dict[str, Any]:
    """Return the finding of an aborted offset of this group that broker 2 counts."""
    key = offset_key(group, "data", 0)
    states = [serves(broker, offset, key=key) for broker, offset in ((1, 3), (2, 5), (3, 3))]
    return explain(row(POISON, key=key, believed_here="committed"), states, right=(1, 3), **where)


def test_hostile_names(capsys: pytest.CaptureFixture[str]) -> None:
    explained = of_group(HOSTILE, leader=1)
    # A line for a shell would not have the group's name.
    assert "commit" not in explained["record"]
    console.show_findings(terminal.stdout(), verdict(findings=[explained]))
    text = capsys.readouterr().out
    raise_if_raw(text)
    raise_if_forged(text)
    assert "for consumers: group " in text
    words = shlex.split(of_group("g'; rm -rf ~ #")["record"]["commit"])
    assert words[words.index("--group") + 1] == "g'; rm -rf ~ #", "it stays one word"


def test_brokers_in_a_sentence() -> None:
    assert on_brokers([1, 2, 3]) == "brokers 1, 2 and 3"


def write_group_log(log_dir: Path, node: int, *records: Record) -> None:
    """Write a broker's replica of the only partition of ``__consumer_offsets``."""
    folder = log_dir / f"{GROUPS}-0"
    folder.mkdir(parents=True)
    (log_dir / "meta.properties").write_text(f"version=1\nnode.id={node}\ncluster.id=literal\n")
    (folder / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{GROUPS} 0 10\n")
    batches = (encode_batch(base_offset=record.offset, records=[record]) for record in records)
    (folder / segment_name(0)).write_bytes(b"".join(batches))


def test_an_audit_without_a_topic_finds_a_deleted_group_that_is_back(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(judge_copies, "session_of", lambda *_: nullcontext(spark))
    monkeypatch.chdir(tmp_path)
    end = Record(9, 9, offset_key("filler", "data", 0), offset_value(9))
    write_group_log(tmp_path / "1", 1, Record(1, 1, KEY, None), end)
    write_group_log(tmp_path / "2", 2, Record(0, 0, KEY, offset_value(10)), end)
    arguments = ["audit", "disk", "--broker", "1=1", "--broker", "2=2"]
    assert cli.main(arguments, prog_name="harness", standalone_mode=False) == errors.EXIT_ANOMALY
    _, kind, consumers, means, evidence, selected, no_metadata, *_ = capsys.readouterr().out.splitlines()
    assert kind == "ANOMALY      tombstone-divergence: __consumer_offsets-0: broker 2 is wrong"
    assert consumers.startswith("  Consumers  group g: with broker 2 as coordinator it starts data-0 at 10; ")
    assert means.startswith("  Meaning    while broker 2 coordinates, committed offsets are back")
    assert evidence == (
        "  Evidence   broker 2, __consumer_offsets-0, offset 0: group g, data-0: committed offset 10 "
        'on broker 2, no committed offset on broker 1; in the log: deleted key "group g, data-0" is back: it was '
        "deleted at offset 1, and this broker has no tombstone there and serves the value of offset 0"
    )
    assert selected == (
        "note         every compacted topic is audited, by the checkpoints of the brokers' cleaners: __consumer_offsets"
    )
    assert no_metadata.startswith("note         without a metadata log, ")
