"""Advice on findings on internal topics: the meaning for groups and tools, and how to continue without losing records.

A new commit of a group's offset is copied to every replica, and supersedes the disputed commit. So the right
offset is committed explicitly, once a broker coordinates the group whose replica is right; only then a replica is
rebuilt. Where the evidence does not decide, nothing is copied over: the records that the application has processed
decide.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from checkers.finding import UNEXPLAINED_DIVERGENCE
from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS, KAFKAS_OWN
from harness.broker_files.internal_topics.phrases import CLASSIC_GROUP, OFFSET_COMMIT, TRANSACTION_LOG, offsets_text
from harness.escape import escape
from harness.schedules.catalog import Anomaly

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.judge.finding import Finding, InternalRecord, ServedState

_UNDECIDED = "undecided"
_STATE, _TOOL, _MEMBER = "coordinator's state", "tool's state", "group with members"

_MEANS: Final[Mapping[tuple[str, str], str]] = {
    (OFFSET_COMMIT, Anomaly.STUCK_LSO): (
        "while broker {broker} coordinates, offsets of a transaction that has ended stay pending. Consumers that ask "
        "for stable offsets (Java clients; librdkafka under read_committed) get UNSTABLE_OFFSET_COMMIT, and no record "
        "of these partitions. The cleaner of the replica is stuck, too. It does not heal by itself"
    ),
    (OFFSET_COMMIT, Anomaly.TOMBSTONE_DIVERGENCE): (
        "while broker {broker} coordinates, committed offsets are back that were deleted (with their group, with "
        "their topic, or as they expired): a group starts from them instead of by auto.offset.reset"
    ),
    (OFFSET_COMMIT, Anomaly.ABORTED_TO_COMMITTED): (
        "while broker {broker} coordinates, offsets of an aborted transaction count as committed: a group starts "
        "there, and skips records that no committed transaction has processed"
    ),
    (OFFSET_COMMIT, Anomaly.COMMITTED_TO_ABORTED): (
        "while broker {broker} coordinates, offsets of a committed transaction are missing: a group starts from an "
        "older offset, or from none"
    ),
    (OFFSET_COMMIT, _UNDECIDED): (
        "replicas have different committed offsets, and the evidence does not show which are right: where a group "
        "starts depends on who coordinates it"
    ),
    (OFFSET_COMMIT, UNEXPLAINED_DIVERGENCE): (
        "replicas have different committed offsets: where a group starts depends on who coordinates it"
    ),
    (TRANSACTION_LOG, _UNDECIDED): (
        "replicas have different states of transactional ids: a transaction coordinator continues from the "
        "state that its own replica has. The consequences for producers were not tried"
    ),
    (CLASSIC_GROUP, Anomaly.TOMBSTONE_DIVERGENCE): (
        "while broker {broker} leads this partition, a classic group is back that is gone: deleted, expired, or used "
        "by the consumer or streams protocol since. In the last case brokers of 4.0 or later cannot load the partition "
        '("Failed to load metadata" in the log of the broker): they answer NOT_COORDINATOR for every group in it, and '
        "no consumer of these groups gets a record"
    ),
    (_MEMBER, Anomaly.TOMBSTONE_DIVERGENCE): (
        "while broker {broker} coordinates, a member or a group of the consumer, share or streams protocol is back "
        "that is gone. A member keeps its partitions until its session times out. Where a tombstone of the whole group "
        'follows, the broker cannot load the partition ("Failed to load metadata" in its log), and no group in it has '
        "a coordinator"
    ),
    (_STATE, _UNDECIDED): (
        "replicas have different states of groups (members, assignments, epochs): a coordinator loads the state that "
        "its own replica has, and changes it with the next rebalance. Committed offsets are other records"
    ),
    (_TOOL, _UNDECIDED): (
        "replicas have different states of a tool or an application: a worker, a registry or an instance that reads "
        "the topic from its start gets the state of the broker that leads the partition then"
    ),
}
"""By the type of the record and the anomaly; `_UNDECIDED`: for every other anomaly, and for findings that are not
decided."""

RECOMMIT_DO: Final = (
    "stop the consumers of these groups, pause compaction, save the folder of {partition} on broker {broker}, and make "
    "broker {leader} the leader: it coordinates the groups then, by right offsets. Run the line of each finding after "
    '"commit": a new commit is copied to every replica, and supersedes what they disagree about. Start the consumers. '
    "Then remove broker {broker} from the replicas, wait until its folder is deleted, and add broker {broker} again: "
    "it copies the whole log. At the end restore the topic's own values of the two settings. Until then keep broker "
    "{broker} from becoming leader"
)
UNDECIDED_OFFSETS_DO: Final = (
    "stop the consumers of these groups, pause compaction of the topic, then save the folder of {partition} of every "
    "replica. Do not rebuild a replica: its copy may be the last correct one. Decide by what the application has "
    "processed: the smallest offset of the replicas loses no record, and may have some consumed twice; the largest has "
    "none consumed twice, and may skip some. Commit it explicitly: a new commit is copied to every replica, and "
    "supersedes what they disagree about"
)
NO_RIGHT_OFFSETS_DO: Final = (
    "stop the consumers of these groups, pause compaction, and save the folder of {partition} of every replica: {why}. "
    "Rebuilding broker {broker} from another replica could destroy the last correct copy of a record. Commit the "
    "offsets explicitly by what the application has processed: a new commit is copied to every replica"
)


def means(finding: Finding) -> str | None:
    """Return what a finding means, with fields in braces; None where its topic or its coordinator's key is unknown."""
    record = finding.record
    if record is None or (record.key is None and finding.topic in KAFKAS_OWN):
        return None
    type_ = _advised_type(finding.topic, record)
    name = finding.anomaly if finding.decided else _UNDECIDED
    return _MEANS.get((type_, name)) or _MEANS.get((type_, _UNDECIDED)) or _MEANS[_STATE, _UNDECIDED]


