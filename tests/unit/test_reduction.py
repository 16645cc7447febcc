"""Steps of the reduction that need no Spark: where logs are cut, and which partitions differ."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from checkers.evidence.tables import REPLICA_PLACE, RunPartition
from checkers.reduction import beliefs, consistent_spans, reduce
from checkers.reduction import packed_spans as span
from checkers.reduction.reduce import Cuts

CutFurther = Callable[[Cuts, Cuts], Cuts]
Differing = Callable[[list[dict[str, Any]]], set[RunPartition]]

A, B = ("run", "t", 0, 1), ("run", "t", 0, 2)


@pytest.fixture
def cut_further() -> CutFurther:
    """Trials of mutants replace the fixtures."""
    return reduce.cut_further


@pytest.fixture
def differing_places() -> Differing:
    return beliefs.differing_places


@pytest.fixture
def sorted_spans() -> Any:
    return consistent_spans.SortedSpans


@pytest.mark.parametrize(("tails", "cuts"), [({B: 9}, {A: 7, B: 9}), ({A: 6}, {A: 6})], ids=["of another", "further"])
def test_a_tail_is_cut(cut_further: CutFurther, tails: Cuts, cuts: Cuts) -> None:
    assert cut_further({A: 7}, tails) == cuts


@pytest.mark.parametrize("tails", [{A: 7}, {A: 8}, {A: 7, B: 3}])
def test_a_tail_that_was_cut_is_not_found_again(cut_further: CutFurther, tails: Cuts) -> None:
    with pytest.raises(RuntimeError, match=r"begin where the logs are already cut: \[\('run', 't', 0, 1\)\]"):
        cut_further({A: 7}, tails)


def summed(broker: int, **fields: int) -> dict[str, Any]:
    digests = {"committed": 1, "aborted": 2, "open": None, "marker": 3}
    return {**dict(zip(REPLICA_PLACE, ("run", "t", 0, broker), strict=True)), **digests, "misjudged": 0, **fields}


def test_replicas_that_hold_the_same_and_believe_the_same_do_not_differ(differing_places: Differing) -> None:
    assert differing_places([summed(1), summed(2)]) == set()


@pytest.mark.parametrize("name", ["committed", "aborted", "open", "marker", "misjudged"])
def test_one_belief_is_enough_to_differ(name: str, differing_places: Differing) -> None:
    assert differing_places([summed(1), summed(2, **{name: 7})]) == {("run", "t", 0)}


SPANS_OF_CHUNK = (
    (span.INDEX, 1, -2, True, False), (span.DATA, 2, 0, True, True), (span.ABORTS, 3, 0, True, True),
    (span.INDEX, 3, 2, True, False), (span.DATA, 4, 0, False, False), (span.ABORTS, 5, 0, False, False),
    (span.INDEX, 5, 4, False, False), (span.OPEN, 6, 0, False, False), (span.COMMITS, 7, 0, False, True),
    (span.DATA, 8, 0, False, False), (span.ABORTS, 9, 0, False, False), (span.INDEX, 9, 8, True, False),
    (span.DATA, 10, 0, False, False), (span.COMMITS, 11, 0, True, True), (span.DATA, 12, 0, True, True),
    (span.DATA, 13, 0, False, True), (span.EMPTIED, 14, 0, False, True),
)  # fmt: skip
"""Kind, offset and start of each span of a producer, whether it matters beyond its chunk, whether it is unsettled."""


def test_few_spans_of_a_chunk_matter_beyond_it(sorted_spans: Any) -> None:
    spans = np.zeros(len(SPANS_OF_CHUNK), span.SPAN)
    spans["kind"], at, since, is_beyond, is_unsettled = np.array(SPANS_OF_CHUNK).T
    spans["at"], spans["since"] = span.CHUNK_OFFSETS + at, span.CHUNK_OFFSETS + since
    chunk = sorted_spans.of(spans)
    assert chunk.contradicting.tolist() == []
    assert [row in chunk.beyond_chunk() for row in spans] == is_beyond.astype(bool).tolist()
    assert chunk.unsettled().tolist() == is_unsettled.astype(bool).tolist()
