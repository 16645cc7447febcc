"""Fetch: the records of a replica from an offset on, by the broker of the replica, without moving leadership.

A Fetch v11 with replica id -1, no session and current leader epoch -1 is answered by any broker that has a replica,
with the replica's own high watermark, last stable offset, log start offset and aborted transactions (KIP-392;
measured on 3.9.2 and 4.4.0).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import ApiVersionsRequest

from harness.errors import HarnessError
from harness.kafka_api.messages import Request, error_name, per_topic, request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.broker_files.segments.batches import Batch
    from harness.kafka_api.messages import TopicPartition

CONSUMER_REPLICA_ID = -1
DEBUG_REPLICA_ID = -2
"""FetchRequest's debugging consumer: reads to the log end instead of the high watermark."""

ANY_RACK: Final = "x"
"""Kafka passes racks to its replica selector, and has none unless it is configured. Redpanda answers a client
that names a rack from the replica that is asked, follower or not (read in its source).
"""

MAX_BYTES: Final = 64 << 20
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
FETCH_KEY: Final = 1
FETCH_VERSION: Final = 11
FETCH_VERSIONS: Final = (FETCH_VERSION, 12)
"""Later versions name topics by their ids."""
NO_LEADER_EPOCH, NO_SESSION = -1, -1


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
    version: int = FETCH_VERSION,
) -> Request[dict[TopicPartition, ReplicaState | str]]:
    """Return each replica's records from an offset on, or an error's name.

    ``max_bytes`` bounds the whole answer except the first batch, which is sent whatever its size (KIP-74). The
    debugging consumer has no isolation.
    """
    fields = {"current_leader_epoch": NO_LEADER_EPOCH, "partition_max_bytes": max_bytes}
    topics = per_topic(
        ((tp, {**fields, "partition": tp[1], "fetch_offset": offset}) for tp, offset in offsets.items()),
        name="topic",
    )
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
        topics=topics,
        rack_id=ANY_RACK,
    )


def _state(partition: Any) -> ReplicaState:
    return ReplicaState(
        log_start=partition.log_start_offset,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        aborted=tuple((a.producer_id, a.first_offset) for a in partition.aborted_transactions or ()),
        records=bytes(partition.records or b""),
    )


def choose_fetch_version() -> Request[int]:
    """Return the Fetch version to use with this broker (KIP-35). Raises `HarnessError` where it supports none."""

    def decode(answer: Any) -> int:
        ranges = [(api.min_version, api.max_version) for api in answer.api_keys if api.api_key == FETCH_KEY]
        for version in FETCH_VERSIONS:
            if any(least <= version <= most for least, most in ranges):
                return version
        raise HarnessError(f"it supports no version of Fetch that names topics: none of {FETCH_VERSIONS}")

    return request(ApiVersionsRequest, 0, decode)
