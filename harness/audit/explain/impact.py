"""The impact of a finding on clients of a running cluster, which depends on the partition's leader."""

from __future__ import annotations

from dataclasses import replace

from checkers.finding import HANGING_TRANSACTION, LATENT, UNEXPLAINED_DIVERGENCE
from harness.audit.explain.metadata_evidence import MetadataEvidence
from harness.judge.finding import Finding
from harness.schedules.catalog import Anomaly

WRONG_LEADER = {
    str(Anomaly.TOMBSTONE_DIVERGENCE): "consumers get values that were deleted",
    str(Anomaly.ABORTED_TO_COMMITTED): "consumers get records of aborted transactions",
    str(Anomaly.COMMITTED_TO_ABORTED): "read_committed consumers do not get committed records",
    UNEXPLAINED_DIVERGENCE: "consumers get other records than from the other replicas",
}
"""The impact on consumers of a wrong replica that leads, by anomaly."""
NONE_LEADS = "the partition has no leader: no consumer reads it"


def with_impact(finding: Finding, evidence: MetadataEvidence) -> Finding:
    """Add ``impact``, a sentence; not where the current leader is unknown, as of copies."""
    if not evidence.is_current:
        return finding
    leader = evidence.leaders.get(finding.place, -1)
    return replace(finding, impact=NONE_LEADS if leader < 0 else _impact(finding, leader))


def _impact(finding: Finding, leader: int) -> str:
    stops = f"read_committed consumers stop at offset {finding.offset}{_hidden(finding)}"
    if finding.anomaly == HANGING_TRANSACTION:
        return stops
    if not finding.decided:
        serves = next((group.serves for group in finding.disagree or () if leader in group.brokers), None)
        return f"broker {leader} leads" + ("" if serves is None else f" and serves {serves}")
    if finding.broker != leader:
        return f"broker {finding.broker} follows: only consumers that read from followers get its records"
    if finding.effect == LATENT:
        return f"broker {leader} leads: no record that is served now is wrong"
    return f"broker {leader} leads: {WRONG_LEADER.get(finding.anomaly, stops)}"


def _hidden(finding: Finding) -> str:
    """Return how many offsets are hidden behind a frozen last stable offset, where the witness has it."""
    high_watermark = finding.witness.get("high_watermark_here")
    return "" if high_watermark is None else f" ({high_watermark - finding.offset:,} offsets are hidden)"
