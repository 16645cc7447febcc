"""``clean`` is earned: every row of the exposure table, the reason when a fact is missing, and the schema."""

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from verdict_schema import schema, violations

from harness.json_codec import from_json, to_json
from harness.judge import guarantees, run_verdict
from harness.judge.earned import earn as earn_by_facts
from harness.judge.finding import Finding, InternalRecord, ServedState, finding_of
from harness.judge.guarantees import GuaranteeResult, Violation
from harness.judge.run_verdict import Results
from harness.judge.verdict import Doubt, ScenarioVerdict, Verdict
from harness.run_folder.inventory import EvidenceDifference

Facts = list[dict[str, Any]]
Earned = tuple[str | None, str]
CRITICAL_OFFSET = 20
SCENARIO = {
    "name": "stuck-lso", "anomaly": "stuck-lso", "payload": "value", "topic": "stuck-lso",
    "replicas": {"0": [1, 3, 2]}, "critical": ["marker"],
}  # fmt: skip
OF_CONTROL: dict[str, Any] = {"anomaly": None, "replicas": {"0": [1, 3]}, "critical": ["tombstone", "marker"]}
CONTROL = {**OF_CONTROL, **dict.fromkeys(("name", "payload", "topic"), "control")}
OTHER = {**SCENARIO, "name": "other", "topic": "other"}


def fact(broker: int, **changes: Any) -> dict[str, Any]:
    """A replica that stayed and was seen to remove the marker before the return."""
    return {
        "run": "r", "topic": "stuck-lso", "partition": 0, "kind": "marker", "payload_offset": 10,
        "critical_offset": CRITICAL_OFFSET, "broker": broker, "had_payload": False, "has_payload": False,
        "held_critical": False, "held_after": False, "same_directory": True, "was_served": True,
        "seen_there": True, "removed_at_ms": 5, "led": False, "served_digest": broker,
        "passed": False, "cleaned_past": True, "log_end_before": 50, "log_end_after": 60, "high_watermark_after": 60,
        **changes,
    }  # fmt: skip


AWAY = {"had_payload": True, "has_payload": True, "seen_there": False, "removed_at_ms": None, "log_end_before": 15}


def returned(**changes: Any) -> dict[str, Any]:
    """The replica that was down: it has the payload and is behind the marker."""
    return fact(2, **{**AWAY, **changes})


def absent(**changes: Any) -> Facts:
    return [fact(1), fact(3), returned(**changes)]


KEPT = {"held_critical": True, "held_after": True, "removed_at_ms": None}
KEPT_AND_PASSED = {**KEPT, "passed": True}
GUARDED = {"held_critical": True, "held_after": False, "removed_at_ms": 90}


def control(**changes: Any) -> Facts:
    return [fact(broker, topic="control", **changes) for broker in (1, 3)]


CONTROLLED = control()
EXPOSED = absent()
GUARDED_ALL = [fact(1, **GUARDED), fact(3, **GUARDED), returned(seen_there=True, removed_at_ms=95)]
REMOVED_WHILE_ABSENT = "the others removed it while the replica was absent"


def earn(
    facts: Facts, *, control: Facts = CONTROLLED, absent: Any = (2,), hands_over: Any = False, **more: Any
) -> Earned:
    """Return how `SCENARIO` with more fields earned clean, and which evidence is missing."""
    return earn_by_facts({**SCENARIO, **more}, facts, control, absent=absent, hands_over=hands_over)


@pytest.mark.parametrize(("facts", "how"), [
    (EXPOSED, "removed it while the replica was absent"),
    ([fact(1, **KEPT_AND_PASSED), fact(3, **KEPT_AND_PASSED), returned()], "removed it on the control partition"),
    (GUARDED_ALL, "every replica removed"),
], ids=["exposed", "nothing was removed", "guarded"])  # fmt: skip
def test_clean_is_earned_after_an_absence(facts: Facts, how: str) -> None:
    earned, lacking = earn(facts)
    assert (how in str(earned), lacking) == (True, "")


