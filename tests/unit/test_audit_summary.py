"""What an audit prints: the summary, and one paragraph for each kind of finding and of undecided partitions."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import findings
import pytest
from junitparser.xunit2 import JUnitXml
from rich.console import Console

from harness.audit.explain.impact import NONE_LEADS, with_impact
from harness.audit.explain.metadata_evidence import MetadataEvidence
from harness.audit.explain.show import show_audit
from harness.judge.finding import Finding, ReplicaGroup
from harness.judge.verdict import ScenarioVerdict, Verdict
from harness.report.junit import write_audit
from harness.terminal import Terminal


def finding(partition: int = 0, **more: Any) -> Finding:
    facts = {"anomaly": "stuck-lso", "topic": "orders", "partition": partition, "producer_id": 7}
    return replace(findings.finding(**facts, explanation=f"frozen at {partition}"), **more)


def partition(number: int, verdict: str = "clean", **more: Any) -> ScenarioVerdict:
    return ScenarioVerdict(
        scenario=f"orders-{number}", anomaly=None, payload=None, topic="orders", partition=number, verdict=verdict,
        exposure={"replicas": []}, **{"reason": "they agree", **more},
    )  # fmt: skip


def audit(*scenarios: ScenarioVerdict, findings: tuple[Finding, ...] = (), notes: tuple[str, ...] = ()) -> Verdict:
    return Verdict(
        verdict="anomaly", reason="", run_id="audit-1", target={"name": "cluster", "cluster_id": "C"},
        timings_s={"ask": 1.2, "read": 2.0}, scenarios=scenarios, findings=findings, checker_errors={}, notes=notes,
    )  # fmt: skip


def printed(verdict: Verdict, *, width: int | None = None, file: str | None = "a.json", verbose: bool = False) -> str:
    text = io.StringIO()
    is_terminal = width is not None
    console = Console(file=text, width=width or 10_000, force_terminal=is_terminal, color_system=None, highlight=False)
    show_audit(Terminal(console), verdict, "--bootstrap-server h:1", file=file, is_verbose=verbose)
    return text.getvalue()


def test_findings_of_a_kind_are_one_paragraph_and_undecided_partitions_are_counted_by_cause() -> None:
    assert printed(audit(partition(0), partition(1))) == "0 of 2 partitions diverged, 2 agree   (cluster C, 3 s)\n"
    scenarios = [partition(n, "anomaly") for n in range(2)] + [partition(2)]
    scenarios += [partition(n, "unknown", reason="gone", causes=("not-read",)) for n in range(3, 5)]
    assert printed(audit(*scenarios, findings=(finding(0), finding(1)), notes=("seen",))) == (
        "2 of 5 partitions diverged, 2 undecided, 1 agrees   (cluster C, 3 s)\n"
        "ANOMALY      stuck-lso: orders-0, orders-1: broker 2 is wrong\n"
        "  Meaning    broker 2 will never deliver orders-0 past offset 5 to read_committed consumers\n"
        "             broker 2 will never deliver orders-1 past offset 5 to read_committed consumers\n"
        "  Evidence   broker 2, orders-0, offset 5: frozen at 0\n"
        "             and 1 more\n"
        "UNKNOWN      not-read: orders-3, orders-4\n"
        "  Why        gone\n"
        "note         seen\n"
        "next         harness repair a.json --bootstrap-server h:1 --plan\n"
    )


def test_the_worst_comes_first() -> None:
    kinds = (
        finding(0, anomaly="committed-to-aborted", effect="latent"),
        finding(1, anomaly="tombstone-divergence", decided=False), finding(2, broker=1), finding(3), finding(4),
    )  # fmt: skip
    lines = printed(audit(partition(0, "anomaly"), findings=kinds)).splitlines()
    assert [line.split(None, 1)[1] for line in lines if line.startswith("ANOMALY")] == [
        "stuck-lso: orders-3, orders-4: broker 2 is wrong",
        "stuck-lso: orders-2: broker 1 is wrong",
        "tombstone-divergence: orders-1: cannot tell which replica is wrong",
        "committed-to-aborted: orders-0: broker 2 is wrong",
    ]


def test_many_partitions_are_counted_and_no_word_is_cut_on_a_terminal() -> None:
    text = printed(audit(findings=tuple(finding(number) for number in range(12))))
    assert "orders-0, orders-1, orders-2, orders-3, orders-4, orders-5, orders-6, orders-7 and 4 more: broker" in text
    words = [f"word{number}" for number in range(40)]
    text = printed(audit(findings=(finding(explanation=" ".join(words)),)), width=40)
    assert set(words) <= set(text.split())
    assert max(map(len, text.splitlines()[2:])) <= 40


def test_what_is_not_decided_has_another_next_step_and_a_hanging_transaction_is_aborted() -> None:
    text = printed(audit(findings=(finding(decided=False),)))
    assert "  Next       decide which replica is right, then harness repair a.json" in text
    assert "\nnext " not in text
    commands = ("BOOTSTRAP=h:1", "kafka-transactions.sh abort")
    hanging = finding(anomaly="hanging-transaction", commands=commands, do="first find the application")
    text = printed(audit(findings=(hanging,)))
    assert "hanging-transaction: orders-0: on every replica\n" in text
    first = "  First      first find the application\n"
    assert f"{first}  Next       BOOTSTRAP=h:1\n             kafka-transactions.sh abort\n" in text
    assert "repair" not in text


def test_details_and_the_file_are_offered() -> None:
    text = printed(audit(findings=(finding(),)), file=None)
    assert "audit.json: run the audit with --output audit.json; --verbose prints every finding\n" in text
    assert "ANOMALY stuck-lso: broker 2, orders-0, offset 5" in printed(audit(findings=(finding(),)), verbose=True)


def test_a_partition_is_a_test_case(tmp_path: Path) -> None:
    scenarios = (partition(0), partition(1, "anomaly"), partition(2, "unknown", reason="gone"))
    write_audit(tmp_path / "a.xml", audit(*scenarios, findings=(finding(1, explanation="\x1b"),)))
    (suite,) = JUnitXml.fromfile(str(tmp_path / "a.xml"))
    results = {case.name: [(type(result).__name__, result.message) for result in case.result] for case in suite}
    assert results == {"orders-0": [], "orders-1": [("Failure", "they agree")], "orders-2": [("Error", "gone")]}


LED_BY = {leader: MetadataEvidence(leaders={("orders", 0): leader}, is_current=True) for leader in (-1, 1, 2)}


HIDDEN_OFFSETS = {"witness": {"high_watermark_here": 1069}}
DISAGREE = {"decided": False, "disagree": (ReplicaGroup(brokers=(1, 3), serves="nothing"),)}


@pytest.mark.parametrize(("facts", "leader", "expected"), [
    ({}, 2, "broker 2 leads: read_committed consumers stop at offset 5"),
    (HIDDEN_OFFSETS, 2, "broker 2 leads: read_committed consumers stop at offset 5 (1,064 offsets are hidden)"),
    ({}, 1, "broker 2 follows: only consumers that read from followers get its records"),
    ({}, -1, NONE_LEADS),
    ({"anomaly": "tombstone-divergence"}, 2, "broker 2 leads: consumers get values that were deleted"),
    ({"effect": "latent"}, 2, "broker 2 leads: no record that is served now is wrong"),
    ({"anomaly": "hanging-transaction"}, 1, "read_committed consumers stop at offset 5"),
    ({"decided": False}, 1, "broker 1 leads"),
    (DISAGREE, 1, "broker 1 leads and serves nothing"),
])  # fmt: skip
def test_the_impact_depends_on_the_leader(facts: dict[str, Any], leader: int, expected: str) -> None:
    assert with_impact(finding(**facts), LED_BY[leader]).impact == expected


def test_copies_show_no_impact() -> None:
    assert with_impact(finding(), MetadataEvidence(leaders={("orders", 0): 2})).impact is None
