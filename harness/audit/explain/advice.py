"""The meaning of a finding for the operators of the cluster, and the remedy: sentences, and commands to copy.

A command that removes a replica's copy is given only where every disagreement of the partition is decided, and a
correct replica is left. Otherwise the command could destroy the last correct copy: then the advice is to pause
compaction, and to save every replica's folder.

A new commit of a group's offset is copied to every replica, and supersedes the disputed commit. So the right offset is
committed explicitly, once a broker coordinates the group whose replica is right; only then a replica is rebuilt. Where
the evidence does not decide, nothing is copied over: the records that the application has processed decide.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from checkers.anomalies import MEANS
from checkers.finding import HANGING_TRANSACTION, UNEXPLAINED_DIVERGENCE
from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS, KAFKAS_OWN
from harness.broker_files.internal_topics.phrases import CLASSIC_GROUP, OFFSET_COMMIT, TRANSACTION_LOG, offsets_text
from harness.escape import escape
from harness.judge.finding import by_place
from harness.schedules.catalog import Anomaly

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.judge.finding import Finding, InternalRecord, Place, ServedState


BOOTSTRAP: Final = '--bootstrap-server "$BOOTSTRAP"'
"""The first command sets the variable."""
ANY_BROKER: Final = "HOST:PORT"
"""A placeholder for the user to replace: an audit of folders has no address."""
PAUSE_SETTINGS: Final = {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "9223372036854775807"}
"""Settings that pause a topic's compaction; seen to do so on 4.4.0."""

UNDECIDED_MEANS: Final = (
    "replicas serve different states of the key, and the evidence does not show which state is right: a "
    "replica without a value may have missed a record, or may have applied a record that the others missed"
)
UNDECIDED_DO: Final = (
    "pause compaction of the topic, then save the folder of {partition} of every replica, then decide: by a client's "
    "own record of its writes, a backup, or the coordinator's log (__transaction_state) of that time. Do not rebuild "
    "a replica before that: its copy may be the last correct one"
)
RECOPY_DO: Final = (
    "pause compaction, save the folder of {partition} on broker {broker}, make broker {leader} the leader, remove "
    "broker {broker} from the replicas, wait until its folder is deleted, and add broker {broker} again: it copies the "
    "whole log. At the end restore the topic's own values of the two settings. Until then keep broker {broker} from "
    "becoming leader"
)
NO_LEADER_DO: Final = (
    "pause compaction and save the folder of {partition} of every replica: {why}. Rebuilding broker {broker} from "
    "another replica could destroy the last correct copy of a record"
)
HANGING_DO: Final = "abort the transaction with Kafka's own tool, on the leader"
COMMIT_NOW: Final = '# now run the line after "commit" of each finding, and start the consumers'
UNDECIDED_LEFT: Final = "another disagreement of this partition is not decided"
NONE_RIGHT: Final = "no other replica is shown to be right"


@dataclass(frozen=True)
class _Partition:
    """A partition. ``brokers`` hold its replicas, in order; ``leaders`` are the brokers that are shown to be right."""

    topic: str
    number: int
    brokers: Sequence[int]
    leaders: Sequence[int]
    is_decided: bool

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"


def with_advice(
    findings: Sequence[Finding], brokers: Mapping[Place, Sequence[int]], bootstrap: str = ANY_BROKER
) -> list[Finding]:
    """Add ``means``, ``do`` and ``commands`` (lines for a shell) to findings.

    ``brokers``: the replicas of each partition, in the order of its assignment. ``bootstrap``: a broker's address.
    """
    partitions = {place: _partition(place, group, brokers[place]) for place, group in by_place(findings).items()}
    return [_advised(with_consumers(finding, BOOTSTRAP), partitions[finding.place], bootstrap) for finding in findings]


