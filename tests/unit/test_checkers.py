"""Every checker on hand-written histories: what must be found, and every legal difference that must not be.

One case a run folder, and all of them checked in one Spark job: starting a job costs more than a case. Each
case states all its findings and all its doubts, so a checker that says too much fails as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from checker_cases import CASES
from checker_cases.exposures import EXPOSURES, MARKER, TOMBSTONE
from literal import write_run

from checkers.anomalies import aborted_to_committed, committed_to_aborted, stuck_lso, tombstone_divergence
from checkers.consistency import doubts, exposure
from checkers.evidence.tables import load, raise_if_damaged
from checkers.replay.judged import judge
from harness.judge.check import collected
from harness.run_folder.store import RunFolder

if TYPE_CHECKING:
    from checker_cases.case import Case
    from pyspark.sql import SparkSession

    from checkers.replay.judged import Judged

PARAMETERS = [pytest.param(case, id=case.history.name) for case in CASES]

CHECKERS = (stuck_lso, aborted_to_committed, committed_to_aborted, tombstone_divergence)

Rows = list[Mapping[str, Any]]


@dataclass(frozen=True)
class Results:
    """All rows of the checkers, by name of the run."""

    findings: dict[str, Rows]
    doubts: dict[str, Rows]
    exposure: dict[str, Rows]


@pytest.fixture(scope="session")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    top = tmp_path_factory.mktemp("runs")
    histories = [*(case.history for case in CASES), *EXPOSURES]
    # Planned before there is anything to read, as a run does it.
    evidence = load(spark, [RunFolder(top / history.name) for history in histories])
    judged = judge(evidence)
    for history in histories:
        write_run(top, history)
    raise_if_damaged(evidence.problems)
    return judged


@pytest.fixture(scope="session")
def results(judged: Judged) -> Results:
    findings = [row for checker in CHECKERS for row in collected(checker.check(judged))]
    return Results(by_run(findings), by_run(collected(doubts.check(judged))), by_run(collected(exposure.check(judged))))


def by_run(rows: Iterable[Mapping[str, Any]]) -> dict[str, Rows]:
    runs: dict[str, Rows] = {}
    for row in sorted(rows, key=lambda row: (row["broker"] or 0, row.get("offset") or 0)):
        runs.setdefault(row["run"], []).append(row)
    return runs


@pytest.mark.parametrize("case", PARAMETERS)
def test_findings(case: Case, results: Results) -> None:
    rows = results.findings.get(case.history.name, [])
    assert [_facts(row) for row in rows] == [
        (w.anomaly, w.broker, "t", 0, w.offset, w.key, w.producer_id, w.effect, list(w.candidates))
        for w in case.findings
    ]
    for row, expected in zip(rows, case.findings, strict=True):
        assert expected.says in row["explanation"]
        witness = json.loads(row["witness"])
        assert {name: witness.get(name) for name in expected.witness} == expected.witness


def _facts(row: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("anomaly", "broker", "topic", "partition", "offset", "key", "producer_id", "effect", "candidates")
    return tuple(row[name].decode() if name == "key" else row[name] for name in names)


@pytest.mark.parametrize("case", PARAMETERS)
def test_doubts(case: Case, results: Results) -> None:
    rows = results.doubts.get(case.history.name, [])
    assert [(row["kind"], row["broker"]) for row in rows] == [(w.kind, w.broker) for w in case.doubts], rows
    for row, expected in zip(rows, case.doubts, strict=True):
        assert expected.says in row["reason"]


def test_names_are_unique() -> None:
    names = [history.name for history in [*(case.history for case in CASES), *EXPOSURES]]
    assert len(set(names)) == len(names)


def _exposure(results: Results, run: str, *names: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the named facts by (kind, broker)."""
    rows = results.exposure[run]
    facts = {(row["kind"], row["broker"]): tuple(row[name] for name in names) for row in rows}
    assert len(facts) == len(rows)
    return facts


def test_exposure_names_the_payload_and_what_must_vanish(results: Results) -> None:
    offsets = _exposure(results, "exposed by a kill", "payload_offset", "critical_offset")
    assert offsets == {
        **{(TOMBSTONE, broker): (0, 3) for broker in (1, 2, 3)},
        **{(MARKER, broker): (1, 4) for broker in (1, 2, 3)},
    }


def test_the_payload_is_the_last_of_its_key_before_the_outage(results: Results) -> None:
    facts = _exposure(results, "its key was written again during the outage", "payload_offset", "had_payload")
    assert facts == {(TOMBSTONE, 1): (1, False), (TOMBSTONE, 2): (1, True)}


@pytest.mark.parametrize("kind", [TOMBSTONE, MARKER])
def test_exposure_by_a_kill(results: Results, kind: str) -> None:
    facts = _exposure(
        results,
        "exposed by a kill",
        "had_payload",
        "has_payload",
        "held_critical",
        "held_after",
        "seen_there",
        "removed_at_ms",
        "log_end_before",
        "log_end_after",
        "high_watermark_after",
        "same_directory",
        "was_served",
        "passed",
    )
    assert facts[kind, 1] == (False, False, False, False, True, 201, 7, 7, 7, True, True, False)
    assert facts[kind, 2] == (True, True, False, False, False, None, 3, 7, 7, True, True, False)
    assert facts[kind, 3] == (False, False, False, False, True, 203, 7, 7, 7, True, True, False)


