"""Steps of the reduction that need no Spark: where logs are cut, and which partitions differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import checkers.reduction.beliefs
import checkers.reduction.reduce
from checkers.evidence.tables import REPLICA_PLACE, RunPartition
from checkers.reduction.reduce import Cuts

if TYPE_CHECKING:
    CutFurther = Callable[[Cuts, Cuts], Cuts]
    Differing = Callable[[list[dict[str, Any]]], set[RunPartition]]

A, B = ("run", "t", 0, 1), ("run", "t", 0, 2)


@pytest.fixture
def cut_further() -> CutFurther:
    return checkers.reduction.reduce.cut_further


def test_a_tail_of_another_replica_is_cut_as_well(cut_further: CutFurther) -> None:
    assert cut_further({A: 7}, {B: 9}) == {A: 7, B: 9}


def test_a_log_is_cut_further_down(cut_further: CutFurther) -> None:
    assert cut_further({A: 7}, {A: 6}) == {A: 6}


@pytest.mark.parametrize("found", [{A: 7}, {A: 8}, {A: 7, B: 3}])
def test_a_tail_that_was_cut_is_not_found_again(cut_further: CutFurther, found: Cuts) -> None:
    with pytest.raises(RuntimeError, match=r"begin where the logs are already cut: \[\('run', 't', 0, 1\)\]"):
        cut_further({A: 7}, found)


@pytest.fixture
def differing_places() -> Differing:
    return checkers.reduction.beliefs.differing_places


def summed(broker: int, **fields: int) -> dict[str, Any]:
    """A row of `Beliefs.summary`."""
    digests = {"committed": 1, "aborted": 2, "open": None, "marker": 3}
    return {**dict(zip(REPLICA_PLACE, ("run", "t", 0, broker), strict=True)), **digests, "misjudged": 0, **fields}


def test_replicas_that_hold_the_same_and_believe_the_same_do_not_differ(differing_places: Differing) -> None:
    assert differing_places([summed(1), summed(2)]) == set()


@pytest.mark.parametrize("name", ["committed", "aborted", "open", "marker", "misjudged"])
def test_one_belief_is_enough_to_differ(name: str, differing_places: Differing) -> None:
    assert differing_places([summed(1), summed(2, **{name: 7})]) == {("run", "t", 0)}
