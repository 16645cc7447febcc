"""The status of replicas as their brokers report it, in a few requests that fetch no records.

ListOffsets as a debugging consumer returns the log end offset and the log start offset. A Fetch at the log end offset
returns the high watermark and the last stable offset, and no records. DescribeProducers lists the open transactions.
Followers of Redpanda refuse ListOffsets and DescribeProducers: there a Fetch at the leader's log start offset is sent,
which returns one batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.kafka_api.error_names import NO_TOPIC_ACCESS
from harness.kafka_api.fetch import FETCH_VERSION, choose_fetch_version, fetch, list_log_ends
from harness.kafka_api.transactions import describe_producers, open_transactions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.audit.live.cluster import AuditedCluster
    from harness.kafka_api.messages import Caller, TopicPartition
    from harness.kafka_api.transactions import OpenTransaction

NO_RECORDS_BYTES = 1


class UnreadableTopicError(UsageError):
    """This user may not read ``topic``."""

    def __init__(self, topic: str) -> None:
        """Say what an audit needs."""
        super().__init__(f"this user may not read topic {topic}: an audit needs Describe and Read on it")
        self.topic = topic


@dataclass(frozen=True)
class ReplicaStatus:
    """Offsets of one replica; ``log_end`` and ``open`` are None where the broker does not report them."""

    log_start: int
    high_watermark: int
    last_stable_offset: int
    log_end: int | None
    open: tuple[OpenTransaction, ...] | None


@dataclass(frozen=True)
class ReplicaStatuses:
    """The status of every replica at one time.

    ``replicas`` by broker and partition. ``unseen``: why a replica has no status. ``silent``: why a broker with
    replicas does not answer.
    """

    replicas: Mapping[tuple[int, TopicPartition], ReplicaStatus]
    unseen: Mapping[tuple[int, TopicPartition], str]
    silent: Mapping[int, str]

    @property
    def in_order(self) -> list[tuple[int, TopicPartition, ReplicaStatus]]:
        """Every replica's broker, partition and status, by partition and broker."""
        return sorted(((b, tp, status) for (b, tp), status in self.replicas.items()), key=lambda one: (one[1], one[0]))

    @property
    def open_producers(self) -> set[int]:
        """The ids of the producers with an open transaction on any replica."""
        return {transaction.producer_id for status in self.replicas.values() for transaction in status.open or ()}

    def of(self, partition: TopicPartition) -> dict[int, ReplicaStatus]:
        """Return the status of each replica of one partition, by broker."""
        return {broker: status for (broker, tp), status in self.replicas.items() if tp == partition}


def replica_statuses(cluster: AuditedCluster) -> ReplicaStatuses:
    """Ask all brokers for the status of every replica of these topics, at the same time.

    Raises `UnreadableTopicError` where this user may not read a topic.
    """
    first = _all_statuses(cluster, cluster.state.replicas_by_broker, {})
    starts = {tp: one.log_start for (_, tp), one in first.replicas.items()}
    refused: dict[int, list[TopicPartition]] = {}
    for broker, tp in first.unseen:
        if tp in starts:
            refused.setdefault(broker, []).append(tp)
    second = _all_statuses(cluster, refused, starts)
    unanswered = {replica: why for replica, why in first.unseen.items() if replica[1] not in starts}
    unseen = {**unanswered, **second.unseen}
    for (_, (topic, _)), reason in unseen.items():
        if reason == NO_TOPIC_ACCESS:
            raise UnreadableTopicError(topic)
    return ReplicaStatuses({**first.replicas, **second.replicas}, unseen, {**first.silent, **second.silent})


def status_of_replicas(
    broker: Caller,
    partitions: Sequence[TopicPartition],
    starts: Mapping[TopicPartition, int],
    version: int = FETCH_VERSION,
) -> dict[TopicPartition, ReplicaStatus | str]:
    """Return the status of these replicas of one broker, or an error's name. Raises OSError.

    ``starts``: offsets to Fetch at where the broker does not report the log end offset. Open transactions are asked for
    last, so they are at least as new as the high watermark.
    """
    ends = broker.ask(list_log_ends(partitions))
    fetch_offsets = {tp: end if isinstance(end, int) else starts.get(tp, end) for tp, end in ends.items()}
    statuses: dict[TopicPartition, ReplicaStatus | str] = {}
    statuses |= {tp: why for tp, why in fetch_offsets.items() if isinstance(why, str)}
    offsets = {tp: offset for tp, offset in fetch_offsets.items() if isinstance(offset, int)}
    if not offsets:
        return statuses
    states = broker.ask(fetch(offsets, max_bytes=NO_RECORDS_BYTES, version=version))
    producers = broker.ask(describe_producers(offsets))
    for tp, answer in states.items():
        if isinstance(answer, str):
            statuses[tp] = answer
            continue
        statuses[tp] = ReplicaStatus(
            log_start=answer.log_start,
            high_watermark=answer.high_watermark,
            last_stable_offset=answer.last_stable_offset,
            log_end=end if isinstance(end := ends[tp], int) else None,
            open=open_transactions(producers[tp]),
        )
    return statuses


def _all_statuses(
    cluster: AuditedCluster, wanted: Mapping[int, Sequence[TopicPartition]], starts: Mapping[TopicPartition, int]
) -> ReplicaStatuses:
    def ask(broker: int, caller: Caller) -> dict[TopicPartition, ReplicaStatus | str]:
        return status_of_replicas(caller, wanted[broker], starts, caller.ask(choose_fetch_version()))

    answers = cluster.client.ask_all(wanted, ask)
    results = [
        ((broker, tp), one)
        for broker, answer in answers.items()
        if not isinstance(answer, Exception)
        for tp, one in answer.items()
    ]
    return ReplicaStatuses(
        {replica: one for replica, one in results if isinstance(one, ReplicaStatus)},
        {replica: one for replica, one in results if isinstance(one, str)},
        {broker: str(error) for broker, error in answers.items() if isinstance(error, Exception)},
    )