@pytest.mark.parametrize("kind", [TOMBSTONE, MARKER])
def test_exposure_by_a_leader_that_changes_in_mid_copy(results: Results, kind: str) -> None:
    names = ("led", "had_payload", "has_payload", "held_critical", "held_after", "log_end_before")
    facts = _exposure(results, "handed over in mid-copy", *names)
    assert facts[kind, 1] == (True, False, False, False, False, 7)
    assert facts[kind, 2] == (False, True, True, False, False, 3)
    assert facts[kind, 3] == (False, True, True, True, True, 7)


@pytest.mark.parametrize("what", ["leader", "leader epoch"])
def test_exposure_by_a_leader_that_did_not_lead_all_the_time(results: Results, what: str) -> None:
    assert set(_exposure(results, f"another {what}", "led").values()) == {(False,)}


@pytest.mark.parametrize("kind", [TOMBSTONE, MARKER])
def test_exposure_without_a_fault(results: Results, kind: str) -> None:
    facts = _exposure(
        results, "removed everywhere without a fault", "seen_there", "removed_at_ms", "held_after", "log_end_before"
    )
    assert {broker: facts[kind, broker] for broker in (1, 2, 3)} == {
        broker: (True, 200 + broker, False, 7) for broker in (1, 2, 3)
    }


@pytest.mark.parametrize("kind", [TOMBSTONE, MARKER])
def test_exposure_of_what_was_kept(results: Results, kind: str) -> None:
    facts = _exposure(
        results,
        "kept during the outage",
        "had_payload",
        "held_critical",
        "held_after",
        "passed",
        "removed_at_ms",
        "same_directory",
    )
    assert facts[kind, 1] == (False, True, False, True, 901, True)
    assert facts[kind, 2] == (True, False, False, False, 902, False)
    assert facts[kind, 3] == (False, True, False, False, 903, True)


@pytest.mark.parametrize("kind", [TOMBSTONE, MARKER])
def test_exposure_of_what_was_removed_together(results: Results, kind: str) -> None:
    facts = _exposure(
        results,
        "kept together and removed together",
        "had_payload",
        "held_critical",
        "held_after",
        "cleaned_past",
        "passed",
        "removed_at_ms",
        "same_directory",
        "was_served",
        "log_end_after",
    )
    past = {TOMBSTONE: (True, True), MARKER: (True, False)}[kind]
    assert facts[kind, 1] == (True, True, False, past[0], False, 901, True, True, 7)
    assert facts[kind, 2] == (True, False, False, False, False, 902, True, True, 7)
    assert facts[kind, 3] == (True, True, False, past[1], False, 903, True, True, 7)


def test_exposure_of_a_marker_that_was_never_seen(results: Results) -> None:
    assert _exposure(results, "the marker was never seen", "payload_offset", "critical_offset", "seen_there") == {
        (MARKER, 1): (0, None, False),
        (MARKER, 2): (0, None, False),
    }


def test_exposure_of_a_marker_that_was_emptied_before_it_was_removed(results: Results) -> None:
    run = "only the remnant of the marker was seen on one of two"
    assert _exposure(results, run, "critical_offset", "seen_there", "removed_at_ms") == {
        (MARKER, 1): (1, True, 4),
        (MARKER, 2): (1, False, 4),
    }


def test_exposure_is_to_what_the_payload_deleted_and_ended_while_it_was_away(results: Results) -> None:
    facts = _exposure(
        results, "other records were written", "payload_offset", "critical_offset", "was_served", "same_directory"
    )
    assert facts == {
        (TOMBSTONE, 1): (2, 10, True, False),
        (TOMBSTONE, 2): (2, 10, False, False),
        (MARKER, 1): (4, 12, True, False),
        (MARKER, 2): (4, 12, False, False),
    }


def test_exposure_of_a_marker_that_was_emptied_first(results: Results) -> None:
    facts = _exposure(
        results, "emptied, and removed later", "seen_there", "removed_at_ms", "cleaned_past", "same_directory"
    )
    assert facts == {(MARKER, 1): (True, 4, True, False), (MARKER, 2): (False, None, False, True)}


def test_exposure_of_what_the_cleaner_has_not_come_past(results: Results) -> None:
    facts = _exposure(results, "stamped, and the cleaner has not come past", "cleaned_past", "passed", "held_critical")
    assert facts == {(TOMBSTONE, 1): (False, False, True), (TOMBSTONE, 2): (False, False, False)}


def test_exposure_of_what_lies_beyond_the_bound(results: Results) -> None:
    assert _exposure(results, "nothing is replicated", "payload_offset", "critical_offset") == {
        (MARKER, 1): (0, None),
        (MARKER, 2): (0, None),
    }
