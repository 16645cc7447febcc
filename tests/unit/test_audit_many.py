"""More keys differ than are judged one by one: those that differ first are, and the others are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from copied import copy, write_copies
from literal import delete, put

from checkers.reduce import reduce_copies
from checkers.sieve import KEYS_A_BUCKET
from harness.audit.copies import find_copies
from harness.audit.judge import assemble, judge_reduced

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from harness.audit.copies import Copies

KEYS, TOO_MANY = KEYS_A_BUCKET + 500, 500
FIRST, END = range(KEYS), 3 * KEYS


@dataclass(frozen=True)
class Said:
    """The keys and offsets that are left of the replica that is wrong, how many keys are not, and the verdict."""

    left: set[tuple[str, int]]
    left_out: list[int]
    verdict: dict[str, Any]


def many(top: Path) -> Copies:
    """Write each key twice, the second time from the last to the first; the other replica deleted all."""
    twice = [*((at, at) for at in FIRST), *((2 * KEYS - 1 - at, at) for at in FIRST)]
    alive = [put(offset, f"k{key}") for offset, key in sorted(twice)]
    deleted = [delete(2 * KEYS + at, f"k{at}") for at in FIRST]
    brokers = write_copies(top, copy(1, *alive, put(END, "end")), copy(2, *deleted, put(END, "end")))
    return find_copies(brokers, ["t"], "many")


def judged(reduced: Any, judge: Any, copies: Copies) -> Said:
    rows = reduced.evidence.entries.where("broker = 1").select("key", "offset").collect()
    left = {(bytes(row["key"]).decode(), row["offset"]) for row in rows}
    return Said(left, list(reduced.left_out.values()), assemble(copies, judge(reduced), timings_s={}))


@pytest.fixture(scope="module")
def said(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Said:
    copies = many(tmp_path_factory.mktemp("many"))
    return judged(reduce_copies(spark, [copies], tasks=2), judge_reduced, copies)


def test_keys_that_differ_first_are_judged_by_all_their_records(said: Said) -> None:
    assert said.left == {(f"k{at}", offset) for at in range(KEYS_A_BUCKET) for offset in (at, 2 * KEYS - 1 - at)}
    assert {found["anomaly"] for found in said.verdict["findings"]} == {"tombstone-divergence"}
    assert {found["key"]["text"] for found in said.verdict["findings"]} == {f"k{at}" for at in range(KEYS_A_BUCKET)}


def test_the_others_are_counted(said: Said) -> None:
    assert said.left_out == [TOO_MANY]
    assert f"t-0: {TOO_MANY} more keys may differ, and were not looked at one by one" in said.verdict["notes"]