@pytest.mark.parametrize(("facts", "words"), [
    (absent(had_payload=False), "broker 2 did not have the payload"),
    (absent(log_end_before=30), "broker 2 was not behind"),
    (absent(held_critical=True), "broker 2 was not behind"),
    (absent(same_directory=False), "broker 2 did not keep its log directory"),
    (absent(was_served=False), "broker 2 was not read over the wire"),
    (absent(log_end_after=15), "broker 2 was not read to the high watermark"),
    (absent(high_watermark_after=40), "broker 2 was not read to the high watermark"),
    (absent(has_payload=False), "broker 2 no longer holds the transaction, so nothing shows"),
    ([fact(1), fact(3, held_critical=True), returned()], "broker 3 still held it"),
    ([fact(1, seen_there=False), fact(3), returned()], "broker 1 was never seen to hold it"),
    ([fact(1, removed_at_ms=None), fact(3), returned()], "broker 1 was not seen to remove it"),
    ([fact(1, log_end_before=None), fact(3), returned()], "broker 1 has no files from before the return"),
    ([fact(1, **KEPT), fact(3, **KEPT_AND_PASSED), returned()], "broker 1 still held it"),
    ([fact(1), fact(3), returned(has_payload=False, removed_at_ms=95)], "broker 2 no longer holds the transaction"),
    ([fact(1), returned()], "on brokers [3]"),
    ([], "on brokers [1, 2, 3]"),
    ([fact(b, critical_offset=None) for b in (1, 3, 2)], "never seen on any replica"),
])  # fmt: skip
def test_clean_is_not_earned(facts: Facts, words: str) -> None:
    earned, lacking = earn(facts)
    assert (earned, words in lacking) == (None, True), lacking


NOTHING: dict[str, Any] = {}
TARDY = {"had_payload": True, "has_payload": True, **KEPT}
"""A replica that stayed, held the payload and the marker when the copy began from it, and is not cleaned yet."""


def handed_over(*, leader: Any = NOTHING, first: Any = NOTHING, **copy: Any) -> Facts:
    """Broker 3 fed the copy on broker 2, then broker 1 did."""
    return [fact(1, **{"led": True, **leader}), fact(3, **{**TARDY, **first}), returned(**copy)]


def earn_handover(facts: Facts, kind: str = "marker") -> Earned:
    return earn([{**row, "kind": kind} for row in facts], critical=[kind], hands_over=True)


@pytest.mark.parametrize(("facts", "kind"), [
    (handed_over(), "marker"),
    (handed_over(), "tombstone"),
    (handed_over(has_payload=False), "tombstone"),
    (handed_over(has_payload=False, served_digest=1), "marker"),
    (handed_over(first={"seen_there": False}), "marker"),
], ids=["transaction", "delete", "the copy learnt the delete", "the copy began again", "never seen"])  # fmt: skip
def test_clean_is_earned_where_leadership_moved_in_mid_copy(facts: Facts, kind: str) -> None:
    how = "the copy began from a replica that still held it, and continued from a leader that had removed it"
    assert earn_handover(facts, kind) == (how, "")
    if kind == "marker":
        assert earn(facts)[0] is None, "after an outage every replica that stayed has to have removed it"


@pytest.mark.parametrize(("facts", "words"), [
    (handed_over(leader={"led": False}), "no replica led the partition from the snapshot on"),
    (handed_over(leader={"held_critical": True}), "broker 1 still held it when the replica came back"),
    (handed_over(leader={"seen_there": False}), "broker 1 was never seen to hold it"),
    (handed_over(leader={"had_payload": True}), "broker 1 still held the payload, so that the copy may have begun"),
    (handed_over(first={"held_critical": False}), "no other replica still held it, and the payload"),
    (handed_over(first={"had_payload": False}), "no other replica still held it, and the payload"),
    ([fact(1, led=True), fact(3, led=True), returned()], "no other replica still held it, and the payload"),
    (handed_over(had_payload=False), "broker 2 did not have the payload"),
    (handed_over(log_end_before=21), "broker 2 was not behind"),
    (handed_over(high_watermark_after=40), "broker 2 was not read to the high watermark"),
    (handed_over(has_payload=False), "broker 2 no longer holds the transaction"),
])  # fmt: skip
def test_clean_is_not_earned_where_a_leader_held_something_else(facts: Facts, words: str) -> None:
    earned, lacking = earn_handover(facts)
    assert (earned, words in lacking) == (None, True), lacking


