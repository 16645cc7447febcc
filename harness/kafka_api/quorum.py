"""The metadata log from the active controller: Fetch and FetchSnapshot on the controller listener (KIP-595, KIP-630).

A request without a replica id reads as an observer does, and changes nothing (``KafkaRaftClient``). It needs
ClusterAction on the cluster (``ControllerApis.handleFetch``, ``handleFetchSnapshot``). The active controller answers
only requests with the current epoch of the quorum. Other refusals have that epoch and the leader's id; from version 17
of Fetch on, its address too (KIP-853). Only versions that name topics by their ids are answered.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import FetchRequest

from harness.broker_files.internal_topics.decode import CLUSTER_METADATA
from harness.errors import HarnessError
from harness.kafka_api.address import Address
from harness.kafka_api.fetch import MAX_BYTES, NO_SESSION
from harness.kafka_api.messages import Request, error_name, errors_in, request

METADATA_TOPIC_ID: Final = UUID(int=1)
"""``Uuid.METADATA_TOPIC_ID``."""
FETCH_VERSIONS: Final = (17, 13)
FORMATS: Final = "harness.kafka_api.formats"
"""The package of formats that kafka-python does not have; it is untyped, and reads them by the names of classes."""


class FetchSnapshotRequest(ApiMessage, load_json=FORMATS):  # type: ignore[call-arg, misc]
    """A request for a part of a snapshot; kafka-python does not have it."""


class FetchSnapshotResponse(ApiMessage, load_json=FORMATS):  # type: ignore[call-arg, misc]
    """The answer to `FetchSnapshotRequest`."""


class LogPosition(NamedTuple):
    """An offset, and the leader epoch of the record before it. A snapshot's id is the position after its records."""

    offset: int
    epoch: int


LOG_START: Final = LogPosition(0, 0)


@dataclass(frozen=True)
class MetadataAnswer:
    """A controller's answer. With an ``error``, a name, only ``leader``, ``epoch`` and ``address`` have a meaning.

    ``leader`` and ``epoch``: of the quorum, -1 if unknown. ``address``: of the leader; None if unknown. ``snapshot``:
    the newest, for a position that the log does not have any more.
    """

    error: str | None
    leader: int
    epoch: int
    address: Address | None
    log_start: int
    high_watermark: int
    snapshot: LogPosition | None
    records: bytes


def fetch_metadata(
    position: LogPosition, *, quorum_epoch: int, cluster_id: str, version: int
) -> Request[MetadataAnswer]:
    """Return the records from a position on, or an error with the quorum's epoch. Raises `HarnessError` if refused."""

    def decode(answer: Any) -> MetadataAnswer:
        partition = _partition_of(answer.responses, answer)
        current, snapshot = partition.current_leader, partition.snapshot_id
        nodes = [Address(node.host, node.port) for node in answer.node_endpoints or ()]
        return MetadataAnswer(
            error_name(partition.error_code) if partition.error_code else None,
            leader=current.leader_id if current else -1,
            epoch=current.leader_epoch if current else -1,
            address=nodes[0] if nodes else None,
            log_start=partition.log_start_offset,
            high_watermark=partition.high_watermark,
            snapshot=LogPosition(snapshot.end_offset, snapshot.epoch) if snapshot and snapshot.epoch >= 0 else None,
            records=bytes(partition.records or b""),
        )

    partition = {
        "partition": 0,
        "current_leader_epoch": quorum_epoch,
        "fetch_offset": position.offset,
        "last_fetched_epoch": position.epoch,
        "partition_max_bytes": MAX_BYTES,
    }
    return request(
        FetchRequest,
        version,
        decode,
        cluster_id=cluster_id,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=MAX_BYTES,
        session_epoch=NO_SESSION,
        topics=[{"topic_id": METADATA_TOPIC_ID, "partitions": [partition]}],
    )


class SnapshotPart(NamedTuple):
    """Bytes of a snapshot, and the size of the whole."""

    data: bytes
    size_bytes: int


def fetch_snapshot(snapshot: LogPosition, at: int, *, quorum_epoch: int, cluster_id: str) -> Request[SnapshotPart]:
    """Return the bytes of a snapshot from byte ``at`` on. Raises `HarnessError` for any error."""

    def decode(answer: Any) -> SnapshotPart:
        partition = _partition_of(answer.topics, answer)
        if partition.error_code:
            raise HarnessError(f"snapshot {snapshot.offset}: {error_name(partition.error_code)}")
        return SnapshotPart(bytes(partition.unaligned_records), partition.size)

    partition = {
        "partition": 0,
        "current_leader_epoch": quorum_epoch,
        "snapshot_id": {"end_offset": snapshot.offset, "epoch": snapshot.epoch},
        "position": at,
    }
    topics = [{"name": CLUSTER_METADATA, "partitions": [partition]}]
    return request(FetchSnapshotRequest, 0, decode, cluster_id=cluster_id, max_bytes=MAX_BYTES, topics=topics)


def _partition_of(topics: Any, answer: Any) -> Any:
    for topic in topics:
        for partition in topic.partitions:
            return partition
    raise HarnessError(", ".join(why for _, why in errors_in(answer.to_dict())) or "an empty answer")