def _partition(place: Place, findings: Sequence[Finding], brokers: Sequence[int]) -> _Partition:
    accusing = [finding for finding in findings if finding.anomaly != HANGING_TRANSACTION]
    wrong = {finding.broker for finding in accusing if finding.decided}
    right = {broker for finding in accusing for broker in finding.right or ()} - wrong
    leaders = [broker for broker in brokers if broker in right]
    return _Partition(*place, brokers, leaders, all(finding.decided for finding in accusing))


def _advised(finding: Finding, partition: _Partition, bootstrap: str) -> Finding:
    fields = {
        "broker": finding.broker,
        "partition": partition.name,
        "producer_id": finding.producer_id,
        "leader": next(iter(partition.leaders), None),
        "why": NONE_RIGHT if partition.is_decided else UNDECIDED_LEFT,
    }
    is_of_group = is_about_offsets(finding)
    commands = [_configure(partition.topic, f"--add-config {','.join(map('='.join, PAUSE_SETTINGS.items()))}")]
    if finding.anomaly == HANGING_TRANSACTION:
        at = f"--topic {partition.topic} --partition {partition.number} --start-offset {finding.offset}"
        do, commands = HANGING_DO, [f"kafka-transactions.sh {BOOTSTRAP} abort {at}"]
    elif not finding.decided:
        do = UNDECIDED_OFFSETS_DO if is_of_group else UNDECIDED_DO
    elif partition.is_decided and partition.leaders:
        do = RECOMMIT_DO if is_of_group else RECOPY_DO
        commands += _recopy(partition, finding.broker, partition.leaders[0], is_of_group=is_of_group)
    else:
        do = NO_RIGHT_OFFSETS_DO if is_of_group else NO_LEADER_DO
    means = means_of_record(finding) or (MEANS[finding.anomaly] if finding.decided else UNDECIDED_MEANS)
    commands = [f"BOOTSTRAP={bootstrap}", *commands]
    return replace(finding, means=means.format(**fields), do=do.format(**fields), commands=tuple(commands))


def _configure(topic: str, change: str) -> str:
    return f"kafka-configs.sh {BOOTSTRAP} --alter --entity-type topics --entity-name {topic} {change}"


def _recopy(partition: _Partition, broker: int, leader: int, *, is_of_group: bool) -> list[str]:
    """Return the commands after the pause, which were seen to repair an undone delete and a stuck LSO on 4.4.0.

    ``is_of_group``: the partition has committed offsets, which are committed again before the replica is rebuilt.
    """
    topic, number = partition.topic, partition.number
    others = [leader, *(other for other in partition.brokers if other not in {leader, broker})]
    elect = f"kafka-leader-election.sh {BOOTSTRAP} --election-type preferred --topic {topic} --partition {number}"
    describe = f"kafka-log-dirs.sh {BOOTSTRAP} --describe --broker-list {broker} --topic-list {topic}"
    return [
        *([*_assign(partition, [*others, broker], "leader"), elect, COMMIT_NOW] if is_of_group else []),
        *_assign(partition, others, "without"),
        *([] if is_of_group else [elect]),
        f"{describe}  # continue once {partition.name} is gone",
        *_assign(partition, [*others, broker], "with"),
        *(_assign(partition, partition.brokers, "order") if list(partition.brokers) != [*others, broker] else []),
        _configure(topic, f"--delete-config {','.join(PAUSE_SETTINGS)}")
        + "  # or --add-config with the values that the topic had",
    ]


def _assign(partition: _Partition, replicas: Sequence[int], name: str) -> list[str]:
    assignment = {"topic": partition.topic, "partition": partition.number, "replicas": list(replicas)}
    plan = json.dumps({"version": 1, "partitions": [assignment]})
    file = f"{partition.name}-{name}.json"
    reassign = f"kafka-reassign-partitions.sh {BOOTSTRAP} --reassignment-json-file {file}"
    return [f"echo '{plan}' > {file}", f"{reassign} --execute", f"{reassign} --verify  # continue once it is complete"]


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


def means_of_record(finding: Finding) -> str | None:
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
