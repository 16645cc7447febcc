"""Audits of a cluster that changes or fails while its replicas are read."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.progress import FakeProgress

from checkers.finding import LISTED
from harness.audit import judge_copies
from harness.audit.explain.metadata_evidence import MetadataEvidence
from harness.audit.judge_copies import NO_ROWS, _listed, _undecided_if_unread
from harness.audit.live import compare
from harness.audit.live.prefilter import prefilter
from harness.audit.live.request import AuditRequest
from harness.audit.live.settle import CheckedReading
from harness.broker_files.copies.copies import Copies, ReplicaCopy
from harness.errors import HarnessError, UsageError
from harness.judge.finding import Finding, finding_about
from harness.judge.verdict import UnknownReason
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.metadata import TopicState
from harness.kafka_api.transactions import OpenTransaction
from harness.spark.options import SparkOptions

BROKERS = {number: FakeBroker({TP: [Held(3, 3)]}) for number in (1, 2)}
STUCK = {
    "run": "audit-1", "topic": "t", "partition": 0, "broker": 2, "offset": 0, "anomaly": "stuck-lso", "candidates": [],
    "key": None, "producer_id": 5, "effect": "visible", "explanation": "read_committed is frozen at 0", "proven": True,
    "witness": "{}", "shown_by": "batch",
}  # fmt: skip
OPEN = (OpenTransaction(5, 0, 12, last_time_ms=0),)
GONE = UsageError("topic t does not exist")


def asked(request: AuditRequest, _progress: Any) -> compare.AuditAnswers:
    cluster = audited(BROKERS)
    partition = cluster.state.partitions[TP]
    two = replace(cluster.state, topics={"t": TopicState("t", {0: partition, 1: partition})})
    return compare.AuditAnswers(request, "audit-1", replace(cluster, state=two), prefilter(cluster), 0.0)


@pytest.mark.parametrize(("last_wave", "after"), [
    (None, audited(BROKERS)), (None, GONE), (HarnessError("t-0 has no leader"), audited(BROKERS)),
], ids=["nothing fails", "the topic is deleted", "the second wave fails"])  # fmt: skip
def test_findings_are_kept_if_something_fails_later(last_wave: HarnessError | None, after: Any) -> None:
    readings = [CheckedReading((), {**NO_ROWS, "stuck_lso": [STUCK]}, {}), last_wave]
    with (
        patch.multiple(compare, find_java=lambda: None, _ask=asked, start_compilation=lambda: None),
        patch.multiple(compare, waves_of=lambda *_: [[TP], [("t", 1)]][: 1 + bool(last_wave)]),
        patch.multiple(compare, add_groups=lambda verdict, *_: verdict),
        patch.object(compare, "describe", side_effect=[after]),
        patch.object(compare.ReplicaComparer, "compare", side_effect=readings),
    ):
        verdict = compare.audit_live(AuditRequest([Address("b", 1)], ["t"]), FakeProgress(), SparkOptions())
    assert [finding.anomaly for finding in verdict.findings] == ["stuck-lso"]
    assert ("not-read" in (verdict.scenarios[1].causes or ())) == (last_wave is not None)


def test_a_partition_that_moves_while_it_is_read_is_unknown() -> None:
    before, after = audited(BROKERS), audited(BROKERS, absent=(3,))
    ((place, (why,)),) = compare.reassigned(before, after).items()
    assert (place, why.text) == (TP, "it was reassigned while it was read")
    assert compare.reassigned(before, before) == {}


@pytest.mark.parametrize(
    ("first_offset", "opened_there", "is_unsure"), [(9, (), True), (10, (), False), (9, OPEN, False)]
)
def test_a_transaction_whose_records_are_deleted_on_some_replicas_only(
    first_offset: int, opened_there: tuple[OpenTransaction, ...], *, is_unsure: bool
) -> None:
    here, there = (Held(20, 10, log_start=10, open=opened) for opened in (OPEN, opened_there))
    here = replace(here, open=(replace(OPEN[0], first_offset=first_offset),))
    cluster = audited({1: FakeBroker({TP: [there]}), 2: FakeBroker({TP: [here]})})
    answers = compare.AuditAnswers(AuditRequest([], ["t"]), "audit-1", cluster, prefilter(cluster), 0.0)
    verdict = answers.verdict(CheckedReading((), NO_ROWS, {}), {})
    assert verdict.findings == ()
    assert (
        "broker 2, unlike others, has a transaction open without records" in verdict.scenarios[0].reason
    ) == is_unsure


def test_what_was_read_of_a_topic_that_is_created_again_is_not_reported() -> None:
    answers = asked(AuditRequest([], ["t"]), None)
    before, after = (
        replace(answers.cluster, state=replace(state := answers.cluster.state, topics={
            "t": replace(state.topics["t"], topic_id=UUID(int=number)),
        }))
        for number in (1, 2)
    )  # fmt: skip
    reading = CheckedReading((), {**NO_ROWS, "stuck_lso": [STUCK]}, {})
    with patch.multiple(compare, add_groups=lambda verdict, *_: verdict):
        same, other = (replace(answers, cluster=before).verdict(reading, {}, cluster) for cluster in (before, after))
    assert [finding.anomaly for finding in same.findings] == ["stuck-lso"]
    assert same.target["topic_ids"] == {"t": "AAAAAAAAAAAAAAAAAAAAAQ"}
    assert (other.verdict, other.findings) == ("unknown", ())
    assert all(scenario.reason.startswith("its topic was deleted and created again") for scenario in other.scenarios)
    copies = tuple(ReplicaCopy(broker, *TP, Path()) for broker in (1, 2, 3))
    verdict = answers.verdict(CheckedReading(copies, NO_ROWS, {}), {}, after=None)
    assert "no broker described the partition after it was read" in verdict.scenarios[0].reason


@pytest.mark.parametrize(("cause", "right"), [
    ("behind", (1, 3)), ("limited", ()), ("changing", ()), ("not-looked-up", ()), (None, ()),
])  # fmt: skip
def test_no_replica_is_right_where_differences_were_not_judged(cause: str | None, right: tuple[int, ...]) -> None:
    raised = [{"name": "doubts", "reason": "why"}] if cause is None else []
    rows = {**NO_ROWS, "raised": raised, "stuck_lso": [STUCK]}
    unknown = {TP: [UnknownReason(cause, "why")]} if cause else {}
    evidence = MetadataEvidence({}, replicas={TP: (1, 2, 3)})
    with patch.object(judge_copies, "attribute", return_value=[accused(2, (1, 3))]):
        verdict = judge_copies.assemble(Copies("audit-1", ()), rows, timings_s={}, evidence=evidence, unknown=unknown)
    assert [finding.right for finding in verdict.findings] == [right]


def accused(broker: int, right: tuple[int, ...], *, is_decided: bool = True) -> Finding:
    facts = {"offset": 0, "effect": "visible", "explanation": "", "decided": is_decided, "right": right}
    return finding_about("tombstone-divergence", TP, [broker], {}, **facts)


ROW = {"topic": TP[0], "partition": TP[1], "anomaly": "tombstone-divergence", "total": LISTED + 20}


@pytest.mark.parametrize(("more", "described", "left_out", "right"), [
    ([], (1,), [], (2, 3)),
    ([accused(1, (2, 3))], (), [], (2, 3)),
    ([accused(2, (1, 3))], (), [], (3,)),
    ([accused(2, (), is_decided=False)], (), [], ()),
    ([], (1, 2), [], ()),
    ([], (), [TP], ()),
], ids=["others are alike", "so are others", "another replica", "undecided", "not judged", "not compared"])  # fmt: skip
def test_a_replica_is_right_only_if_unlisted_differences_say_so(
    more: list[Finding], described: tuple[int, ...], left_out: list[TopicPartition], right: tuple[int, ...]
) -> None:
    rows = [{**ROW, "described": described}] if described else []
    listed, _ = _listed([*[accused(1, (2, 3))] * LISTED, *more], rows, left_out)
    assert len(listed) == LISTED
    assert {finding.right for finding in listed} == {right}


@pytest.mark.parametrize(("assigned", "is_decided"), [(None, False), ((1, 2), True), ((1, 2, 3), False)])
def test_a_replica_that_was_not_read_may_have_ended_a_transaction(
    assigned: tuple[int, ...] | None, is_decided: bool  # noqa: FBT001
) -> None:  # fmt: skip
    facts = {"offset": 4, "effect": "visible", "explanation": "it is open on every replica"}
    hanging = finding_about("hanging-transaction", TP, (1, 2), {}, **facts)
    assert _undecided_if_unread(hanging, (1, 2), assigned).decided is is_decided
    other = replace(hanging, anomaly="stuck-lso")
    assert _undecided_if_unread(other, (1,), assigned) == other
