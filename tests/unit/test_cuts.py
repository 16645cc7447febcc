"""Where the reduction cuts logs: each stale tail once, and never for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import checkers.reduce

if TYPE_CHECKING:
    from collections.abc import Callable

    from checkers.reduce import Cuts

    CutFurther = Callable[[Cuts, Cuts], Cuts]

A, B = ("run", "t", 0, 1), ("run", "t", 0, 2)


@pytest.fixture
def cut_further() -> CutFurther:
    return checkers.reduce.cut_further


def test_a_tail_of_another_replica_is_cut_as_well(cut_further: CutFurther) -> None:
    assert cut_further({A: 7}, {B: 9}) == {A: 7, B: 9}


def test_a_log_is_cut_further_down(cut_further: CutFurther) -> None:
    assert cut_further({A: 7}, {A: 6}) == {A: 6}


@pytest.mark.parametrize("found", [{A: 7}, {A: 8}, {A: 7, B: 3}])
def test_a_tail_that_was_cut_is_not_found_again(cut_further: CutFurther, found: Cuts) -> None:
    with pytest.raises(RuntimeError, match=r"where they were cut already: \[\('run', 't', 0, 1\)\]"):
        cut_further({A: 7}, found)
