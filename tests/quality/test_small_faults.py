"""Small clusters under faults, walked to the end: which cases of `harness explore` go wrong, and by which rules."""

from collections.abc import Sequence

import pytest

from harness.model_checking.explore.cases import ISR_GATE, ISR_GATE_MARKERS, fault_cases
from harness.models.faults.state import DISK, FURTHER_RULES, ISOLATED, LATE, OUTAGE, POWER, RESTART, UNCLEAN

PLENTY = 10_000_000
DISK_RESTARTED = frozenset({DISK, RESTART})
HOLES = {
    DISK_RESTARTED, frozenset({POWER}), frozenset({POWER, UNCLEAN}), frozenset({OUTAGE, LATE, UNCLEAN}),
    frozenset({OUTAGE, ISOLATED, UNCLEAN}),
}  # fmt: skip


@pytest.mark.parametrize(("proposal", "without", "states", "wrong"), [
    (ISR_GATE, FURTHER_RULES, 3_400_326, HOLES),
    (ISR_GATE_MARKERS, FURTHER_RULES, 7_145_790, HOLES | {frozenset({OUTAGE, UNCLEAN})}),
    (ISR_GATE, (), 3_375_408, set()),
    (ISR_GATE_MARKERS, (), 7_199_315, set()),
])  # fmt: skip
def test_what_goes_wrong_where_a_lost_log_goes_on_and_nothing_with_the_whole_gate(
    proposal: str, without: Sequence[str], states: int, wrong: set[frozenset[str]]
) -> None:
    cases = fault_cases((proposal,), without)
    found = [(case.bound.faults, case.walk(most_states=PLENTY, first_only=False)) for case in cases]
    assert all(one.is_whole for _, one in found)
    assert {faults for faults, one in found if one.wrong} == wrong
    assert sum(one.states for _, one in found) == states
