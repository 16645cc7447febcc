"""The cause of a decided finding by the metadata log: what the broker missed, and when it was out of the ISR."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

from checkers.finding import HANGING_TRANSACTION
from harness.audit.explain.metadata_evidence import MetadataEvidence
from harness.broker_files.metadata_log.history import Absence, absences, time_text
from harness.escape import escape
from harness.judge.finding import Finding
from harness.schedules.catalog import Anomaly

MARKERS: Final = {"committed": "the COMMIT", "aborted": "the ABORT"}
"""The missed marker by the outcome of the transaction."""
MISSED: Final = {
    str(Anomaly.STUCK_LSO): "the marker",
    str(Anomaly.ABORTED_TO_COMMITTED): "the ABORT",
    str(Anomaly.COMMITTED_TO_ABORTED): "the COMMIT",
}
HOUR_S: Final = 3600


def with_cause(finding: Finding, evidence: MetadataEvidence) -> Finding:
    """Add ``cause``, a sentence; not where the history of the ISR is unknown, or no broker is accused."""
    history = evidence.coverage_of(finding.place).history
    if evidence.lacking or history is None or not finding.decided or finding.anomaly == HANGING_TRANSACTION:
        return finding
    # A replica missed nothing before it was assigned.
    times = absences([state for state in history.states if finding.broker in state.replicas], finding.broker)
    isr = _isr_text(times) if times else "in the ISR at all times that the metadata log has"
    return replace(finding, cause=f"broker {finding.broker} missed {_missed(finding)} ({isr})")


def _missed(finding: Finding) -> str:
    if finding.anomaly not in MISSED:
        return "records" if finding.anomaly != Anomaly.TOMBSTONE_DIVERGENCE else "a delete"
    marker = MARKERS.get(str(finding.witness.get("outcome")), MISSED[finding.anomaly])
    transaction = finding.witness.get("transactional_id")
    if transaction is not None:
        return f"{marker} of transaction {escape(str(transaction))}"
    return marker if finding.producer_id is None else f"{marker} of producer {finding.producer_id}"


def _isr_text(times: Sequence[Absence]) -> str:
    """Return the longest absence, and the number of all."""
    longest = max(times, key=lambda absence: absence.took_s)
    took = "" if longest.took_s == inf else f" for {_duration(longest.took_s)}"
    since = "" if longest.since_ms is None or took else f" since {time_text(longest.since_ms)}"
    until = "" if longest.until_ms is None else f" until {time_text(longest.until_ms)}"
    count = f"; {len(times)} times in all" if len(times) > 1 else ""
    return f"out of the ISR{took}{since}{until}{count}"


def _duration(seconds: float) -> str:
    for unit, size_s in (("h", HOUR_S), ("min", 60)):
        if seconds >= 2 * size_s:
            return f"{seconds / size_s:.0f} {unit}"
    return f"{seconds:.0f} s"
