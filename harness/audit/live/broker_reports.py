"""Reports of brokers in a few requests that fetch no records: the status of replicas, and coordinators' transactions.

ListOffsets as a debugging consumer returns the log end offset and the log start offset. A Fetch at the log end offset
returns the high watermark and the last stable offset, and no records. DescribeProducers lists the open transactions.
Followers of Redpanda refuse ListOffsets and DescribeProducers: there a Fetch at the leader's log start offset is sent,
which returns one batch.

Every broker is asked for the transactions that it coordinates. FindCoordinator is not used: that request would create
``__transaction_state`` where the topic is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from harness.broker_files.internal_topics.decode import TRANSACTION_STATE
from harness.errors import UsageError
from harness.escape import escape
from harness.kafka_api import NO_TOPIC_ACCESS, TopicPartition
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import choose_fetch_version, fetch, list_log_ends
from harness.kafka_api.metadata import describe_cluster
from harness.kafka_api.transactions import (
    OpenTransaction,
    TransactionDescription,
    describe_producers,
    describe_transactions,
    list_transactions,
    open_transactions,
)

if TYPE_CHECKING:
    from harness.audit.live.cluster import AuditedCluster


NO_RECORDS_BYTES = 1
NOTHING_SEEN = "this user sees no transactional id: coordinators list them to users with Describe on them"
ONGOING = "Ongoing"
FINISHED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""``TransactionState`` without an open transaction. In the Prepare… states, markers are being written."""


class UnreadableTopicError(UsageError):
    """This user may not read ``topic``."""

    def __init__(self, topic: str) -> None:
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
        ordered = sorted(self.replicas.items(), key=lambda item: item[0][::-1])
        return [(broker, tp, status) for (broker, tp), status in ordered]

    @property
    def open_producers(self) -> set[int]:
        """The ids of the producers with an open transaction on any replica."""
        return {transaction.producer_id for status in self.replicas.values() for transaction in status.open or ()}

    @cached_property
    def by_partition(self) -> Mapping[TopicPartition, Mapping[int, ReplicaStatus]]:
        """The status of each replica by partition and broker."""
        statuses: dict[TopicPartition, dict[int, ReplicaStatus]] = {}
        for (broker, tp), status in self.replicas.items():
            statuses.setdefault(tp, {})[broker] = status
        return statuses


def replica_statuses(cluster: AuditedCluster, places: Collection[TopicPartition] | None = None) -> ReplicaStatuses:
    """Ask all brokers for the status of every replica, at the same time. ``places``: these partitions only.

    Raises `UnreadableTopicError` where this user may not read a topic.
    """
    every = cluster.state.replicas_by_broker
    asked = {broker: [tp for tp in tps if places is None or tp in places] for broker, tps in every.items()}
    first = _request_statuses(cluster, {broker: tps for broker, tps in asked.items() if tps}, {})
    starts = {tp: status.log_start for (_, tp), status in first.replicas.items()}
    rejected: dict[int, list[TopicPartition]] = {}
    for broker, tp in first.unseen:
        if tp in starts:
            rejected.setdefault(broker, []).append(tp)
    second = _request_statuses(cluster, rejected, starts)
    unseen = {replica: why for replica, why in first.unseen.items() if replica[1] not in starts} | {**second.unseen}
    for (_, (topic, _)), reason in unseen.items():
        if reason == NO_TOPIC_ACCESS:
            raise UnreadableTopicError(topic)
    return ReplicaStatuses({**first.replicas, **second.replicas}, unseen, {**first.silent, **second.silent})


