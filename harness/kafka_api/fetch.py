"""Fetch and ListOffsets: records and offsets of a replica, by the broker of the replica, without moving leadership.

A Fetch v11 with replica id -1, no session and current leader epoch -1 is answered by any broker that has a replica,
with the replica's own high watermark, last stable offset, log start offset and aborted transactions (KIP-392;
measured on 3.9.2 and 4.4.0).

Only leaders answer the ListOffsets (KIP-79) of consumers. Followers, too, answer a request of the debugging consumer
(replica id -2), which has no isolation: its latest offset is the replica's own log end offset
(``KafkaApis.handleListOffsetRequest``, ``fetchOnlyFromLeader``; seen on 3.9.2 and 4.4.0). Redpanda's followers refuse
the request.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, Protocol

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import ApiVersionsRequest

from harness.broker_files.segments.batches import Batch, iter_batches, until_cut
from harness.errors import HarnessError
from harness.kafka_api import OUT_OF_RANGE, TopicPartition
from harness.kafka_api.connection import Connection
from harness.kafka_api.messages import Request, error_name, per_topic, request, results_in
from harness.kafka_api.transactions import OpenTransactions, describe_producers, open_transactions

CONSUMER_REPLICA_ID = -1
DEBUG_REPLICA_ID = -2
"""FetchRequest's debugging consumer: reads to the log end instead of the high watermark."""

ANY_RACK: Final = "rack of compaction-harness"
"""A leader with a replica selector, which Kafka has only if it is configured, refers clients of the rack of another
replica to that replica. Redpanda answers a client that names a rack from the replica that is asked, follower or not
(read in its source).
"""

MAX_BYTES: Final = 64 << 20
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FETCH_VERSION: Final = 11
FETCH_VERSIONS: Final = (FETCH_VERSION, 12)
"""Later versions name topics by their ids."""
NO_LEADER_EPOCH, NO_SESSION = -1, -1
EARLIEST, LATEST = -2, -1
NO_SUCH_OFFSET: Final = -1


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


def fetch(
    offsets: Mapping[TopicPartition, int],
    *,
    replica_id: int = CONSUMER_REPLICA_ID,
    isolation: int = READ_COMMITTED,
    max_bytes: int = MAX_BYTES,
    partition_max_bytes: int | None = None,
    version: int = FETCH_VERSION,
) -> Request[dict[TopicPartition, ReplicaState | str]]:
    """Return each replica's records from an offset on, or an error. The debugging consumer has no isolation.

    ``max_bytes`` bounds the whole answer except the first batch, which is sent whatever its size (KIP-74);
    ``partition_max_bytes`` each partition.
    """
    fields = {"current_leader_epoch": NO_LEADER_EPOCH, "partition_max_bytes": partition_max_bytes or max_bytes}
    asked = ((tp, {**fields, "partition": tp[1], "fetch_offset": offset}) for tp, offset in offsets.items())
    return request(
        FetchRequest,
        version,
        lambda answer: {
            (topic.topic, p.partition_index): error_name(p.error_code) if p.error_code else _state(p)
            for topic in answer.responses
            for p in topic.partitions
        },
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=isolation if replica_id == CONSUMER_REPLICA_ID else READ_UNCOMMITTED,
        session_epoch=NO_SESSION,
        topics=per_topic(asked, name="topic"),
        rack_id=ANY_RACK,
    )


def _state(partition: Any) -> ReplicaState | str:
    if partition.preferred_read_replica >= 0:
        # Such an answer has no records, and no error (`ReplicaManager.readFromLog`).
        return f"its replica selector refers consumers to broker {partition.preferred_read_replica}"
    return ReplicaState(
        log_start=partition.log_start_offset,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        aborted=tuple((a.producer_id, a.first_offset) for a in partition.aborted_transactions or ()),
        records=bytes(partition.records or b""),
    )


def choose_version(kind: type[ApiMessage] = FetchRequest, versions: Sequence[int] = FETCH_VERSIONS) -> Request[int]:
    """Return the first of these versions of a request that a broker supports (KIP-35). Raises `HarnessError`."""

    def decode(answer: Any) -> int:
        apis = [api for api in answer.api_keys if api.api_key == kind.API_KEY]
        for version in versions:
            if any(api.min_version <= version <= api.max_version for api in apis):
                return version
        name = kind.__name__.removesuffix("Request")
        raise HarnessError(f"it supports none of the versions {', '.join(map(str, versions))} of {name}")

    return request(ApiVersionsRequest, 0, decode)


def list_log_ends(partitions: Iterable[TopicPartition]) -> Request[dict[TopicPartition, int | str]]:
    """Return the log end offset of each of the broker's replicas, or an error's name."""
    return list_offsets(dict.fromkeys(partitions, LATEST), replica_id=DEBUG_REPLICA_ID)


def list_log_starts(partitions: Iterable[TopicPartition]) -> Request[dict[TopicPartition, int | str]]:
    """Return the log start offset of each of the broker's replicas, or an error's name."""
    return list_offsets(dict.fromkeys(partitions, EARLIEST), replica_id=DEBUG_REPLICA_ID)


def list_high_watermarks(partitions: Iterable[TopicPartition]) -> Request[dict[TopicPartition, int | str]]:
    """Return the high watermark of each partition, or an error's name. For the partitions' leader."""
    return list_offsets(dict.fromkeys(partitions, LATEST))


