"""The impact of a finding on clients of a running cluster: by the partition's leader, and the offsets of groups.

A group whose committed offset is where a frozen partition stops is stuck, if its consumers are read_committed: the
offsets do not show whether they are.
"""

from collections.abc import Mapping
from dataclasses import replace

from checkers.finding import HANGING_TRANSACTION, LATENT, UNEXPLAINED_DIVERGENCE, VISIBLE
from harness.audit.explain.metadata_evidence import MetadataEvidence
from harness.broker_files.copies.selection import listed
from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS
from harness.escape import escape
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
    if high_watermark is None:
        return ""
    hidden = high_watermark - finding.offset
    return f" ({hidden:,} offset{' is' if hidden == 1 else 's are'} hidden)"


def with_groups(finding: Finding, leader: int, offsets: Mapping[str, int]) -> Finding:
    """Add the groups that consume the finding's partition to its impact. ``offsets``: committed ones by group.

    In ``__consumer_offsets`` the group of the record's key is named instead.
    """
    if finding.topic == CONSUMER_OFFSETS:
        key = None if finding.record is None else finding.record.key
        texts = [f"it concerns group {escape(key['group'])}"] if key and "group" in key else []
    else:
        texts = [
            f"{_named(groups)} {verb if len(groups) == 1 else verbs}"
            for (verb, verbs), groups in _by_position(finding, leader, offsets)
            if groups
        ]
    if finding.impact is None or not texts:
        return finding
    return replace(finding, impact="; ".join((finding.impact, *texts)))


def _by_position(finding: Finding, leader: int, offsets: Mapping[str, int]) -> list[tuple[tuple[str, str], list[str]]]:
    """Return groups with a verb, singular and plural, by their offsets before, at and after the finding's."""
    is_wrong_served = finding.decided and finding.broker == leader and finding.effect == VISIBLE
    at = finding.offset
    before, there, after = (
        [group for group, offset in sorted(offsets.items()) if is_there(offset)]
        for is_there in (lambda offset: offset < at, lambda offset: offset == at, lambda offset: offset > at)
    )
    if finding.anomaly == HANGING_TRANSACTION or (is_wrong_served and finding.anomaly not in WRONG_LEADER):
        stuck = ("is stuck", "are stuck"), there
        beyond = "past it, without further records if read_committed"
        return [stuck, (("stops there", "stop there"), before), ((f"is {beyond}", f"are {beyond}"), after)]
    if is_wrong_served:
        return [
            (("has yet to pass it", "have yet to pass it"), before + there),
            (("has passed it", "have passed it"), after),
        ]
    return [(("consumes it", "consume it"), sorted(offsets))]


def _named(groups: list[str]) -> str:
    return f"group{'s' if len(groups) > 1 else ''} {listed([escape(group) for group in groups])}"