def _request_statuses(
    cluster: AuditedCluster, replicas: Mapping[int, Sequence[TopicPartition]], starts: Mapping[TopicPartition, int]
) -> ReplicaStatuses:
    """Request the status of replicas. ``starts``: where to Fetch if a broker does not report the log end offset."""

    def ask(broker: int, caller: Connection) -> dict[TopicPartition, ReplicaStatus | str]:
        version = caller.ask(choose_fetch_version())
        ends = caller.ask(list_log_ends(replicas[broker]))
        fetch_at = {tp: end if isinstance(end, int) else starts.get(tp, end) for tp, end in ends.items()}
        statuses: dict[TopicPartition, ReplicaStatus | str] = {
            tp: e for tp, e in fetch_at.items() if isinstance(e, str)
        }
        offsets = {tp: offset for tp, offset in fetch_at.items() if isinstance(offset, int)}
        if not offsets:
            return statuses
        states = caller.ask(fetch(offsets, max_bytes=NO_RECORDS_BYTES, version=version))
        # The last request: open transactions are at least as new as the high watermark.
        producers = caller.ask(describe_producers(offsets))
        for tp, state in states.items():
            if isinstance(state, str):
                statuses[tp] = state
            else:
                reported = state.log_start, state.high_watermark, state.last_stable_offset
                log_end = end if isinstance(end := ends[tp], int) else None
                statuses[tp] = ReplicaStatus(*reported, log_end, open_transactions(producers[tp]))
        return statuses

    answers, errors = cluster.client.ask_all(replicas, ask)
    statuses = {(broker, tp): status for broker, answer in answers.items() for tp, status in answer.items()}
    return ReplicaStatuses(
        {replica: status for replica, status in statuses.items() if isinstance(status, ReplicaStatus)},
        {replica: why for replica, why in statuses.items() if isinstance(why, str)},
        {broker: str(error) for broker, error in errors.items()},
    )


@dataclass(frozen=True)
class TransactionDescriptions:
    """Transactions by producer id. ``gaps``: why coordinators may have more than these, each in a sentence."""

    by_producer: Mapping[int, TransactionDescription]
    gaps: tuple[str, ...] = ()


def ask_coordinators(cluster: AuditedCluster, producer_ids: Collection[int]) -> TransactionDescriptions:
    """Ask all brokers for the transactions of these producers, at the same time. ``gaps`` names missing answers.

    A user who sees no transactional id may not have the right to see any, so nothing follows from that.
    """
    if not producer_ids:
        return TransactionDescriptions({})

    def ask(broker: int, caller: Connection) -> tuple[TransactionDescriptions, bool]:
        # No broker lists the transactions in partitions without a leader. A user may not see the topic.
        state = caller.ask(describe_cluster([TRANSACTION_STATE])).partitions
        leaderless = [number for (_, number), partition in state.items() if partition.leader < 0]
        gaps = [f"partition {number} of {TRANSACTION_STATE} has no leader" for number in leaderless]
        listed = caller.ask(list_transactions(producer_ids=sorted(producer_ids)))
        if isinstance(listed, str):
            gaps.append(f"broker {broker} does not list transactions: {listed}")
            listed = ()
        answers = caller.ask(describe_transactions(listed, broker)) if listed else {}
        denied = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
        gaps += [
            f"broker {broker} does not describe transactional id {escape(name)}: {denied[name]}" for name in denied
        ]
        described = {answer.producer_id: answer for answer in answers.values() if not isinstance(answer, str)}
        every = listed if described else caller.ask(list_transactions())
        sees_any = bool(every) and not isinstance(every, str)
        return TransactionDescriptions(described, tuple(gaps)), sees_any

    answers, errors = cluster.client.ask_all(cluster.state.brokers, ask)
    described = [descriptions for descriptions, _ in answers.values()]
    gaps = [f"broker {broker} does not list transactions: {error}" for broker, error in errors.items()]
    gaps += [gap for descriptions in described for gap in descriptions.gaps]
    if not any(sees_any for _, sees_any in answers.values()):
        gaps.append(NOTHING_SEEN)
    by_producer = {key: value for descriptions in described for key, value in descriptions.by_producer.items()}
    return TransactionDescriptions(by_producer, tuple(dict.fromkeys(gaps)))