def test_what_a_nemesis_does_to_leaders_is_in_the_manifest() -> None:
    assert assembled(exposure=handed_over())["verdict"] == "unknown"
    assert assembled(exposure=handed_over(), hands_over=True)["verdict"] == "clean"


@pytest.mark.parametrize("on_control", [[], control(removed_at_ms=None), control(held_critical=True)])
def test_keeping_earns_nothing_without_removal_on_the_control(on_control: Facts) -> None:
    facts = [fact(1, **KEPT_AND_PASSED), fact(3, **KEPT_AND_PASSED), returned()]
    assert earn(facts, control=on_control)[0] is None


@pytest.mark.parametrize(
    "missing", [{"seen_there": False}, {"removed_at_ms": None}, {"held_after": True}, {"was_served": False}]
)
def test_without_a_fault_every_replica_has_to_show_it(missing: dict[str, Any]) -> None:
    assert earn([fact(1), fact(3), fact(2)], absent=())[0] == "every replica had it and removed it"
    assert earn([fact(1), fact(3), fact(2, **missing)], absent=())[0] is None


TWO_PARTITIONS = {"0": [1, 3, 2], "1": [3, 1, 2]}


def on(partition: int, *facts: dict[str, Any], offset: int = CRITICAL_OFFSET) -> Facts:
    """The same facts of another partition, where the marker may lie elsewhere."""
    return [{**row, "partition": partition, "critical_offset": offset} for row in facts]


GUARDED_THERE = "the others kept it while the replica was absent, and every replica removed it afterwards"
STILL_HELD = "partition 1: marker at offset 20: broker 1 still held it when the replica came back"
NOTHING_KNOWN = "nothing is known of the marker that should have been removed, on brokers "


@pytest.mark.parametrize(("facts", "expected"), [
    ([*EXPOSED, *on(1, fact(3), fact(1), returned(log_end_before=30), offset=40)], (REMOVED_WHILE_ABSENT, "")),
    ([*EXPOSED, *on(1, *GUARDED_ALL)], (f"{REMOVED_WHILE_ABSENT}; {GUARDED_THERE}", "")),
    ([*EXPOSED, *on(1, fact(1, held_critical=True), fact(3), returned())], (None, STILL_HELD)),
    ([*absent(was_served=False), *on(1, *EXPOSED)],
     (None, "partition 0: broker 2 was not read over the wire after the rejoin")),
    (EXPOSED, (None, f"partition 1: {NOTHING_KNOWN}[1, 2, 3]")),
], ids=["its own offset", "in different ways", "not the second", "not the first", "nothing of the second"])  # fmt: skip
def test_each_partition_has_to_earn_clean(facts: Facts, expected: Earned) -> None:
    assert earn(facts, replicas=TWO_PARTITIONS) == expected


@pytest.mark.parametrize(("facts_of_3", "expected"), [
    ([fact(3, **AWAY)], (REMOVED_WHILE_ABSENT, "")),
    ([fact(3, **{**AWAY, "log_end_before": CRITICAL_OFFSET + 1})],
     (None, "broker 3 was not behind: it had already been past what it should have missed")),
    ([], (None, f"{NOTHING_KNOWN}[3]")),
], ids=["behind", "not behind", "unknown"])  # fmt: skip
def test_each_absent_broker_has_to_have_been_behind(facts_of_3: Facts, expected: Earned) -> None:
    facts = [fact(1), fact(4), fact(2, **AWAY), *facts_of_3]
    assert earn(facts, replicas={"0": [1, 4, 2, 3]}, absent=(2, 3)) == expected


def test_every_kind_of_critical_record_has_to_earn_it_a_delete_also_by_a_value_that_is_gone() -> None:
    facts = [*EXPOSED, *({**row, "kind": "tombstone", "critical_offset": 12} for row in EXPOSED[:2])]
    expected = f"{NOTHING_KNOWN.replace('marker', 'tombstone')}[2]"
    assert earn(facts, critical=["tombstone", "marker"])[1] == expected
    facts = [{**row, "kind": "tombstone"} for row in (fact(1), fact(3), returned(has_payload=False))]
    assert earn(facts, critical=["tombstone"])[0] == REMOVED_WHILE_ABSENT


