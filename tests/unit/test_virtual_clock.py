"""A clock that stands still but for what is due."""

from __future__ import annotations

from functools import partial

import pytest

from harness.errors import HarnessError, TimeLimitError, WaitTimeoutError
from models.clock import EPOCH_MS, VirtualClock


def test_time_passes_up_to_what_is_waited_for_and_no_further() -> None:
    clock, done = VirtualClock(), list[str]()
    clock.after(3600, partial(done.append, "late"))
    clock.after(5, partial(done.append, "early"))
    assert clock.wait_until(lambda: "early" in done, 10, "it") is True
    assert (clock.now_s(), done) == (5, ["early"])
    assert clock.time_ms() == EPOCH_MS + 5000


def test_what_is_due_at_one_moment_is_done_in_the_order_of_asking() -> None:
    clock, done = VirtualClock(), list[int]()
    for number in range(5):
        clock.after(1, partial(done.append, number))
    clock.wait_until(lambda: len(done) > 4, 2, "all")
    assert done == [0, 1, 2, 3, 4]


def test_a_wait_ends_at_its_bound() -> None:
    clock = VirtualClock()
    with pytest.raises(WaitTimeoutError, match="waited 7 s in vain for the moon"):
        clock.wait_until(lambda: False, 7, "the moon")
    assert clock.now_s() == 7


def test_what_is_due_may_wait_itself() -> None:
    clock, done = VirtualClock(), list[str]()

    def wait() -> None:
        clock.wait_until(lambda: "inner" in done, 10, "the inner one")
        done.append("outer")

    clock.after(1, wait)
    clock.after(2, partial(done.append, "inner"))
    clock.wait_until(lambda: "outer" in done, 10, "the outer one")
    assert (done, clock.now_s()) == (["inner", "outer"], 2)


def test_a_routine_comes_again_until_it_is_stopped() -> None:
    clock, at_s = VirtualClock(), list[float]()
    routine = clock.every(10, lambda: at_s.append(clock.now_s()), "counting")
    clock.wait_until(lambda: len(at_s) == 3, 100, "three of them")
    routine.stop()
    with pytest.raises(WaitTimeoutError):
        clock.wait_until(lambda: len(at_s) > 3, 100, "one more")
    routine.raise_if_failed()
    assert at_s == [10, 20, 30]


def test_what_ends_a_routine_is_reported_with_its_name() -> None:
    clock = VirtualClock()

    def fail() -> None:
        raise ValueError("no")

    routine = clock.every(1, fail, "counting")
    with pytest.raises(WaitTimeoutError):
        clock.wait_until(lambda: False, 2, "it to fail")
    with pytest.raises(HarnessError, match="counting failed: no"):
        routine.raise_if_failed()


def test_the_limit_on_the_whole_run_is_asked_at_every_look() -> None:
    def over(what: str) -> None:
        raise TimeLimitError(what)

    with pytest.raises(TimeLimitError, match="the moon"):
        VirtualClock(over).wait_until(lambda: False, 1, "the moon")
