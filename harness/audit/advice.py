"""What a finding means for whoever runs the cluster, and how to get out of it: sentences, and commands to copy.

A command that removes a copy is given only where every disagreement of the partition is decided, and a replica is left
that is not wrong. Anything else could destroy the last right copy: then compaction is to be held, and every replica's
folder to be saved.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from checkers.anomalies import MEANS
from checkers.finding import HANGING_TRANSACTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BOOTSTRAP: Final = '--bootstrap-server "$BOOTSTRAP"'
"""The first of the commands sets the variable."""
ANY_BROKER: Final = "HOST:PORT"
"""For whoever runs the commands to replace: an audit of folders knows no address."""
HELD: Final = {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "9223372036854775807"}
"""Settings that pause a topic's compaction; seen to do so on 4.4.0."""

UNDECIDED_MEANS: Final = (
    "consumers get another state of the key from another replica, and the evidence does not show which one is right: a "
    "replica that lacks a value may have missed something, or carried out what the others missed"
)
UNDECIDED_DO: Final = (
    "hold compaction of the topic, then save the folder of {partition} of every replica, then decide: by a client's "
    "record of what it wrote, a backup, or the coordinator's log (__transaction_state) of that time. Copy no replica "
    "anew before: its copy may be the last right one"
)
COPY_DO: Final = (
    "hold compaction, save the folder of {partition} on broker {broker}, make broker {leader} the leader, take broker "
    "{broker} out of the replicas, wait until its folder is gone, and put it back: it copies the log anew. At the end "
    "put back the topic's own values of the two settings. Until then keep broker {broker} from becoming leader"
)
NO_LEADER_DO: Final = (
    "hold compaction and save the folder of {partition} of every replica: {why}. Copying broker {broker} anew from "
    "one of them could destroy the last right copy of something"
)
HANGING_DO: Final = "abort the transaction by Kafka's own tool, on the leader"
UNDECIDED_LEFT: Final = "another disagreement of this partition is not decided"
NONE_RIGHT: Final = "no other replica is shown to be right"


@dataclass(frozen=True)
class _Partition:
    """What is known of a partition: the brokers that hold it, in order, and those that are shown to be right."""

    topic: str
    number: int
    brokers: Sequence[int]
    leaders: Sequence[int]
    is_decided: bool

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"


def with_advice(
    findings: Sequence[dict[str, Any]], brokers: Mapping[tuple[str, int], Sequence[int]], bootstrap: str = ANY_BROKER
) -> list[dict[str, Any]]:
    """Add ``means``, ``do`` and ``commands`` (lines for a shell) to findings.

    ``brokers``: those that hold each partition, in the order of its assignment. ``bootstrap``: a broker's address.
    """
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for finding in findings:
        groups.setdefault((finding["topic"], finding["partition"]), []).append(finding)
    partitions = {place: _partition(place, group, brokers[place]) for place, group in groups.items()}
    return [
        {**finding, **_advice(finding, partitions[finding["topic"], finding["partition"]], bootstrap)}
        for finding in findings
    ]


def _partition(place: tuple[str, int], findings: Sequence[dict[str, Any]], brokers: Sequence[int]) -> _Partition:
    accusing = [finding for finding in findings if finding["anomaly"] != HANGING_TRANSACTION]
    wrong = {finding["broker"] for finding in accusing if finding["decided"]}
    right = {broker for finding in accusing for broker in finding.get("right", ())} - wrong
    leaders = [broker for broker in brokers if broker in right]
    return _Partition(*place, brokers, leaders, all(finding["decided"] for finding in accusing))


def _advice(finding: dict[str, Any], partition: _Partition, bootstrap: str) -> dict[str, Any]:
    words = {
        "broker": finding["broker"],
        "partition": partition.name,
        "producer_id": finding["producer_id"],
        "leader": next(iter(partition.leaders), None),
        "why": NONE_RIGHT if partition.is_decided else UNDECIDED_LEFT,
    }
    if finding["anomaly"] == HANGING_TRANSACTION:
        do, commands = HANGING_DO, _abort(finding)
    elif not finding["decided"]:
        do, commands = UNDECIDED_DO, [_hold(partition.topic)]
    elif partition.is_decided and partition.leaders:
        do, commands = COPY_DO, _copy_anew(partition, finding["broker"], partition.leaders[0])
    else:
        do, commands = NO_LEADER_DO, [_hold(partition.topic)]
    means = MEANS[finding["anomaly"]] if finding["decided"] else UNDECIDED_MEANS
    return {"means": means.format(**words), "do": do.format(**words), "commands": [f"BOOTSTRAP={bootstrap}", *commands]}


def _hold(topic: str) -> str:
    settings = ",".join(f"{name}={value}" for name, value in HELD.items())
    return f"kafka-configs.sh {BOOTSTRAP} --alter --entity-type topics --entity-name {topic} --add-config {settings}"


def _release(topic: str) -> str:
    return (
        f"kafka-configs.sh {BOOTSTRAP} --alter --entity-type topics --entity-name {topic} --delete-config "
        f"{','.join(HELD)}  # or --add-config with the values that the topic had"
    )


def _abort(finding: dict[str, Any]) -> list[str]:
    at = f"--topic {finding['topic']} --partition {finding['partition']} --start-offset {finding['offset']}"
    return [f"kafka-transactions.sh {BOOTSTRAP} abort {at}"]


def _copy_anew(partition: _Partition, broker: int, leader: int) -> list[str]:
    """Return the commands that were seen to repair an undone delete and a stuck LSO on 4.4.0."""
    topic, number = partition.topic, partition.number
    without = [leader, *(one for one in partition.brokers if one not in {leader, broker})]
    elect = f"kafka-leader-election.sh {BOOTSTRAP} --election-type preferred --topic {topic} --partition {number}"
    look = f"kafka-log-dirs.sh {BOOTSTRAP} --describe --broker-list {broker} --topic-list {topic}"
    return [
        _hold(partition.topic),
        *_assign(partition, without, "without"),
        elect,
        f"{look}  # go on once {partition.name} is gone",
        *_assign(partition, [*without, broker], "with"),
        *(_assign(partition, partition.brokers, "order") if list(partition.brokers) != [*without, broker] else []),
        _release(partition.topic),
    ]


def _assign(partition: _Partition, replicas: Sequence[int], name: str) -> list[str]:
    plan = {
        "version": 1,
        "partitions": [{"topic": partition.topic, "partition": partition.number, "replicas": list(replicas)}],
    }
    file = f"{partition.name}-{name}.json"
    reassign = f"kafka-reassign-partitions.sh {BOOTSTRAP} --reassignment-json-file {file}"
    return [
        f"echo '{json.dumps(plan)}' > {file}",
        f"{reassign} --execute",
        f"{reassign} --verify  # go on once it is complete",
    ]