def manifest(**changes: Any) -> dict[str, Any]:
    return {
        "run_id": "r", "target": {"name": "kafka-3.9"}, "nemesis": "kill", "absent_brokers": [2], "timings_s": {},
        "status": "complete", "failure": None, "control": "control", "scenarios": [SCENARIO, CONTROL], **changes,
    }  # fmt: skip


def finding(broker: int = 2) -> dict[str, Any]:
    return {
        "run": "r", "topic": "stuck-lso", "partition": 0, "broker": broker, "anomaly": "stuck-lso", "candidates": [],
        "offset": 10, "key": b"K", "producer_id": 5, "effect": "visible", "explanation": "frozen", "witness": "{}",
    }  # fmt: skip


def doubt(kind: str, broker: int = 2) -> dict[str, Any]:
    return {"run": "r", "topic": "stuck-lso", "partition": 0, "broker": broker, "kind": kind, "reason": "it differs"}


def assembled(
    findings: Any = (), doubts: Any = (), exposure: Any = EXPOSED, raised: Any = NOTHING, guarantees: Any = (), *,
    missing: Any = (), **changes: Any,
) -> dict[str, Any]:  # fmt: skip
    rows = ([finding_of(row) for row in findings], [from_json(Doubt, row) for row in doubts], list(exposure))
    results = Results(*rows, raised, guarantees=guarantees)
    verdict: dict[str, Any] = to_json(run_verdict.assemble(manifest(**changes), results, missing=missing))
    return verdict


def test_a_finding_is_an_anomaly() -> None:
    result = assembled(findings=[finding()])
    assert result["verdict"] == result["scenarios"][0]["verdict"] == "anomaly"
    assert result["findings"][0]["key"] == {"text": "K"}
    no_text = assembled(findings=[{**finding(), "key": b"\xff\x00"}])
    assert no_text["findings"][0]["key"] == {"base64": "/wA="}
    assert [s["scenario"] for s in result["scenarios"]] == ["stuck-lso"], "the control partition is not a scenario"


PROVEN = {"coordinated_compaction": True, "log_compaction_tx_batch_removal_enabled": True}


@pytest.mark.parametrize(("results", "verdict", "reason"), [
    ({}, "clean", "the others removed it while the replica was absent"),
    ({"exposure": []}, "unknown", "nothing is known of the marker"),
    ({"findings": [finding()], "doubts": [doubt("contradiction")]}, "unknown", "it differs"),
    ({"findings": [finding()], "doubts": [doubt("contradiction", broker=3)]}, "anomaly", "frozen"),
    ({"doubts": [doubt("contradiction")]}, "unknown", "it differs"),
    ({"doubts": [doubt("unexplained")]}, "unknown", "it differs"),
    ({"raised": {"stuck_lso": "ValueError: no"}}, "unknown", "ValueError: no"),
    ({"findings": [finding()], "coordination": dict.fromkeys(PROVEN, False)}, "anomaly", "frozen"),
    ({"failure": "broker 3 ended by itself", "exposure": []}, "unknown", "broker 3 ended by itself"),
])  # fmt: skip
def test_a_verdict_has_its_reason(results: dict[str, Any], verdict: str, reason: str) -> None:
    result = assembled(**results)
    assert (result["verdict"], bool(result["findings"])) == (verdict, verdict == "anomaly")
    assert reason in result["reason"]


@pytest.mark.parametrize("path", [
    "observations.jsonl", "fetched", "brokers/2/before-return/stuck-lso-0/0.log", "brokers/3/after-rejoin/control-0",
])  # fmt: skip
def test_partial_evidence_earns_no_clean(path: str) -> None:
    result = assembled(missing=[EvidenceDifference(path, "is missing")])
    reason = f"judged by partial evidence: {path} is missing"
    assert (result["verdict"], result["reason"]) == ("unknown", f"stuck-lso: {reason}")
    assert result["partial"] == [{"path": path, "problem": "is missing"}]
    result = assembled(findings=[finding()], missing=[EvidenceDifference(path, "is missing")])
    assert (result["verdict"], len(result["partial"])) == ("anomaly", 1), "a finding stands"


