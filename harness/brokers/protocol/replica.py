"""Reads one replica from its own broker, without moving leadership.

A Fetch v11 with replica id -1, no session and current leader epoch -1 is answered by any broker that has a replica,
with the replica's own high watermark, last stable offset, log start offset and aborted transactions (KIP-392;
measured on 3.9.2 and 4.4.0). DescribeProducers has no leader check either: it lists a follower's open
transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import kafka.errors
from kafka.protocol.admin import DescribeProducersRequest
from kafka.protocol.consumer import FetchRequest

from harness.brokers.segments.batches import CorruptLogError, iter_batches
from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafka.protocol.api_message import ApiMessage

    from harness.brokers.protocol.wire import Connection

CONSUMER_REPLICA_ID = -1
DEBUG_REPLICA_ID = -2
"""FetchRequest's debugging consumer: reads to the log end instead of the high watermark."""

ANY_RACK = "x"
"""Kafka passes racks to its replica selector, and has none unless it is configured. Redpanda answers a client that
names a rack from the replica that is asked, follower or not (read in its source).
"""

MAX_BYTES = 64 << 20
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FETCH_VERSION = 11
NO_LEADER_EPOCH = -1

TopicPartition = tuple[str, int]


class Caller(Protocol):
    """Sends requests to one broker, as `harness.brokers.protocol.wire.Connection` does."""

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
        """Return each replica from its start to its end, or an error by its name; see `fetch_all`."""
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


@dataclass(frozen=True)
class OpenTransaction:
    """An open transaction of a replica, by DescribeProducers (KIP-664)."""

    producer_id: int
    producer_epoch: int
    first_offset: int


@dataclass(frozen=True)
class WireReader:
    """Implements `Reader` over a connection. ``lists_open``: the broker answers DescribeProducers for any replica."""

    connection: Connection
    lists_open: bool = True

    def read(
        self, partitions: Iterable[TopicPartition], *, replica_id: int = DEBUG_REPLICA_ID
    ) -> dict[TopicPartition, ReplicaState | str]:
        """Fetch each replica until no more records come."""
        return fetch_all(self.connection, partitions, replica_id=replica_id)

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OpenTransactions]:
        """Ask for the producers of each replica (KIP-664); followers answer, too."""
        return open_transactions(self.connection, partitions) if self.lists_open else dict.fromkeys(partitions)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def fetch_all(
    connection: Connection, partitions: Iterable[TopicPartition], *, replica_id: int = DEBUG_REPLICA_ID
) -> dict[TopicPartition, ReplicaState | str]:
    """Read each partition of this broker from its start to its end; an error is given by its name.

    One answer never crosses a segment's end (`LocalLog.read`), so reading continues until an answer has no new records.
    With a consumer's replica id it ends at the last stable offset, and the aborted list is filled; with the debugging
    consumer's id it ends at the log end offset, and the list is empty. Watermarks are those of the last answer. Raises
    `CorruptLogError` where a broker serves bytes that are no record batch.
    """
    offsets = dict.fromkeys(partitions, 0)
    states: dict[TopicPartition, ReplicaState | str] = {}
    while offsets:
        for tp, answer in fetch(connection, offsets, replica_id=replica_id).items():
            before = states.get(tp)
            if isinstance(answer, str):
                states[tp] = answer
                del offsets[tp]
                continue
            whole, last_offset = _whole_batches(answer.records, tp)
            chunk = replace(answer, records=whole)
            states[tp] = _joined(before, chunk) if isinstance(before, ReplicaState) else chunk
            if last_offset is None or last_offset < offsets[tp]:
                del offsets[tp]
            else:
                offsets[tp] = last_offset + 1
    return states


def end_of(state: ReplicaState) -> int:
    """Return the log end offset of a replica that was read whole."""
    batches = iter_batches(state.records, source="a Fetch answer", verify_crc=False)
    return max((batch.last_offset + 1 for batch in batches), default=state.log_start)


def partitions_at_end(connection: Connection, offsets: Mapping[TopicPartition, int]) -> set[TopicPartition]:
    """Return the partitions of which a read_committed consumer gets no records at the offset now."""
    answers = fetch(connection, offsets)
    return {tp for tp, answer in answers.items() if isinstance(answer, ReplicaState) and not answer.records}


def _joined(before: ReplicaState, answer: ReplicaState) -> ReplicaState:
    aborted = tuple(dict.fromkeys((*before.aborted, *answer.aborted)))
    return replace(answer, aborted=aborted, records=before.records + answer.records)


def _whole_batches(records: bytes, partition: TopicPartition) -> tuple[bytes, int | None]:
    """Return the complete batches, and the last offset of the last; an answer may end inside a batch."""
    end, last_offset = 0, None
    try:
        for batch in iter_batches(records, source=f"Fetch answer of {partition[0]}-{partition[1]}"):
            end, last_offset = batch.position + batch.size_bytes, batch.last_offset
    except CorruptLogError as error:
        if not error.cut:
            raise
    return records[:end], last_offset


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
        (topic.topic, p.partition_index): _state(p)
        if p.error_code == 0
        else kafka.errors.for_code(p.error_code).__name__
        for topic in answer.responses
        for p in topic.partitions
    }


def open_transactions(
    connection: Connection, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[OpenTransaction, ...]]:
    """Return this broker's open transactions in each partition. Raises `HarnessError`."""
    open_by_partition: dict[TopicPartition, tuple[OpenTransaction, ...]] = {}
    for (topic, partition), transactions in describe_producers(connection, partitions).items():
        if isinstance(transactions, str):
            raise HarnessError(f"{topic}-{partition} at {connection.address}: {transactions}")
        open_by_partition[topic, partition] = transactions
    return open_by_partition


def describe_producers(
    connection: Caller, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[OpenTransaction, ...] | str]:
    """Return this broker's open transactions in each partition; an error is given by its name."""
    Topic = DescribeProducersRequest.TopicRequest  # noqa: N806
    wanted = [Topic(name=topic, partition_indexes=[partition]) for topic, partition in partitions]
    answer = connection.call(DescribeProducersRequest[0](topics=wanted))
    return {
        (topic.name, p.partition_index): kafka.errors.for_code(p.error_code).__name__
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
