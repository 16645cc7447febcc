"""Findings about Kafka itself: a guarantee that every replica violates; cleaners and replicas that have stopped."""

from typing import Any

import pytest
from test_verdict import AWAY, CONTROL, SCENARIO, assembled, doubt, fact, finding, promised

from harness.clients import ALSO_OF_SLOW_BROKERS, INVALID_TXN_STATE
from harness.judge.run_verdict import STALE_REQUESTS_UNKNOWN
from harness.schedules.timers import FAST

NOT_CLEANED = {"held_critical": True, "held_after": True, "removed_at_ms": None, "cleaned_past": False}
NOT_REMOVED = {**NOT_CLEANED, "cleaned_past": True}
TOPIC = {"max.compaction.lag.ms": "200", "delete.retention.ms": "300"}
BROKER = {"producer.id.expiration.ms": "700"}
WAITED = {"timings_s": {"clean": 20.0}, "topic_settings": TOPIC, "broker_settings": BROKER}


def names(result: dict[str, Any]) -> list[str]:
    return [finding["anomaly"] for finding in result["findings"]]


def test_a_guarantee_that_every_replica_violates_is_a_finding() -> None:
    result = assembled(guarantees=[promised(1, 1), promised(2, 3), promised(3, 1)])
    assert (result["verdict"], names(result)) == ("anomaly", ["violated-tombstones"])
    (actual,) = result["findings"]
    assert (actual["broker"], actual["topic"], actual["partition"], actual["offset"]) == (1, "stuck-lso", 0, 4)
    assert actual["explanation"] == "every replica violates the guarantee tombstones: it went"
    assert (actual["effect"], actual["witness"]) == ("latent", {"age_ms": 3, "brokers": [1, 3, 2]})
    assert result["scenarios"][0]["verdict"] == "anomaly"
    explained = assembled(findings=[finding()], guarantees=[promised(broker, 1) for broker in (1, 2, 3)])
    assert names(explained) == ["stuck-lso"], "an anomaly explains the violations in its partition"


@pytest.mark.parametrize("guarantee", ["last-value", "order", "offsets"])
def test_a_guarantee_about_records_is_violated_visibly(guarantee: str) -> None:
    rows = [{**promised(broker, 1), "guarantee": guarantee} for broker in (1, 2, 3)]
    (actual,) = assembled(guarantees=rows)["findings"]
    assert (actual["anomaly"], actual["effect"]) == (f"violated-{guarantee}", "visible")


@pytest.mark.parametrize(("of_2", "doubts"), [
    (promised(2, 0), []), ({**promised(2, 1), "offset": 5}, []), (promised(2, 1), [doubt("contradiction")]),
], ids=["one keeps it", "different offsets", "a replica contradicts itself"])  # fmt: skip
def test_not_every_replica_violates_a_guarantee(of_2: Any, doubts: Any) -> None:
    result = assembled(guarantees=[promised(1, 1), of_2, promised(3, 1)], doubts=doubts)
    assert (result["verdict"], names(result)) == ("unknown", [])


@pytest.mark.parametrize("guarantees", [
    [promised(None, 1)], [promised(1, 1, "control"), promised(3, 1, "control")],
], ids=["of no replica", "of the control partition's own replicas"])  # fmt: skip
def test_fewer_replicas_may_violate_a_guarantee(guarantees: Any) -> None:
    result = assembled(guarantees=guarantees)
    assert (result["verdict"], names(result)) == ("anomaly", ["violated-tombstones"])


def test_cleaners_that_never_pass_a_marker_have_stopped() -> None:
    facts = [fact(1, **NOT_CLEANED), fact(3, **NOT_CLEANED), fact(2, **AWAY, cleaned_past=False)]
    result = assembled(exposure=facts, **WAITED)
    assert (result["verdict"], names(result)) == ("anomaly", ["stopped-cleaner"])
    (actual,) = result["findings"]
    assert (actual["broker"], actual["offset"], actual["effect"]) == (1, 20, "latent")
    settings = {name: int(value) for name, value in (TOPIC | BROKER).items()}
    assert actual["witness"] == {"brokers": [1, 3], "waited_s": 20.0, **settings}
    assert actual["explanation"] == "the cleaners of brokers 1, 3 did not clean offset 20"


def test_a_marker_that_every_cleaner_passes_and_none_removes_is_retained() -> None:
    facts = [fact(1, **NOT_REMOVED), fact(3, **NOT_REMOVED), fact(2, **AWAY)]
    result = assembled(exposure=facts, **WAITED)
    assert (result["verdict"], names(result)) == ("anomaly", ["retained-marker"])
    assert result["findings"][0]["explanation"] == (
        "the cleaners of brokers 1, 3 passed offset 20 and did not remove the marker"
    )


def test_a_tombstone_and_a_marker_are_judged_separately() -> None:
    facts = [
        *(fact(broker, **NOT_REMOVED, kind="tombstone", critical_offset=12) for broker in (1, 3)),
        fact(1), fact(3), fact(2, **AWAY), fact(2, **AWAY, kind="tombstone"),
    ]  # fmt: skip
    assert names(assembled(exposure=facts, **WAITED)) == ["retained-tombstone"]


def test_without_a_fault_every_cleaner_counts() -> None:
    facts = [fact(broker, **NOT_CLEANED) for broker in (1, 2, 3)]
    result = assembled(exposure=facts, nemesis="none", takes_away=False, **WAITED)
    assert result["findings"][0]["witness"]["brokers"] == [1, 2, 3]
    facts[1] = fact(2, **NOT_CLEANED | {"cleaned_past": True})
    assert names(assembled(exposure=facts, nemesis="none", takes_away=False, **WAITED)) == []


