"""Reads one replica from its own broker, without moving leadership.

A Fetch v11 with replica id -1, no session and current leader epoch -1 is answered by any broker that has a replica,
with the replica's own high watermark, last stable offset, log start offset and aborted transactions (KIP-392;
measured on 3.9.2 and 4.4.0). DescribeProducers has no leader check either: it lists a follower's open
transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.consumer import FetchRequest

from harness.kafka_api.wire import error_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafka.protocol.api_message import ApiMessage

    from harness.broker_files.segments.batches import Batch
    from harness.kafka_api.wire import Connection

CONSUMER_REPLICA_ID = -1
DEBUG_REPLICA_ID = -2
"""FetchRequest's debugging consumer: reads to the log end instead of the high watermark."""

ANY_RACK = "x"
"""Kafka passes racks to its replica selector, and has none unless it is configured. Redpanda answers a client
that names a rack from the replica that is asked, follower or not (read in its source).
"""

MAX_BYTES = 64 << 20
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FETCH_VERSION = 11
NO_LEADER_EPOCH = -1

OUT_OF_RANGE = "OffsetOutOfRangeError"
"""The answer below the log start offset, and beyond the log end."""

TopicPartition = tuple[str, int]


class Caller(Protocol):
    """Sends requests to one broker, as `harness.kafka_api.wire.Connection` does."""

    def call(self, request: ApiMessage) -> Any:
        """Return the decoded response. Raises OSError."""
        ...


OpenTransactions: TypeAlias = "tuple[OpenTransaction, ...] | None"
"""The open transactions of a replica; None where its broker does not list them."""


class Reader(Protocol):
    """Reads the replicas of one broker as the broker serves them, until `close`. Its methods raise OSError."""

    def read(
        self, partitions: Iterable[TopicPartition], *, replica_id: int = DEBUG_REPLICA_ID
    ) -> dict[TopicPartition, ReplicaState | str]:
        """Return each replica from its start to its end, or an error by its name."""
        ...

    def ends(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, ReplicaEnds | str]:
        """Return where each replica ends, or an error by its name. ``positions``: offsets that it is known to reach."""
        ...

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OpenTransactions]:
        """Return the open transactions of the broker's replicas; None where the broker does not list them.

        Raises `HarnessError` for a replica that is just being created or moved.
        """
        ...

    def close(self) -> None:
        """Release the broker."""
        ...


@dataclass(frozen=True)
class ReplicaState:
    """A replica as its broker reports it; offsets, ``aborted`` as (producer id, first offset) pairs."""

    log_start: int
    high_watermark: int
    last_stable_offset: int
    aborted: tuple[tuple[int, int], ...]
    records: bytes
    batches: tuple[Batch, ...] = field(default=(), compare=False, repr=False)
    """Of a replica that was read whole: ``records``, parsed."""

    @property
    def log_end(self) -> int:
        """The log end offset of a replica that was read whole."""
        return self.batches[-1].last_offset + 1 if self.batches else self.log_start


@dataclass(frozen=True)
class ReplicaEnds:
    """The offsets at which a replica ends, for brokers and for consumers."""

    log_end: int
    high_watermark: int
    last_stable_offset: int


@dataclass(frozen=True)
class OpenTransaction:
    """An open transaction of a replica, by DescribeProducers (KIP-664)."""

    producer_id: int
    producer_epoch: int
    first_offset: int


def partitions_at_end(connection: Connection, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """Return the partitions of which a read_committed consumer gets no records at the offset now."""
    answers = fetch(connection, offsets)
    return {tp for tp, answer in answers.items() if isinstance(answer, ReplicaState) and not answer.records}


def fetch(
    connection: Caller,
    offsets: Mapping[TopicPartition, int],
    *,
    replica_id: int = CONSUMER_REPLICA_ID,
    isolation: int = READ_COMMITTED,
    max_bytes: int = MAX_BYTES,
    version: int = FETCH_VERSION,
) -> dict[TopicPartition, ReplicaState | str]:
    """Send one Fetch at these offsets: an answer for each partition, or an error by its name.

    ``max_bytes`` bounds the whole answer except the first batch, which is sent whatever its size (KIP-74). The
    debugging consumer has no isolation. Raises OSError.
    """
    Topic = FetchRequest.FetchTopic  # noqa: N806
    topics = [
        Topic(
            topic=topic,
            partitions=[
                Topic.FetchPartition(
                    partition=partition,
                    current_leader_epoch=NO_LEADER_EPOCH,
                    fetch_offset=offset,
                    log_start_offset=-1,
                    partition_max_bytes=max_bytes,
                )
            ],
        )
        for (topic, partition), offset in offsets.items()
    ]
    answer = connection.call(
        FetchRequest[version](
            replica_id=replica_id,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=isolation if replica_id == CONSUMER_REPLICA_ID else READ_UNCOMMITTED,
            session_id=0,
            session_epoch=-1,
            topics=topics,
            forgotten_topics_data=[],
            rack_id=ANY_RACK,
        )
    )
    return {
        (topic.topic, p.partition_index): error_name(p.error_code) if p.error_code else _state(p)
        for topic in answer.responses
        for p in topic.partitions
    }


def describe_producers(
    connection: Caller, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[OpenTransaction, ...] | str]:
    """Return this broker's open transactions in each partition; an error is given by its name."""
    Topic = DescribeProducersRequest.TopicRequest  # noqa: N806
    wanted = [Topic(name=topic, partition_indexes=[partition]) for topic, partition in partitions]
    answer = connection.call(DescribeProducersRequest[0](topics=wanted))
    return {
        (topic.name, p.partition_index): error_name(p.error_code)
        if p.error_code
        else tuple(
            OpenTransaction(q.producer_id, q.producer_epoch, q.current_txn_start_offset)
            for q in p.active_producers
            if q.current_txn_start_offset >= 0
        )
        for topic in answer.topics
        for p in topic.partitions
    }


def _state(partition: Any) -> ReplicaState:
    return ReplicaState(
        log_start=partition.log_start_offset,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        aborted=tuple((a.producer_id, a.first_offset) for a in partition.aborted_transactions or ()),
        records=bytes(partition.records or b""),
    )
