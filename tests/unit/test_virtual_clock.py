"""A clock that advances only to the next due action."""

from functools import partial

import pytest

from harness.errors import HarnessError, TimeLimitError, WaitTimeoutError
from harness.models.clock import EPOCH_MS, VirtualClock


def test_time_passes_up_to_what_is_waited_for_and_what_is_due_at_once_has_the_order_of_asking() -> None:
    clock, done = VirtualClock(), list[str]()
    clock.after(3600, partial(done.append, "late"))
    clock.after(5, partial(done.append, "early"))
    assert clock.wait_until(lambda: "early" in done, 10, "it") is True
    assert (clock.now_s(), done) == (5, ["early"])
    assert clock.time_ms() == EPOCH_MS + 5000
    clock, numbers = VirtualClock(), list[int]()
    for number in range(5):
        clock.after(1, partial(numbers.append, number))
    clock.wait_until(lambda: numbers == [0, 1, 2, 3, 4], 2, "all, in their order")


def test_a_wait_ends_at_its_bound_and_at_the_limit_of_the_whole_run() -> None:
    clock = VirtualClock()
    with pytest.raises(WaitTimeoutError, match="timed out after 7 s waiting for the moon"):
        clock.wait_until(lambda: False, 7, "the moon")
    assert clock.now_s() == 7

    def over(description: str) -> None:
        raise TimeLimitError(description)

    with pytest.raises(TimeLimitError, match="the moon"):
        VirtualClock(over).wait_until(lambda: False, 1, "the moon")


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


def test_routines_that_take_turns_do_not_wait_for_each_other() -> None:
    """Two routines wait, the second one for longer: the first one continues at its own time."""
    clock, ended_s = VirtualClock(takes_turns=True), dict[str, float]()

    def wait_until_s(until_s: float, name: str) -> None:
        clock.wait_until(lambda: clock.now_s() >= until_s, 100, name)
        ended_s.setdefault(name, clock.now_s())

    clock.every(1, partial(wait_until_s, 5, "short"), "short")
    clock.every(2, partial(wait_until_s, 30, "long"), "long")
    clock.wait_until(lambda: len(ended_s) > 1, 100, "both")
    assert ended_s == {"short": pytest.approx(5, abs=0.1), "long": pytest.approx(30, abs=0.1)}


def test_turns_that_still_wait_at_the_end_are_ended() -> None:
    clock, ended = VirtualClock(), list[str]()

    def wait_in_vain() -> None:
        try:
            clock.wait_until(lambda: False, 1000, "the moon")
        finally:
            ended.append("waiting")

    with clock.taking_turns():
        clock.every(1, wait_in_vain, "waiting")
        clock.wait_until(lambda: clock.now_s() >= 5, 10, "some seconds")
        assert ended == []
    assert ended == ["waiting"]


def test_a_turn_that_waits_in_vain_ends_its_routine_and_no_other() -> None:
    clock, count = VirtualClock(takes_turns=True), list[int]()

    def wait_in_vain() -> None:
        clock.wait_until(lambda: False, 3, "the moon")

    failing = clock.every(1, wait_in_vain, "failing")
    going_on = clock.every(1, lambda: count.append(1), "going on")
    clock.wait_until(lambda: len(count) > 9, 100, "the other one")
    going_on.raise_if_failed()
    with pytest.raises(HarnessError, match="failing failed: timed out after 3 s waiting for the moon"):
        failing.raise_if_failed()