def is_about_offsets(finding: Finding) -> bool:
    """Return True for a finding about a group's committed offset."""
    return finding.record is not None and finding.record.type == OFFSET_COMMIT


def _advised_type(topic: str, record: InternalRecord) -> str:
    if record.type in {OFFSET_COMMIT, TRANSACTION_LOG, CLASSIC_GROUP}:
        return str(record.type)
    if topic == CONSUMER_OFFSETS:
        return _MEMBER
    return _STATE if topic in KAFKAS_OWN else _TOOL


def with_consumers(finding: Finding, bootstrap: str) -> Finding:
    """Add to a finding about a committed offset ``consumers`` (a sentence) and ``commit`` (a line for a shell).

    ``commit`` is added only where the right offset is known, and a shell's line can show the names.
    """
    record = finding.record
    if record is None or record.states is None or record.key is None or not is_about_offsets(finding):
        return finding
    key, right = record.key, set(finding.right or ()) if finding.decided else set()
    offsets = {state.committed_offset for state in record.states if right & set(state.brokers) and not state.pending}
    offset = next(iter(offsets)) if len(offsets) == 1 else None
    partition, texts = escape(f"{key['topic']}-{key['partition']}"), []
    for state in record.states:
        brokers = " or ".join(map(str, state.brokers))
        texts.append(f"with broker {brokers} as coordinator {_effect(state, offset, partition)}")
    consumers = f"group {escape(key['group'])}: {'; '.join(texts)}"
    return replace(finding, record=replace(record, consumers=consumers, commit=_commit(key, offset, bootstrap)))


def _effect(state: ServedState, right_offset: int | None, partition: str) -> str:
    offset = state.committed_offset
    if state.pending:
        return f"it gets no record of {partition}"
    if offset is None:
        return f"it starts {partition} by auto.offset.reset"
    start = f"it starts {partition} at {offset}"
    if right_offset is None or offset == right_offset:
        return start
    if offset > right_offset:
        return f"{start}, and skips {offsets_text(right_offset, offset)}"
    return f"{start}, and consumes {offsets_text(offset, right_offset)} again"


def _commit(key: Mapping[str, str], offset: int | None, bootstrap: str) -> str | None:
    if offset is None or any(escape(name) != name or not name for name in (key["group"], key["topic"])):
        return None
    group, partition = shlex.quote(key["group"]), shlex.quote(f"{key['topic']}:{key['partition']}")
    return (
        f"kafka-consumer-groups.sh {bootstrap} --group {group} --topic {partition} --reset-offsets "
        f"--to-offset {offset} --execute"
    )
