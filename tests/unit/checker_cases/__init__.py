"""Hand-written histories for the checkers, by anomaly."""

from typing import Final

from checker_cases.aborted_to_committed import POISON_CASES
from checker_cases.case import Case
from checker_cases.committed_to_aborted import HIDDEN_CASES
from checker_cases.doubts import DOUBT_CASES
from checker_cases.edges import EDGE_CASES
from checker_cases.legal import LEGAL_CASES
from checker_cases.redpanda import REDPANDA_CASES
from checker_cases.stuck_lso import NOT_STUCK_CASES, STUCK_CASES
from checker_cases.tombstone_divergence import DIVERGED_CASES

CASES: Final[tuple[Case, ...]] = (
    *STUCK_CASES, *NOT_STUCK_CASES, *POISON_CASES, *HIDDEN_CASES, *DIVERGED_CASES, *LEGAL_CASES, *DOUBT_CASES,
    *EDGE_CASES, *REDPANDA_CASES,
)  # fmt: skip
