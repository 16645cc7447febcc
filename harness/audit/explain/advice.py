"""The meaning of a finding for the operators of the cluster, and the remedy: sentences, and commands to copy.

A command that removes a replica's copy is given only where every disagreement of the partition is decided, and a
correct replica is left. Otherwise the command could destroy the last correct copy: then the advice is to pause
compaction, and to save every replica's folder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from checkers.anomalies import MEANS
from checkers.finding import HANGING_TRANSACTION
from harness.audit.explain.record_advice import (
    NO_RIGHT_OFFSETS_DO,
    RECOMMIT_DO,
    UNDECIDED_OFFSETS_DO,
    is_about_offsets,
    with_consumers,
)
from harness.audit.explain.record_advice import means as means_of_record
from harness.judge.finding import by_place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.judge.finding import Finding, Place

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
