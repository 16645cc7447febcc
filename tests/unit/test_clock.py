"""Bounded waits."""

import pytest

from harness.errors import HarnessError, TimeLimitError, WaitTimeoutError
from harness.host.clock import RealClock


def test_the_first_true_value_is_returned() -> None:
    values = iter([0, None, "there"])
    assert RealClock().wait_until(lambda: next(values), 5, "it") == "there"


def test_a_failed_wait_has_the_description() -> None:
    with pytest.raises(WaitTimeoutError, match=r"timed out after 0\.1 s waiting for the moon"):
        RealClock().wait_until(lambda: False, 0.1, "the moon")


def test_a_condition_is_evaluated_at_least_once() -> None:
    assert RealClock().wait_until(lambda: True, 0, "it") is True


def test_the_time_limit_of_a_run_ends_every_wait() -> None:
    with pytest.raises(TimeLimitError, match="waiting for the moon"):
        RealClock(time_limit_s=0.1).wait_until(lambda: False, 60, "the moon")


def test_a_routine_repeats_until_it_is_stopped() -> None:
    done: list[int] = []
    clock = RealClock()
    routine = clock.every(0.001, lambda: done.append(1), "counting")
    clock.wait_until(lambda: len(done) > 2, 5, "three of them")
    routine.stop()
    routine.raise_if_failed()
    stopped_at = len(done)
    with pytest.raises(WaitTimeoutError):
        clock.wait_until(lambda: len(done) > stopped_at, 0.1, "one more")


@pytest.mark.parametrize(("error", "words"), [(ValueError("no"), "no"), (TimeoutError(), "TimeoutError")])
def test_the_error_of_a_routine_is_reported_with_its_name(error: Exception, words: str) -> None:
    def fail() -> None:
        raise error

    clock = RealClock()
    routine = clock.every(0.001, fail, "counting")
    with pytest.raises(HarnessError, match=f"^counting failed: {words}$"):
        clock.wait_until(routine.raise_if_failed, 5, "it to fail")
    routine.stop()