def test_what_a_scenario_does_not_rest_on_leaves_it_clean() -> None:
    exposure = [{**row, "topic": topic} for topic in ("stuck-lso", "other") for row in EXPOSED]
    paths = ("brokers/2/after-rejoin/other-0/0.log", "applications.jsonl")
    missing = [EvidenceDifference(path, "is missing") for path in paths]
    result = assembled(scenarios=[SCENARIO, OTHER, CONTROL], exposure=exposure, missing=missing)
    assert [part["verdict"] for part in (result, *result["scenarios"])] == ["unknown", "clean", "unknown"]


def test_what_coordinates_has_to_be_shown_to() -> None:
    assert assembled(coordination=PROVEN)["verdict"] == "clean"
    result = assembled(coordination={**PROVEN, "log_compaction_tx_batch_removal_enabled": False})
    lacking = "replicas were not shown to compact together: log_compaction_tx_batch_removal_enabled is not active"
    assert (result["verdict"], result["reason"]) == ("unknown", f"stuck-lso: {lacking}")
    assert result["scenarios"][0]["exposure"]["earned"] is None


def test_findings_come_in_the_order_of_the_scenarios_then_by_place() -> None:
    scenarios = [{**SCENARIO, "name": name, "topic": name} for name in ("stuck-lso", "aborted-to-committed", "another")]
    places = [
        ("another", 0, 2, 1), ("aborted-to-committed", 1, 2, 1), ("aborted-to-committed", 0, 3, 1),
        ("aborted-to-committed", 0, 2, 30), ("aborted-to-committed", 0, 2, 4), ("stuck-lso", 2, 3, 99),
    ]  # fmt: skip
    names = ("topic", "partition", "broker", "offset")
    found = [{**finding(), **dict(zip(names, place, strict=True))} for place in places]
    result = assembled(findings=found, scenarios=[*scenarios, CONTROL])
    assert [tuple(f[name] for name in names) for f in result["findings"]] == places[::-1]
    assert result["reason"] == "stuck-lso on broker 3, stuck-lso: frozen (and 5 more)"
    assert [s["scenario"] for s in result["scenarios"]] == ["stuck-lso", "aborted-to-committed", "another"]


def promised(broker: int | None, violated: int, topic: str = "stuck-lso") -> dict[str, Any]:
    first = {"offset": 4, "explanation": "it went", "witness": '{"age_ms": 3}'} if violated else {}
    nothing = {"offset": None, "explanation": None, "witness": None}
    return {
        "run": "r", "topic": topic, "partition": 0, "broker": broker, "guarantee": "tombstones", "compared": 5,
        "violated": violated, **nothing, **first,
    }  # fmt: skip


def summary_line(content: dict[str, Any]) -> str:
    return guarantees.summary_line([from_json(guarantees.GuaranteeResult, result) for result in content["guarantees"]])


def tombstones(content: dict[str, Any]) -> dict[str, Any]:
    return next(dict(result) for result in content["guarantees"] if result["guarantee"] == "tombstones")


def test_a_guarantee_that_holds_or_is_violated_in_another_scenario_leaves_this_one_clean() -> None:
    result = assembled(guarantees=[promised(1, 0), promised(2, 0)])
    assert result["verdict"] == "clean"
    assert tombstones(result) == {
        "guarantee": "tombstones", "holds": True, "compared": 10, "violations": [],
        "reason": "10 removed tombstones compared; none violates the guarantee",
    }  # fmt: skip
    unchecked = "last-value, order, offsets, min-compaction-lag, control-batches"
    assert summary_line(result) == f"guarantees: 1 hold; not checked (no evidence): {unchecked}"
    result = assembled(guarantees=[promised(1, 1, "other")], scenarios=[SCENARIO, OTHER, CONTROL])
    assert [scenario["verdict"] for scenario in result["scenarios"]] == ["clean", "unknown"]
    of_no_broker = tombstones(assembled(guarantees=[promised(None, 1)]))
    assert of_no_broker["reason"] == "stuck-lso-0: it went"


