"""Every checker on hand-written histories: what must be found, and every legal difference that must not be.

One case a run folder, and all of them checked in one Spark job: starting a job costs more than a case. Each
case states all its findings and all its doubts, so a checker that says too much fails as well.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from checker_cases import CASES
from checker_cases.case import HIDDEN, Case
from checker_cases.exposures import EXPOSURES, MARKER, TOMBSTONE, YOUNG
from literal import digest, write_run
from pyspark.sql import SparkSession

from checkers.anomalies import aborted_to_committed, committed_to_aborted, stuck_lso, tombstone_divergence
from checkers.consistency import doubts, exposure
from checkers.evidence.tables import load, raise_if_damaged
from checkers.finding import LIST
from checkers.replay.judged import Judged, judge
from harness.judge.check import collected
from harness.run_folder.store import RunFolder

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


@pytest.mark.parametrize("case", [pytest.param(case, id=case.history.name) for case in CASES])
def test_findings_and_doubts(case: Case, results: Results) -> None:
    rows = results.findings.get(case.history.name, [])
    assert [_facts(row) for row in rows] == [
        (w.anomaly, w.broker, "t", 0, w.offset, w.key, w.producer_id, w.effect, list(w.candidates))
        for w in case.findings
    ]
    for row, expected in zip(rows, case.findings, strict=True):
        assert expected.says in row["explanation"]
        witness = json.loads(row["witness"])
        assert {name: witness.get(name) for name in expected.witness} == expected.witness
        if expected.anomaly == HIDDEN:
            # A live audit that rules out a race reads the list of aborted transactions again, or else the record.
            assert (row["shown_by"] == LIST) == bool({"txnindex", "span"} & set(witness["evidence"]))
    doubts = results.doubts.get(case.history.name, [])
    assert [(row["kind"], row["broker"]) for row in doubts] == [(w.kind, w.broker) for w in case.doubts], doubts
    assert all(expected.says in row["reason"] for row, expected in zip(doubts, case.doubts, strict=True))


def _facts(row: Mapping[str, Any]) -> tuple[Any, ...]:
    names = ("anomaly", "broker", "topic", "partition", "offset", "key", "producer_id", "effect", "candidates")
    return tuple(row[name].decode() if name == "key" else row[name] for name in names)


BOTH = (TOMBSTONE, MARKER)


def of_brokers(kinds: Sequence[str], *facts: tuple[Any, ...]) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the facts of the brokers 1, 2 and so on, the same for each kind."""
    return {(kind, broker): expected for kind in kinds for broker, expected in enumerate(facts, 1)}


KILLED, TOGETHER = "exposed by a kill", "kept together and removed together"
EXPOSURE_FACTS: dict[tuple[str, str], dict[tuple[str, int], tuple[Any, ...]]] = {
    (KILLED, "payload_offset critical_offset"): (
        of_brokers([TOMBSTONE], (0, 3), (0, 3), (0, 3)) | of_brokers([MARKER], (1, 4), (1, 4), (1, 4))
    ),
    (KILLED, "had_payload has_payload held_critical held_after seen_there removed_at_ms"): of_brokers(
        BOTH,
        (False, False, False, False, True, 201),
        (True, True, False, False, False, None),
        (False, False, False, False, True, 203),
    ),
    (KILLED, "log_end_before log_end_after high_watermark_after same_directory was_served passed"): of_brokers(
        BOTH, (7, 7, 7, True, True, False), (3, 7, 7, True, True, False), (7, 7, 7, True, True, False)
    ),
    # The payload is the last record of its key before the outage.
    ("its key was written again during the outage", "payload_offset had_payload"): of_brokers(
        [TOMBSTONE], (1, False), (1, True)
    ),
    ("handed over in mid-copy", "led had_payload has_payload held_critical held_after log_end_before"): of_brokers(
        BOTH,
        (True, False, False, False, False, 7),
        (False, True, True, False, False, 3),
        (False, True, True, True, True, 7),
    ),
    ("another leader", "led"): of_brokers(BOTH, (False,), (False,)),
    ("another leader epoch", "led"): of_brokers(BOTH, (False,), (False,)),
    ("removed everywhere without a fault", "seen_there removed_at_ms held_after log_end_before"): of_brokers(
        BOTH, (True, 201, False, 7), (True, 202, False, 7), (True, 203, False, 7)
    ),
    ("kept during the outage", "had_payload held_critical held_after passed removed_at_ms same_directory"): of_brokers(
        BOTH,
        (False, True, False, True, 901, True),
        (True, False, False, False, 902, False),
        (False, True, False, False, 903, True),
    ),
    (TOGETHER, "had_payload held_critical held_after passed removed_at_ms"): of_brokers(
        BOTH, (True, True, False, False, 901), (True, False, False, False, 902), (True, True, False, False, 903)
    ),
    (TOGETHER, "same_directory was_served log_end_after served_digest"): of_brokers(
        BOTH, *[(True, True, 7, digest(YOUNG))] * 3
    ),
    (TOGETHER, "cleaned_past"): (
        of_brokers([TOMBSTONE], (True,), (False,), (True,)) | of_brokers([MARKER], (True,), (False,), (False,))
    ),
    ("the marker was never seen", "payload_offset critical_offset seen_there"): of_brokers(
        [MARKER], (0, None, False), (0, None, False)
    ),
    ("only the remnant of the marker was seen on one of two", "critical_offset seen_there removed_at_ms"): of_brokers(
        [MARKER], (1, True, 4), (1, False, 4)
    ),
    ("other records were written", "payload_offset critical_offset was_served same_directory"): (
        of_brokers([TOMBSTONE], (2, 10, True, False), (2, 10, False, False))
        | of_brokers([MARKER], (4, 12, True, False), (4, 12, False, False))
    ),
    ("emptied, and removed later", "had_payload seen_there removed_at_ms cleaned_past same_directory"): of_brokers(
        [MARKER], (False, True, 4, True, False), (True, False, None, False, True)
    ),
    ("stamped, and the cleaner has not come past", "cleaned_past passed held_critical"): of_brokers(
        [TOMBSTONE], (False, False, True), (False, False, False)
    ),
    ("nothing is replicated", "payload_offset critical_offset"): of_brokers([MARKER], (0, None), (0, None)),
}
"""Facts by the name of a history and the names of the facts, for each kind and broker."""


@pytest.mark.parametrize(("run", "names"), EXPOSURE_FACTS)
def test_exposure(results: Results, run: str, names: str) -> None:
    rows = results.exposure[run]
    facts = {(row["kind"], row["broker"]): tuple(row[name] for name in names.split()) for row in rows}
    assert len(facts) == len(rows)
    assert facts == EXPOSURE_FACTS[run, names]
