"""Hand-written copies of log directories for the audits, by kind of difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from audit_cases.candidates import CANDIDATE_CASES
from audit_cases.contradictions import CONTRADICTION_CASES
from audit_cases.damage import DAMAGE_CASES
from audit_cases.edges import EDGE_CASES
from audit_cases.hanging_transaction import HANGING_CASES
from audit_cases.legal import LEGAL_CASES
from audit_cases.lineage import LINEAGE_CASES
from audit_cases.markers import MARKER_CASES
from audit_cases.overtaken import OVERTAKEN_CASES
from audit_cases.removals import REMOVAL_CASES
from audit_cases.stuck_lso import STUCK_CASES

if TYPE_CHECKING:
    from audit_cases.case import Case

CASES: Final[tuple[Case, ...]] = (
    *MARKER_CASES,
    *REMOVAL_CASES,
    *CANDIDATE_CASES,
    *OVERTAKEN_CASES,
    *STUCK_CASES,
    *HANGING_CASES,
    *LINEAGE_CASES,
    *CONTRADICTION_CASES,
    *LEGAL_CASES,
    *DAMAGE_CASES,
    *EDGE_CASES,
)
