"""The cause of a finding, by the metadata log, and its impact on clients of a running cluster.

A group whose committed offset is where a frozen partition stops is stuck, if its consumers are read_committed: the
offsets do not show whether they are. No request returns the groups of a partition: every broker lists the groups that
it coordinates, and returns their offsets in these partitions only.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import islice
from math import inf
from typing import Final

from checkers.finding import HANGING_TRANSACTION, LATENT, UNEXPLAINED_DIVERGENCE, VISIBLE
from harness.audit.explain.internal_records import coordinated
from harness.audit.explain.metadata_evidence import MetadataEvidence
from harness.audit.live.cluster import AuditedCluster
from harness.broker_files.copies.selection import listed
from harness.broker_files.internal_topics.decode import KAFKAS_OWN
from harness.broker_files.metadata_log.history import absences
from harness.escape import escape
from harness.host.clock import duration_text, time_text
from harness.judge.finding import Finding, Place
from harness.judge.verdict import Verdict
from harness.kafka_api.client_requests import NO_OFFSET, fetch_offsets_of_groups, list_groups
from harness.kafka_api.connection import Connection
from harness.schedules.catalog import Anomaly

MARKERS: Final = {"committed": "the COMMIT", "aborted": "the ABORT"}
"""The missed marker by the outcome of the transaction."""
MISSED: Final = {
    str(Anomaly.STUCK_LSO): "the marker",
    str(Anomaly.ABORTED_TO_COMMITTED): "the ABORT",
    str(Anomaly.COMMITTED_TO_ABORTED): "the COMMIT",
}
WRONG_LEADER = {
    str(Anomaly.TOMBSTONE_DIVERGENCE): "consumers get values that were deleted",
    str(Anomaly.ABORTED_TO_COMMITTED): "consumers get records of aborted transactions",
    str(Anomaly.COMMITTED_TO_ABORTED): "read_committed consumers do not get committed records",
    UNEXPLAINED_DIVERGENCE: "consumers get other records than from the other replicas",
}
"""The impact on consumers of a wrong replica that leads, by anomaly."""
NONE_LEADS = "the partition has no leader: no consumer reads it"
MOST_OFFSETS: Final = 200_000
"""The most offsets to ask one broker for, over all groups and partitions."""
OFFSETS_A_REQUEST: Final = 10_000
MOST_PARTITIONS: Final = 1_000


def with_cause(finding: Finding, evidence: MetadataEvidence) -> Finding:
    """Add ``cause``, a sentence; not where the history of the ISR is unknown, or no broker is accused."""
    history, broker = evidence.coverage_of(finding.place).history, finding.broker
    if evidence.lacking or history is None or not finding.decided or finding.anomaly == HANGING_TRANSACTION:
        return finding
    # A replica missed nothing before it was assigned.
    times = absences([state for state in history.states if broker in state.replicas], broker)
    isr = "in the ISR at all times that the metadata log has"
    if times:
        longest = max(times, key=lambda absence: absence.took_s)
        took = "" if longest.took_s == inf else f" for {duration_text(longest.took_s)}"
        since = "" if longest.since_ms is None or took else f" since {time_text(longest.since_ms)}"
        until = "" if longest.until_ms is None else f" until {time_text(longest.until_ms)}"
        count = f"; {len(times)} times in all" if len(times) > 1 else ""
        isr = f"out of the ISR{took}{since}{until}{count}"
    return replace(finding, cause=f"broker {broker} missed {_missed(finding)} ({isr})")


def _missed(finding: Finding) -> str:
    if finding.anomaly not in MISSED:
        return "records" if finding.anomaly != Anomaly.TOMBSTONE_DIVERGENCE else "a delete"
    marker = MARKERS.get(str(finding.witness.get("outcome")), MISSED[finding.anomaly])
    if (transaction := finding.witness.get("transactional_id")) is not None:
        return f"{marker} of transaction {escape(str(transaction))}"
    return marker if finding.producer_id is None else f"{marker} of producer {finding.producer_id}"


def with_impact(finding: Finding, evidence: MetadataEvidence) -> Finding:
    """Add ``impact``, a sentence; not where the current leader is unknown, as of copies."""
    if not evidence.is_current:
        return finding
    leader = evidence.leaders.get(finding.place, -1)
    return replace(finding, impact=NONE_LEADS if leader < 0 else _impact(finding, leader))


def _impact(finding: Finding, leader: int) -> str:
    stops = f"read_committed consumers stop at offset {finding.offset}"
    if (end := finding.witness.get("high_watermark_here")) is not None:
        hidden = end - finding.offset
        stops += f" ({hidden:,} offset{' is' if hidden == 1 else 's are'} hidden)"
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


def add_groups(verdict: Verdict, cluster: AuditedCluster, leaders: Mapping[Place, int]) -> Verdict:
    """Add to each finding's impact the groups that consume its partition; nothing is asked without findings."""
    places = dict.fromkeys(finding.place for finding in verdict.findings)
    if not places:
        return verdict
    asked = list(islice(places, MOST_PARTITIONS))
    offsets, notes = _committed_offsets(cluster, asked)
    if len(asked) < len(places):
        notes.append(f"consumer groups are listed for {len(asked)} of {len(places)} partitions with findings")
    each = ((finding, finding.place) for finding in verdict.findings)
    findings = tuple(with_groups(f, leaders.get(place, -1), offsets.get(place, {})) for f, place in each)
    return replace(verdict, findings=findings, notes=(*(verdict.notes or ()), *notes))


