"""The reduction keeps every doubtful record and no other; of too many keys, it keeps the first differing keys."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from copied import copy, write_copies
from literal import Entry, Txn, abort, commit, delete, put
from pyspark.sql import SparkSession

from checkers.finding import LISTED
from checkers.reduction.candidate_keys import KEYS_A_PARTITION
from checkers.reduction.reduce import Reduced, reduce_copies
from harness.audit.judge_copies import assemble, judge_reduced
from harness.broker_files.copies.copies import Copies, find_copies
from harness.json_codec import to_json

KEYS, TOO_MANY = KEYS_A_PARTITION + 500, 500
FIRST = range(KEYS)

ENDED, DROPPED = Txn(5, "ended/1"), Txn(5, "dropped/1")
OPEN_BOTH, OPEN_HERE, OPEN_LATER = Txn(6, "both/1"), Txn(7, "here/1"), Txn(8, "later/1")
BOUND = 40


@dataclass(frozen=True)
class Given:
    """Copies of which all but little is alike, and those where too many keys differ."""

    few: Copies
    many: Copies


@dataclass(frozen=True)
class Results:
    """Broker, offset and key (None: batches without their records) of what is left, how many keys are not, verdicts."""

    few: set[tuple[int, int, str | None]]
    many: set[tuple[int, int, str | None]]
    left_out: list[int]
    verdict: dict[str, Any]


def given(top: Path) -> Given:
    return Given(_few(top / "few"), _many(top / "many"))


def _few(top: Path) -> Copies:
    """One key differs; transactions have ended, are open on both, on one, and on one from the bound on."""
    alike = (
        put(1, "A", ENDED), commit(2, ENDED), put(3, "B"), put(4, "D", DROPPED), abort(5, DROPPED),
        put(6, "C", OPEN_BOTH), put(7, "E", OPEN_HERE),
    )  # fmt: skip
    first = copy(1, *alike, delete(9, "K"), put(BOUND, "F", OPEN_LATER), put(BOUND + 1, "end"))
    other = copy(2, put(0, "K"), *alike, commit(8, OPEN_HERE), put(BOUND - 1, "end"))
    return find_copies(write_copies(top, first, other), ["t"], "few")


def _many(top: Path) -> Copies:
    """Each replica has the value of every other key, and has deleted the rest."""

    def log(broker: int) -> list[Entry]:
        alive = [put(at, f"k{at}") for at in FIRST if at % 2 == broker % 2]
        return [*alive, *(delete(KEYS + at, f"k{at}") for at in FIRST if at % 2 != broker % 2), put(2 * KEYS, "end")]

    return find_copies(write_copies(top, copy(1, *log(1)), copy(2, *log(2))), ["t"], "many")


def said_of(
    given: Given, reduce_one: Callable[[Copies], Reduced], judge: Callable[[Reduced], dict[str, Any]]
) -> Results:
    few, many = reduce_one(given.few), reduce_one(given.many)
    return Results(
        _left(few), _left(many), list(many.left_out.values()), to_json(assemble(given.many, judge(many), timings_s={}))
    )


def _left(reduced: Reduced) -> set[tuple[int, int, str | None]]:
    assert reduced.evidence is not None
    rows = reduced.evidence.entries.select("broker", "base_offset", "key").collect()
    assert len(set(rows)) == len(rows)
    return {(row["broker"], row["base_offset"], bytes(row["key"]).decode() if row["key"] else None) for row in rows}


@pytest.fixture(scope="module")
def results(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Results:
    top = tmp_path_factory.mktemp("copies")
    return said_of(given(top), lambda copies: reduce_copies(spark, [copies], tasks=2), judge_reduced)


def test_what_is_in_doubt_is_left_and_no_more(results: Results) -> None:
    differing, marker = {(2, 0, "K"), (1, 9, "K"), (1, 7, "E"), (2, 7, "E")}, (2, 8, None)
    still_open = {(1, 6, None), (2, 6, None), (1, BOUND, None)}
    assert results.few == differing | {marker} | still_open


def test_keys_that_differ_first_are_judged_by_all_their_records(results: Results) -> None:
    alive = {(1 if at % 2 else 2, at, f"k{at}") for at in range(KEYS_A_PARTITION)}
    deleted = {(2 if at % 2 else 1, KEYS + at, f"k{at}") for at in range(KEYS_A_PARTITION)}
    assert results.many == alive | deleted
    assert {finding["anomaly"] for finding in results.verdict["findings"]} == {"tombstone-divergence"}


def test_the_first_findings_of_a_partition_are_listed_and_the_others_counted(results: Results) -> None:
    notes = results.verdict["notes"]
    assert len(results.verdict["findings"]) == LISTED
    assert f"t-0: the first {LISTED} findings are listed, and {KEYS_A_PARTITION - LISTED:,} more are not" in notes
    assert results.left_out == [TOO_MANY]
    assert f"t-0: {TOO_MANY} more keys may differ, and were not compared one by one" in notes