@pytest.mark.parametrize(("of_3", "changes"), [
    ({"cleaned_past": True}, {}),
    ({"held_critical": False}, {}),
    ({"held_after": False}, {}),
    ({}, {"timings_s": {"clean": 11.1}}),
    ({}, {"timings_s": {}}),
    ({}, {"topic_settings": {"delete.retention.ms": "300"}}),
    ({}, {"topic_settings": {"max.compaction.lag.ms": "200"}}),
    ({}, {"topic_settings": {**TOPIC, "max.compaction.lag.ms": "9001"}}),
    ({}, {"broker_settings": {}}),
    ({}, {"coordination": {"coordinated_compaction": True}}),
], ids=[
    "one has passed", "one never had it", "later", "a short wait", "no wait", "no lag", "a day", "lag", "producer",
    "together",
])  # fmt: skip
def test_cleaners_that_may_still_work_have_not_stopped(of_3: dict[str, Any], changes: dict[str, Any]) -> None:
    facts = [fact(1, **NOT_CLEANED), fact(3, **{**NOT_CLEANED, **of_3}), fact(2, **AWAY, cleaned_past=False)]
    result = assembled(exposure=facts, **{**WAITED, **changes})
    assert (result["verdict"], names(result)) == ("unknown", [])


def test_each_partition_has_its_own_cleaners() -> None:
    other = {**SCENARIO, "name": "other", "topic": "other"}
    facts = [
        fact(1), fact(3), fact(2, **AWAY),
        *(fact(broker, topic="other", **NOT_CLEANED) for broker in (1, 3)), fact(2, **AWAY, topic="other"),
    ]  # fmt: skip
    result = assembled(exposure=facts, scenarios=[SCENARIO, other, CONTROL], **WAITED)
    assert [finding["topic"] for finding in result["findings"]] == ["other"]
    assert [scenario["verdict"] for scenario in result["scenarios"]] == ["clean", "anomaly"]


STALLED = {"broker": 3, "topic": "stuck-lso", "partition": 0}
STALL = {**STALLED, "waited_s": 30.0, "longest_silence_s": 0.4, "awaited": "timed out"}


def test_a_replica_that_gets_nothing_while_every_broker_answers_has_stalled() -> None:
    result = assembled(stall=STALL, failure="timed out", nemesis="none", takes_away=False)
    assert (result["verdict"], names(result)) == ("anomaly", ["stalled-replica"])
    (actual,) = result["findings"]
    assert (actual["broker"], actual["topic"], actual["partition"], actual["effect"]) == (3, "stuck-lso", 0, "visible")
    assert actual["witness"] == {"waited_s": 30.0, "longest_silence_s": 0.4, "brokers": [3]}
    assert actual["explanation"] == "timed out; no fault was active, and every broker answered all the time"


REFUSAL = {
    "process": "stuck-lso.tx",
    "error": "UNKNOWN_SERVER_ERROR",
    "operation": "stuck-lso.tx: commit failed: unknown",
    "longest_silence_s": 1.1,
}


@pytest.mark.parametrize("change", [
    {},
    *({"error": e, "longest_silence_s": 1.0} for e in sorted(ALSO_OF_SLOW_BROKERS - {INVALID_TXN_STATE})),
    {"error": INVALID_TXN_STATE, "longest_silence_s": 1.0},
])  # fmt: skip
def test_an_error_that_no_valid_operation_meets_is_a_finding(change: dict[str, Any]) -> None:
    result = assembled(refusal=REFUSAL | change, failure="unknown", nemesis="none", takes_away=False)
    assert (result["verdict"], names(result)) == ("anomaly", ["refused-operation"])
    (actual,) = result["findings"]
    assert (actual["topic"], actual["partition"], actual["effect"]) == ("stuck-lso", 0, "visible")
    assert actual["witness"] == {"error": (REFUSAL | change)["error"], "brokers": [1, 3, 2]}
    assert actual["explanation"].startswith("stuck-lso.tx: commit failed: unknown; no fault was injected")


def test_a_stale_request_that_brokers_accept_and_a_valid_one_that_they_refuse_are_findings() -> None:
    refused = {"process": "stale-requests", "error": "a batch: InvalidTxnStateError", "operation": "a valid request"}
    assert names(assembled(refusal=refused)) == ["refused-operation"]
    requests = ["a batch after a lost one", "a marker of a fenced producer"]
    result = assembled(accepted_requests=requests)
    assert (result["verdict"], names(result)) == ("anomaly", ["accepted-request"])
    assert result["findings"][0]["explanation"].endswith(f"must refuse: {'; '.join(requests)}")
    assert names(assembled(accepted_requests=[])) == []
    assert assembled(stale_requests_sent=False)["notes"] == [STALE_REQUESTS_UNKNOWN]


@pytest.mark.parametrize("evidence", [
    {"stall": STALL | {"waited_s": 19.9}}, {"stall": STALL | {"longest_silence_s": 1.6}},
    {"refusal": REFUSAL | {"error": "CONCURRENT_TRANSACTIONS"}},
    {"refusal": REFUSAL | {"error": INVALID_TXN_STATE, "longest_silence_s": 0.71}, "broker_settings": FAST.broker},
], ids=["a short wait", "a slow machine", "a slow machine ends a transaction late", "forgot it"])  # fmt: skip
def test_what_may_have_had_too_little_time_is_no_finding(evidence: dict[str, Any]) -> None:
    result = assembled(**evidence, failure="timed out")
    assert (result["verdict"], names(result)) == ("unknown", [])
