"""Hand-written copies of log directories for the audits, by kind of difference."""

from typing import Final

from audit_cases.case import Case
from audit_cases.contradictions import CONTRADICTION_CASES
from audit_cases.damage import DAMAGE_CASES
from audit_cases.edges import EDGE_CASES
from audit_cases.legal import LEGAL_CASES, LINEAGE_CASES
from audit_cases.markers import MARKER_CASES, OVERTAKEN_CASES
from audit_cases.open_transactions import HANGING_CASES, STUCK_CASES
from audit_cases.removals import CANDIDATE_CASES, REMOVAL_CASES

CASES: Final[tuple[Case, ...]] = (
    *MARKER_CASES, *REMOVAL_CASES, *CANDIDATE_CASES, *OVERTAKEN_CASES, *STUCK_CASES, *HANGING_CASES, *LINEAGE_CASES,
    *CONTRADICTION_CASES, *LEGAL_CASES, *DAMAGE_CASES, *EDGE_CASES,
)  # fmt: skip
