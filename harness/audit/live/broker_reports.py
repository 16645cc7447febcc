"""Reports of brokers in a few requests that fetch no records: the status of replicas, and coordinators' transactions.

ListOffsets as a debugging consumer returns the log end offset and the log start offset. A Fetch at the log end offset
returns the high watermark and the last stable offset, and no records. DescribeProducers lists the open transactions.
Followers of Redpanda refuse ListOffsets and DescribeProducers: there a Fetch at the leader's log start offset is sent,
which returns one batch. Every broker is asked for the transactions that it coordinates: FindCoordinator would create
``__transaction_state`` where the topic is missing.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from harness.audit.live.cluster import PATIENT, AuditedCluster
from harness.broker_files.internal_topics.decode import TRANSACTION_STATE
from harness.broker_files.segments.records import MAX_INT64
from harness.errors import UsageError
from harness.escape import escape
from harness.kafka_api import NO_TOPIC_ACCESS, TopicPartition, transactions
from harness.kafka_api import fetch as fetch_api
from harness.kafka_api.connection import Connection
from harness.kafka_api.metadata import describe_cluster
from harness.kafka_api.topics import describe_log_dirs

NOTHING_SEEN = "this user sees no transactional id: coordinators list them to users with Describe on them"

Replica: TypeAlias = tuple[int, TopicPartition]
"""A broker, and a partition of which it has a replica."""


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
    open: tuple[transactions.OpenTransaction, ...] | None


@dataclass(frozen=True)
class ReplicaStatuses:
    """The status of every replica at one time.

    ``replicas`` by broker and partition. ``unseen``: why a replica has no status. ``silent``: why a broker with
    replicas does not answer.
    """

    replicas: Mapping[Replica, ReplicaStatus]
    unseen: Mapping[Replica, str]
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

    def without(self, places: Mapping[TopicPartition, str]) -> "ReplicaStatuses":
        """Leave out the replicas of these partitions: each becomes unseen, for the reason of its partition."""
        left_out = {replica: places[replica[1]] for replica in self.replicas if replica[1] in places}
        left = {replica: status for replica, status in self.replicas.items() if replica not in left_out}
        return ReplicaStatuses(left, {**self.unseen, **left_out}, self.silent)


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
        version = caller.ask(fetch_api.choose_version())
        ends = caller.ask(fetch_api.list_log_ends(replicas[broker]))
        fetch_at = {tp: end if isinstance(end, int) else starts.get(tp, end) for tp, end in ends.items()}
        offsets = {tp: offset for tp, offset in fetch_at.items() if isinstance(offset, int)}
        states = caller.ask(fetch_api.fetch(offsets, max_bytes=1, version=version)) if offsets else {}
        # The last request: open transactions are at least as new as the high watermark.
        producers = caller.ask(transactions.describe_producers(offsets)) if offsets else {}
        statuses: dict[TopicPartition, ReplicaStatus | str] = {}
        for tp, end in ends.items():
            state, log_end = states.get(tp, end), end if isinstance(end, int) else None
            if isinstance(state, fetch_api.ReplicaState):
                reported = state.log_start, state.high_watermark, state.last_stable_offset, log_end
                statuses[tp] = ReplicaStatus(*reported, transactions.open_transactions(producers[tp]))
            else:
                statuses[tp] = str(state)
        return statuses

    answers, errors = cluster.client.ask_all(replicas, ask)
    statuses = {(broker, tp): status for broker, answer in answers.items() for tp, status in answer.items()}
    return ReplicaStatuses(
        {replica: status for replica, status in statuses.items() if isinstance(status, ReplicaStatus)},
        {replica: why for replica, why in statuses.items() if isinstance(why, str)},
        {broker: str(error) for broker, error in errors.items()},
    )


def sizes_bytes(cluster: AuditedCluster, replicas: Collection[Replica]) -> dict[Replica, int]:
    """Return the size of each replica's segments on disk; nothing for a broker that does not report sizes."""

    def ask(broker: int, caller: Connection) -> dict[Replica, int]:
        sizes = caller.ask(describe_log_dirs([tp for node, tp in replicas if node == broker])).sizes_bytes
        return {(broker, tp): size for tp, size in sizes.items()}

    answers, _ = cluster.client.ask_all({broker for broker, _ in replicas}, ask)
    return {replica: size for answer in answers.values() for replica, size in answer.items()}


@dataclass(frozen=True)
class Span:
    """The offsets to read: from ``start`` on, and before ``stop``, which is not set where it is `MAX_INT64`."""

    start: int
    stop: int = MAX_INT64


