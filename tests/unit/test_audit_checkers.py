"""Audits of hand-written logs without client histories: expected findings, legal differences, and undecided cases.

Each case is a set of copied log directories. One Spark job judges all cases: completely, after the reduction in one
chunk of offsets and in chunks of three, and in two shares of their keys. All results must be the same, and each case
states the complete result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from audit_cases import CASES
from audit_cases.case import Case
from checker_cases.case import Finding
from copied import write_copies
from pyspark.sql import SparkSession

from checkers.evidence.tables import load_copies
from checkers.reduction.reduce import reduce_copies
from harness.audit.judge_copies import assemble, judge_reduced, judge_whole
from harness.audit.live.settle import CheckedReading, of_all_keys
from harness.broker_files.copies.copies import Copies, find_copies
from harness.broker_files.segments.key_share import ALL_KEYS
from harness.json_codec import to_json

LET_GO = {
    "a producer snapshot was taken before the marker, and nothing but that followed",
    "a record without a key, which cleaners remove as invalid", "a transaction continues in the next segment",
    "an ABORT whose transaction was cleaned away before any of these copied it",
    "an older producer snapshot holds open what has ended since",
    "a delete that is committed beyond the bound is present, and gone elsewhere", "a gap between epochs proves nothing",
    "a log start that was moved", "a log start that was moved, and only one broker has written it down",
    "a log whose first segments are gone", "a producer snapshot from before the last segment proves nothing",
    "a producer snapshot was taken before the marker", "a producer without transactions continues in a higher epoch",
    "aborted alike", "cleaned at different times", "high watermarks that lag behind logs that end alike",
    "leaders that followed each other", "no checkpoints", "one replica", "segments that were rolled at other places",
    "transactions begin in one chunk of offsets and end in the next, and were cleaned at different times",
}  # fmt: skip
"""Where all logs end alike, nothing is open, and every marker that any replica shows decides on all of them."""

ALONE = (
    "alive, and the tombstone is still elsewhere",
    "open everywhere, and its coordinator is done: hanging, unless another replica was not copied",
    "the COMMIT inside the span of a .txnindex lies before the other log's start",
)
"""Replicas that differ, that hold a transaction open, whose `.txnindex` has a span: each is reason to look closer."""

NOT_BY_KEY = ("stale tail", "the last segment is cut", "its first batch has two records", "hidden on two replicas")
"""Cases that live audits do not read by key, or where another replica or key is the example of an undecided finding."""
SHARES = ALL_KEYS.halves()
WAYS = WHOLE, REDUCED, IN_CHUNKS, BY_KEY = "whole", "reduced", "reduced in chunks", "by key"
Verdicts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Results:
    """Verdicts by way and case; ``let_go``: cases that the reduction let go; ``alone``: `ALONE`, each a job."""

    top: Path
    verdicts: dict[str, Verdicts]
    let_go: set[str]
    alone: Verdicts


@pytest.fixture(scope="module")
def results(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Results:
    top = tmp_path_factory.mktemp("copies")
    every, shares = [], []
    for case in CASES:
        every.append(written(case, top / case.name, case.name))
        for share in SHARES:
            folder = top / f"{case.name} {share.number}"
            shares.append(written(case, folder, folder.name))
            for path in folder.rglob("t-0/*.log"):
                batches, bound = memoryview(path.read_bytes()), min(copied.log_end for copied in case.copies)
                path.write_bytes(share.batches_of(batches, bound, source=str(path)))
    reduced = reduce_copies(spark, every, tasks=2)
    in_chunks = reduce_copies(spark, every, tasks=2, chunk_offsets=3)
    whole = judge_whole(load_copies(spark, every))
    rows = {WHOLE: whole, REDUCED: judge_reduced(reduced), IN_CHUNKS: judge_reduced(in_chunks)}
    rows[BY_KEY] = united(judge_reduced(reduce_copies(spark, shares, tasks=2)))
    assert [value["raised"] for value in rows.values()] == [[], [], [], []]
    return Results(
        top,
        {
            way: {copies.run_id: to_json(assemble(copies, value, timings_s={})) for copies in every}
            for way, value in rows.items()
        },
        {run for run, *_ in reduced.cleared},
        judged_alone(every, lambda copies: judge_reduced(reduce_copies(spark, [copies], tasks=2))),
    )


def written(case: Case, folder: Path, run_id: str) -> Copies:
    brokers = write_copies(folder, *case.copies)
    case.spoil(folder)
    return find_copies(brokers, ["t"], run_id)


def united(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of all shares as rows of their cases."""

    def of_share(table: Sequence[Mapping[str, Any]], number: int) -> list[dict[str, Any]]:
        return [{**row, "run": row["run"].rsplit(" ", 1)[0]} for row in table if row["run"].endswith(f" {number}")]

    shares = [{name: of_share(table, share.number) for name, table in rows.items()} for share in SHARES]
    readings = [CheckedReading((), of_one, {}) for of_one in shares]
    return {**of_all_keys(readings).rows, "raised": rows["raised"]}


def judged_alone(every: Sequence[Copies], judge: Callable[[Copies], Mapping[str, Any]]) -> Verdicts:
    """Return the verdicts of `ALONE`."""
    return {each.run_id: to_json(assemble(each, judge(each), timings_s={})) for each in every if each.run_id in ALONE}


EVERY_CASE = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
OF_CASES = ("anomaly", "broker", "offset", "key", "producer_id", "effect", "candidates", "decided")


@EVERY_CASE
def test_verdicts_and_findings(case: Case, results: Results) -> None:
    verdict = results.verdicts[WHOLE][case.name]
    findings = verdict["findings"]
    assert [[finding[name] for name in ("topic", "partition", *OF_CASES)] for finding in findings] == [
        ["t", 0, *(to_json(_key_of(finding) if name == "key" else getattr(finding, name)) for name in OF_CASES)]
        for finding in case.findings
    ]
    for finding, expected in zip(findings, case.findings, strict=True):
        assert expected.says in finding["explanation"]
        assert {name: finding["witness"].get(name) for name in expected.witness} == expected.witness
    (partition,) = verdict["scenarios"]
    assert (verdict["verdict"], partition["verdict"]) == (case.verdict, case.verdict), partition["reason"]
    assert case.says.format(top=results.top / case.name) in partition["reason"]
    assert partition["reason"] in verdict["reason"]


def _key_of(finding: Finding) -> dict[str, str] | None:
    return None if finding.key is None else {"text": finding.key}


@pytest.mark.parametrize("way", [REDUCED, IN_CHUNKS])
@EVERY_CASE
def test_all_ways_say_the_same(case: Case, way: str, results: Results) -> None:
    assert results.verdicts[way][case.name] == results.verdicts[WHOLE][case.name]


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name) for c in CASES if not any(name in c.name for name in NOT_BY_KEY)]
)
def test_shares_of_keys_say_the_same_together(case: Case, results: Results) -> None:
    by_key, whole = results.verdicts[BY_KEY][case.name], results.verdicts[WHOLE][case.name]
    assert by_key["verdict"] == whole["verdict"], by_key["reason"]
    names = (*OF_CASES, "witness")
    assert [[f[n] for n in names] for f in by_key["findings"]] == [[f[n] for n in names] for f in whole["findings"]]


@pytest.mark.parametrize("name", ALONE)
def test_one_reason_to_look_closer_is_enough(name: str, results: Results) -> None:
    assert results.alone[name] == results.verdicts[WHOLE][name]


def test_what_leaves_no_doubt_is_let_go(results: Results) -> None:
    assert results.let_go == LET_GO
