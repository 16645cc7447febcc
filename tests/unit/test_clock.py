"""Bounded waits."""

from __future__ import annotations

import pytest

from harness.clock import RealClock
from harness.errors import TimeLimitError, WaitTimeoutError


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, None, "there"])
    assert RealClock().wait_until(lambda: next(values), 5, "it") == "there"


def test_a_wait_that_ends_names_what_it_waited_for() -> None:
    with pytest.raises(WaitTimeoutError, match=r"0\.1 s in vain for the moon"):
        RealClock().wait_until(lambda: False, 0.1, "the moon")


def test_a_condition_is_asked_at_least_once() -> None:
    assert RealClock().wait_until(lambda: True, 0, "it") is True


def test_the_whole_runs_limit_ends_every_wait() -> None:
    with pytest.raises(TimeLimitError, match="waiting for the moon"):
        RealClock(time_limit_s=0.1).wait_until(lambda: False, 60, "the moon")
