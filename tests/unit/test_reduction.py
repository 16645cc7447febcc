"""Steps of the reduction that need no Spark: where logs are cut, and which partitions differ."""

from collections.abc import Callable
from typing import Any

import pytest

from checkers.evidence.tables import REPLICA_PLACE, RunPartition
from checkers.reduction import beliefs, reduce
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