@pytest.mark.parametrize("topic", ["stuck-lso", "control"])
def test_a_violated_guarantee_forbids_clean(topic: str) -> None:
    later = {**promised(3, 2, topic), "offset": 5}
    result = assembled(guarantees=[promised(None, 0), later, promised(1, 1, topic)])
    assert result["verdict"] == result["scenarios"][0]["verdict"] == "unknown"
    assert result["reason"] == f"stuck-lso: the guarantee tombstones is violated: broker 1, {topic}-0: it went"
    actual = tombstones(result)
    assert (actual["holds"], actual["reason"]) == (False, f"broker 1, {topic}-0: it went (and 2 more)")
    assert actual["violations"][1] == {
        "broker": 3, "topic": topic, "partition": 0, "offset": 5, "explanation": "it went", "witness": {"age_ms": 3},
        "count": 2,
    }  # fmt: skip
    assert summary_line(result).startswith("guarantees: violated: tombstones; not checked (no evidence): ")


def test_findings_break_guarantees_and_replicas_that_contradict_themselves_do_not() -> None:
    result = assembled(findings=[finding()], guarantees=[promised(2, 1)])
    assert (result["verdict"], result["scenarios"][0]["reason"]) == ("anomaly", "frozen")
    assert tombstones(result)["holds"] is False
    result = assembled(guarantees=[promised(2, 1)], doubts=[doubt("contradiction")])
    assert tombstones(result)["holds"] is None


@pytest.mark.parametrize(("given", "why"), [
    ({"guarantees": ()}, "no removal of a key's last tombstone was observed"),
    ({"guarantees": None, "raised": {"guarantees": "ValueError: no"}}, "ValueError: no"),
    ({"guarantees": None, "failure": "broker 3 ended"}, "broker 3 ended"),
    ({"guarantees": None}, "the run did not go to its end"),
])  # fmt: skip
def test_a_guarantee_without_anything_to_be_judged_by(given: dict[str, Any], why: str) -> None:
    result = tombstones(assembled(**given))
    assert (result["holds"], result["compared"]) == (None, 0)
    assert why in result["reason"]


PUBLISHED = sorted((Path(__file__).parents[2] / "results").glob("2*/*/*/*/verdict.json"))


def test_published_verdicts_keep_to_the_schema_and_are_read_and_written_unchanged() -> None:
    Draft202012Validator.check_schema(schema())
    assert len(PUBLISHED) > 50
    broken = {str(path): problems for path in PUBLISHED if (problems := violations(json.loads(path.read_text())))}
    assert broken == {}
    for path in PUBLISHED:
        content = json.loads(path.read_text())
        for finding in content["findings"]:
            finding.setdefault("decided", True)
        assert to_json(from_json(Verdict, content)) == content, path


@pytest.mark.parametrize(("part", "changes", "named"), [
    (None, {"verdict": "fine"}, "$.verdict"),
    (None, {"schema": 2}, "$.schema"),
    (None, {"guarantee": []}, "$"),
    ("findings", {"effect": "big"}, "$.findings[0].effect"),
    ("findings", {"unnamed": "x"}, "$.findings[0]"),
    ("scenarios", {"reason": None}, "$.scenarios[0].reason"),
])  # fmt: skip
def test_what_does_not_keep_to_it_is_named(part: str | None, changes: dict[str, Any], named: str) -> None:
    verdict = json.loads(PUBLISHED[0].read_text())
    (verdict if part is None else verdict[part][0]).update(changes)
    (violation,) = violations(verdict)
    assert violation.startswith(f"{named}: ")


@pytest.mark.parametrize(("cls", "path"), [
    (Verdict, ()), (ScenarioVerdict, ("scenarios",)), (Finding, ("findings",)),
    (InternalRecord, ("findings", "record")), (ServedState, ("findings", "record", "states")),
    (GuaranteeResult, ("guarantees",)), (Violation, ("guarantees", "violations")),
])  # fmt: skip
def test_classes_have_the_fields_of_the_schema(cls: Any, path: tuple[str, ...]) -> None:
    described = schema()
    for name in path:
        described = described["properties"][name]
        described = described.get("items", described)
    assert {field.name.rstrip("_") for field in fields(cls)} == set(described["properties"])
    always = {field.name.rstrip("_") for field in fields(cls) if field.default is not None or field.default is MISSING}
    assert set(described["required"]) <= always, "a required member is never left out"