def spans_between(
    cluster: AuditedCluster,
    since_ms: int | None,
    until_ms: int | None,
    places: Collection[TopicPartition] | None = None,
) -> tuple[dict[TopicPartition, Span], dict[TopicPartition, str]]:
    """Return the offsets to read of each partition, for timestamps from ``since_ms`` on and before ``until_ms``.

    The second value has the reason for each partition whose leader does not return offsets. ``places``: these
    partitions only. Leaders return offsets by time (KIP-79). Timestamps need not rise along a log: a span begins with
    the first record that is late enough and ends before the first record that is too late. Records before the span that
    another replica still has, and the leader does not, are not read.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp in cluster.state.partitions if places is None else places:
        by_leader.setdefault(cluster.state.partitions[tp].leader, []).append(tp)

    def ask(leader: int, caller: Connection) -> dict[TopicPartition, Span | str]:
        ends, starts, stops = (
            {} if time_ms is None else caller.ask(fetch_api.list_offsets(dict.fromkeys(by_leader[leader], time_ms)))
            for time_ms in (fetch_api.LATEST, since_ms, until_ms)
        )
        return {tp: _span(end, starts.get(tp, 0), stops.get(tp, fetch_api.NO_SUCH_OFFSET)) for tp, end in ends.items()}

    answers, errors = cluster.client.ask_all(by_leader, ask, PATIENT)
    spans = {tp: span for answer in answers.values() for tp, span in answer.items()}
    for leader, error in errors.items():
        spans |= dict.fromkeys(by_leader[leader], "the partition has no leader now" if leader < 0 else str(error))
    why = "--since and --until need offsets by time from its leader: {}"
    return (
        {tp: span for tp, span in spans.items() if isinstance(span, Span)},
        {tp: why.format(error) for tp, error in spans.items() if isinstance(error, str)},
    )


def _span(end: int | str, start: int | str, stop: int | str) -> Span | str:
    if isinstance(end, str) or isinstance(start, str) or isinstance(stop, str):
        return next(answer for answer in (end, start, stop) if isinstance(answer, str))
    is_open = stop in {fetch_api.NO_SUCH_OFFSET, end}
    return Span(end if start == fetch_api.NO_SUCH_OFFSET else start, MAX_INT64 if is_open else stop)


@dataclass(frozen=True)
class TransactionDescriptions:
    """Transactions by producer id. ``gaps``: why coordinators may have more than these, each in a sentence."""

    by_producer: Mapping[int, transactions.TransactionDescription]
    gaps: tuple[str, ...] = ()


def ask_coordinators(cluster: AuditedCluster, producer_ids: Collection[int]) -> TransactionDescriptions:
    """Ask all brokers for the transactions of these producers, at the same time. ``gaps`` names missing answers.

    A user who sees no transactional id may not have the right to see any, so nothing follows from that.
    """
    if not producer_ids:
        return TransactionDescriptions({})

    def ask(broker: int, caller: Connection) -> tuple[dict[int, transactions.TransactionDescription], list[str], bool]:
        # No broker lists the transactions in partitions without a leader. A user may not see the topic.
        state = caller.ask(describe_cluster([TRANSACTION_STATE])).partitions
        leaderless = [number for (_, number), partition in state.items() if partition.leader < 0]
        gaps = [f"partition {number} of {TRANSACTION_STATE} has no leader" for number in leaderless]
        listed = caller.ask(transactions.list_transactions(producer_ids=sorted(producer_ids)))
        if isinstance(listed, str):
            gaps.append(f"broker {broker} does not list transactions: {listed}")
            listed = ()
        described = {}
        for name, answer in caller.ask(transactions.describe_transactions(listed, broker)).items() if listed else ():
            if isinstance(answer, str):
                gaps.append(f"broker {broker} does not describe transactional id {escape(name)}: {answer}")
            else:
                described[answer.producer_id] = answer
        every = listed if described else caller.ask(transactions.list_transactions())
        return described, gaps, bool(every) and not isinstance(every, str)

    answers, errors = cluster.client.ask_all(cluster.state.brokers, ask)
    gaps = [f"broker {broker} does not list transactions: {error}" for broker, error in errors.items()]
    gaps += [gap for _, more, _ in answers.values() for gap in more]
    if not any(sees_any for _, _, sees_any in answers.values()):
        gaps.append(NOTHING_SEEN)
    by_producer = {key: value for described, _, _ in answers.values() for key, value in described.items()}
    return TransactionDescriptions(by_producer, tuple(dict.fromkeys(gaps)))
