"""Steps are removed as long as the remaining steps show the same finding."""

from collections.abc import Sequence
from unittest.mock import Mock

import pytest
from soaked import KILL, PAUSE, RESUME, START

from harness.schedules.operations import ABORT, COMMIT, Die, End, Operation, Write
from harness.schedules.schedule import Step
from harness.schedules.shrink import ddmin, reduced


@pytest.mark.parametrize("needed", [{3}, {0, 99}, {10, 11, 12}, {7, 20, 33, 61, 80}])
def test_only_what_is_needed_is_left(needed: set[int]) -> None:
    shows = Mock(side_effect=needed.issubset)
    assert ddmin(list(range(100)), shows, lambda _: None) == sorted(needed)
    assert shows.call_count < 100


def test_what_can_go_only_after_something_else_goes() -> None:
    """An item that is needed while a later item is present."""
    assert ddmin([1, 2, 3, 4, 5, 6], lambda some: 3 in some and (1 in some or 6 not in some), lambda _: None) == [3]


def transaction(process: str, partition: int, outcome: str) -> tuple[Operation, ...]:
    return (*(Write(process, key, topic="t", partition=partition) for key in "abcdef"), End(process, outcome))


OPERATIONS = (
    *transaction("t1", 0, COMMIT), KILL, *transaction("t2", 0, ABORT), *transaction("t1", 1, COMMIT), PAUSE,
    *transaction("t1", 0, ABORT), START, Die("p"), RESUME, KILL, *transaction("t1", 0, ABORT), START,
)  # fmt: skip


STEPS = [Step(float(at), operation) for at, operation in enumerate(OPERATIONS)]


def reduced_to(*needed: int) -> tuple[list[list[Step]], list[int]]:
    """Reduce all steps to these ones; return the steps of each try, and the reported sizes."""
    tried, sizes, remaining = list[list[Step]](), list[int](), [STEPS[number] for number in needed]

    def shows(some: Sequence[Step]) -> bool:
        tried.append(list(some))
        return all(step in some for step in remaining)

    assert reduced(STEPS, shows, lambda some: sizes.append(len(some))) == remaining
    return tried, sizes


def test_steps_of_a_few_transactions_are_found_with_few_tries() -> None:
    tried, sizes = reduced_to(0, 6, 7, 25, 29)
    assert sizes == sorted(sizes, reverse=True)
    assert all(some == sorted(some, key=lambda step: step.at_s) for some in tried)
    # Whole processes and faults are tried first: those of the second client, of the dying one, and the pause.
    assert [s for s in STEPS if s.operation.process not in {"t2", "p"} and s.operation not in {PAUSE, RESUME}] in tried


def test_an_end_goes_with_its_transaction_and_a_heal_with_its_fault() -> None:
    """A fault that never ends, or an end of nothing, is another round: single steps are tried last."""
    tries = [[step.operation for step in some] for some in reduced_to(0, 6, 7)[0]]
    first_alone = next(some for some in tries if some.count(KILL) != some.count(START))
    assert len(first_alone) <= len(transaction("t1", 0, COMMIT)) + len((KILL, START))
