"""Small clusters under faults, walked to the end: which cases of `harness explore` go wrong, and by which rules."""

from functools import cache

import pytest

from harness.model_checking.explore.cases import ISR_GATE, ISR_GATE_MARKERS, fault_cases
from harness.models.faults.state import DISK, FURTHER_RULES, ISOLATED, LATE, OUTAGE, POWER, RESTART, UNCLEAN
from harness.models.walk.exhaustive import Explored

PLENTY = 10_000_000
DISK_RESTARTED = frozenset({DISK, RESTART})
HOLES = {
    DISK_RESTARTED, frozenset({POWER}), frozenset({POWER, UNCLEAN}), frozenset({OUTAGE, LATE, UNCLEAN}),
    frozenset({OUTAGE, ISOLATED, UNCLEAN}),
}  # fmt: skip


@cache
def walked(proposal: str, *without: str) -> list[tuple[frozenset[str], Explored]]:
    cases = fault_cases((proposal,), without)
    return [(case.bound.faults, case.walk(most_states=PLENTY, first_only=False)) for case in cases]


@pytest.mark.parametrize(
    ("proposal", "states", "more"),
    [(ISR_GATE, 3_395_665, set()), (ISR_GATE_MARKERS, 7_134_807, {frozenset({OUTAGE, UNCLEAN})})],
)
def test_what_goes_wrong_where_a_lost_log_goes_on(proposal: str, states: int, more: set[frozenset[str]]) -> None:
    found = walked(proposal, *FURTHER_RULES)
    assert all(one.is_whole for _, one in found)
    assert {faults for faults, one in found if one.wrong} == HOLES | more
    assert sum(one.states for _, one in found) == states


@pytest.mark.parametrize(("proposal", "states"), [(ISR_GATE, 3_375_054), (ISR_GATE_MARKERS, 7_196_857)])
def test_nothing_goes_wrong_with_the_gate(proposal: str, states: int) -> None:
    found = walked(proposal)
    assert all(one.is_whole and not one.wrong for _, one in found)
    assert sum(one.states for _, one in found) == states