def list_offsets(
    timestamps_ms: Mapping[TopicPartition, int], *, replica_id: int = CONSUMER_REPLICA_ID
) -> Request[dict[TopicPartition, int | str]]:
    """Return the first offset at or after each timestamp, `NO_SUCH_OFFSET`, or an error's name.

    A timestamp may be `EARLIEST` or `LATEST`, which is the high watermark for a consumer.
    """
    return request(
        ListOffsetsRequest,
        4,
        lambda answer: results_in(answer.topics, attrgetter("offset")),
        replica_id=replica_id,
        isolation_level=READ_UNCOMMITTED,
        topics=per_topic((tp, {"partition_index": tp[1], "timestamp": time}) for tp, time in timestamps_ms.items()),
    )


@dataclass(frozen=True)
class ReplicaEnds:
    """The offsets at which a replica ends, for brokers and for consumers."""

    log_end: int
    high_watermark: int
    last_stable_offset: int


class ReplicaReader(Protocol):
    """Reads the replicas of one broker as the broker serves them, until `close`. Its methods raise OSError."""

    def read(
        self, partitions: Iterable[TopicPartition], *, replica_id: int = DEBUG_REPLICA_ID
    ) -> dict[TopicPartition, ReplicaState | str]:
        """Return each replica from its start to its end, or an error by its name."""

    def ends(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, ReplicaEnds | str]:
        """Return where each replica ends, or an error by its name. ``positions``: offsets that it is known to reach."""

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OpenTransactions]:
        """Return the open transactions. Raises `HarnessError` for a replica that is just being created or moved."""

    def close(self) -> None:
        """Release the broker."""


@dataclass(frozen=True)
class WireReader:
    """Implements `ReplicaReader` over a connection. ``lists_open``: any replica's broker answers DescribeProducers."""

    connection: Connection
    lists_open: bool = True

    def read(
        self, partitions: Iterable[TopicPartition], *, replica_id: int = DEBUG_REPLICA_ID
    ) -> dict[TopicPartition, ReplicaState | str]:
        """Read each partition; watermarks are those of the last answer. Raises `CorruptLogError` for damaged batches.

        With a consumer's replica id a replica ends at the last stable offset, and the aborted list is filled; with the
        debugging consumer's id it ends at the log end offset, and the list is empty.
        """
        states: dict[TopicPartition, ReplicaState | str] = {}
        for tp, answer in self._answers(dict.fromkeys(partitions, 0), replica_id, verify_crc=True):
            states[tp] = answer if isinstance(answer, str) else _joined(states.get(tp), answer)
        return states

    def ends(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, ReplicaEnds | str]:
        """Read each replica from its position on, and no record twice where the next positions are the log ends."""
        ends: dict[TopicPartition, ReplicaEnds | str] = {}
        offsets = dict(positions)
        for tp, answer in self._answers(offsets, DEBUG_REPLICA_ID, verify_crc=False):
            if isinstance(answer, str):
                ends[tp] = answer
            else:
                log_end = max([offsets[tp], *(batch.last_offset + 1 for batch in answer.batches[-1:])])
                ends[tp] = ReplicaEnds(log_end, answer.high_watermark, answer.last_stable_offset)
        return ends

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OpenTransactions]:
        """Ask for the producers of each replica. Raises `HarnessError`."""
        if not self.lists_open:
            return dict.fromkeys(partitions)
        opened: dict[TopicPartition, OpenTransactions] = {}
        for tp, producers in self.connection.ask(describe_producers(partitions)).items():
            if isinstance(producers, str):
                raise HarnessError(f"{tp[0]}-{tp[1]} at {self.connection.address}: {producers}")
            opened[tp] = open_transactions(producers)
        return opened

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _answers(
        self, offsets: dict[TopicPartition, int], replica_id: int, *, verify_crc: bool
    ) -> Iterator[tuple[TopicPartition, ReplicaState | str]]:
        """Fetch from these offsets on until an answer has no new records, as no answer crosses a segment's end.

        ``offsets`` has the next offset of each unfinished replica. The first replicas of an answer may use up its size,
        so a replica after them that has no records is fetched again, and before them. Batches that are cut
        (`LocalLog.read`) are left out.
        """
        while offsets:
            has_records = False
            for tp, answer in self._fetch(offsets, replica_id).items():
                batches: tuple[Batch, ...] = ()
                if isinstance(answer, str):
                    yield tp, answer
                else:
                    source = f"Fetch answer of {tp[0]}-{tp[1]}"
                    batches = tuple(until_cut(iter_batches(answer.records, source=source, verify_crc=verify_crc)))
                    records = answer.records[: batches[-1].position + batches[-1].size_bytes] if batches else b""
                    yield tp, replace(answer, records=records, batches=batches)
                if batches and batches[-1].last_offset >= offsets[tp]:
                    del offsets[tp]  # It goes to the end.
                    offsets[tp] = batches[-1].last_offset + 1
                    has_records = True
                elif isinstance(answer, str) or not has_records:
                    del offsets[tp]

    def _fetch(self, offsets: dict[TopicPartition, int], replica_id: int) -> dict[TopicPartition, ReplicaState | str]:
        """Fetch at these offsets. A log without its offset is left out: ``offsets`` then has the log start."""
        answers = self.connection.ask(fetch(offsets, replica_id=replica_id))
        outside = [tp for tp, answer in answers.items() if answer == OUT_OF_RANGE]
        log_starts = self.connection.ask(list_log_starts(outside)) if outside else {}
        starts = {tp: start for tp, start in log_starts.items() if isinstance(start, int) and start != offsets[tp]}
        offsets |= starts
        return {tp: answer for tp, answer in answers.items() if tp not in starts}


def _joined(before: ReplicaState | str | None, answer: ReplicaState) -> ReplicaState:
    if not isinstance(before, ReplicaState):
        return answer
    return replace(
        answer,
        aborted=tuple(dict.fromkeys((*before.aborted, *answer.aborted))),
        records=before.records + answer.records,
        batches=before.batches + answer.batches,
    )
