"""Equal hashes are numbered alike, and others never are."""

from __future__ import annotations

import numpy as np
import pytest

from checkers.evidence.groups import grouped


def test_equal_ones_are_a_group_in_the_order_of_the_first_of_each() -> None:
    groups, count = grouped(np.array([7, 0, 7, 2**64 - 1, 0], np.uint64))
    assert groups.tolist() == [0, 1, 0, 2, 1]
    assert count == 3


def test_nothing_is_no_group() -> None:
    groups, count = grouped(np.array([], np.uint64))
    assert (len(groups), count) == (0, 0)


@pytest.mark.parametrize("step", [1, 5, 64, 2**40, 2**56])
def test_hashes_with_a_remainder_or_their_lower_bits_in_common(step: int) -> None:
    distinct = np.arange(200, dtype=np.uint64) * np.uint64(step)
    hashes = np.random.default_rng(step).permutation(np.repeat(distinct, 3))
    groups, count = grouped(hashes)
    assert count == len(distinct)
    members = [hashes[groups == number] for number in range(count)]
    assert all(len(mine) == 3 and len(set(mine.tolist())) == 1 for mine in members)