def _committed_offsets(
    cluster: AuditedCluster, places: Collection[Place]
) -> tuple[dict[Place, dict[str, int]], list[str]]:
    """Return committed offsets by partition and group, and a sentence on each kind of missing answer."""
    refused = left_out = 0

    def ask(_broker: int, caller: Connection) -> tuple[int, int, dict[str, Mapping[Place, int | str]]]:
        listing = sorted(caller.ask(list_groups()))
        asked = listing[: max(MOST_OFFSETS // len(places), 1)]
        answers: dict[str, Mapping[Place, int | str]] = {}
        for start in range(0, len(asked), at_once := max(OFFSETS_A_REQUEST // len(places), 1)):
            groups = dict.fromkeys(asked[start : start + at_once], places)
            answers |= caller.ask(fetch_offsets_of_groups(groups, require_stable=False))
        return len(asked) - len(answers), len(listing) - len(asked), answers

    by_broker, errors = cluster.client.ask_all(cluster.state.brokers, ask)
    notes = [f"the consumer groups of broker {broker} are unknown: {error}" for broker, error in errors.items()]
    offsets: dict[Place, dict[str, int]] = {}
    for refused_here, left_out_here, answers in by_broker.values():
        refused, left_out = refused + refused_here, left_out + left_out_here
        for group, committed in answers.items():
            for place, offset in committed.items():
                if isinstance(offset, int) and offset != NO_OFFSET:
                    offsets.setdefault(place, {})[group] = offset
    for text, count in (
        ("did not report their offsets (this user needs Describe, or they were moved)", refused),
        ("were not asked for their offsets, as there are too many", left_out),
    ):
        notes += [f"consumer groups that {text}: {count:,}"] if count else []
    return offsets, notes


def with_groups(finding: Finding, leader: int, offsets: Mapping[str, int]) -> Finding:
    """Add the groups that consume the finding's partition to its impact. ``offsets``: committed ones by group.

    In Kafka's own topics the group or the transactional id of the record's key is named instead.
    """
    if finding.topic in KAFKAS_OWN:
        key = None if finding.record is None else finding.record.key
        texts = [f"it concerns {coordinated(finding.topic, key)[0]}"] if key else []
    else:
        texts = [
            f"group{'s' if len(groups) > 1 else ''} {listed(list(map(escape, groups)))} {verbs[len(groups) > 1]}"
            for verbs, groups in _by_position(finding, leader, offsets)
            if groups
        ]
    if finding.impact is None or not texts:
        return finding
    return replace(finding, impact="; ".join((finding.impact, *texts)))


def _by_position(finding: Finding, leader: int, offsets: Mapping[str, int]) -> list[tuple[tuple[str, str], list[str]]]:
    """Return groups with a verb, singular and plural, by their offsets before, at and after the finding's."""
    is_wrong_served = finding.decided and finding.broker == leader and finding.effect == VISIBLE
    at, groups = finding.offset, sorted(offsets)
    before, after = [g for g in groups if offsets[g] < at], [g for g in groups if offsets[g] > at]
    there = [g for g in groups if offsets[g] == at]
    if finding.anomaly == HANGING_TRANSACTION or (is_wrong_served and finding.anomaly not in WRONG_LEADER):
        beyond = "past it, without further records if read_committed"
        stuck = ("is stuck", "are stuck"), there
        return [stuck, (("stops there", "stop there"), before), ((f"is {beyond}", f"are {beyond}"), after)]
    if is_wrong_served:
        not_yet = ("has yet to pass it", "have yet to pass it"), before + there
        return [not_yet, (("has passed it", "have passed it"), after)]
    return [(("consumes it", "consume it"), groups)]
