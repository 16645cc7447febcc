"""Controllers that serve a literal metadata log, as ``KafkaRaftClient`` answers observers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka import errors
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsResponse
from metadata_logs import Written, encode_log, encode_snapshot

from fakes.clock import TickingClock
from fakes.connections import AnsweringStream
from harness.broker_files.segments.batches import iter_batches
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ClusterClient
from harness.kafka_api.messages import message
from harness.kafka_api.quorum import METADATA_TOPIC_ID, FetchSnapshotResponse

CLUSTER_ID, EPOCH, LEADER = "the-cluster", 5, 3
FENCED, NOT_LEADER = errors.FencedLeaderEpochError.errno, errors.NotLeaderForPartitionError.errno
UNKNOWN_TOPIC_ID, DENIED = errors.UnknownTopicIdError.errno, errors.ClusterAuthorizationFailedError.errno
OTHER_CLUSTER = 104
PART_BYTES = 100


@dataclass
class FakeQuorum:
    """Nodes by port. Port `LEADER` is the active controller, other ``controllers`` know it, other ports are brokers.

    ``log``: from ``first_offset`` on, each record in a batch of its own; ``snapshots``: by end offset, all of epoch
    ``snapshot_epoch``. ``high_watermark``: by default the end of the log. ``denied``: no user has ClusterAction.
    ``names_leader``: whether refusals have the leader's address, as from Fetch 17 on. ``moves``: how often the start
    of the log moves beyond the offset that is asked for.
    """

    log: Sequence[Written]
    first_offset: int = 0
    snapshots: Mapping[int, Sequence[Written]] = field(default_factory=dict)
    snapshot_epoch: int = 2
    high_watermark: int | None = None
    controllers: tuple[int, ...] = (1, 2, 3)
    denied: bool = False
    names_leader: bool = True
    moves: int = 0
    asked: list[tuple[int, str, int]] = field(default_factory=list)

    def client(self) -> ClusterClient:
        """Return a client whose connections end here."""
        return ClusterClient(list, clock=TickingClock(), dial=self._dial)

    def _dial(self, address: Address, *, timeout_s: float) -> AnsweringStream:
        assert timeout_s > 0
        if address.port > 100:
            raise ConnectionRefusedError(111, "Connection refused")
        return AnsweringStream(lambda request: self._answer(address.port, request))

    def _answer(self, port: int, request: Any) -> Any:
        name = type(request).__name__
        if name == "ApiVersionsRequest":
            api = {"api_key": 1, "min_version": 4, "max_version": 17}
            return message(ApiVersionsResponse, 0, api_keys=[api])
        is_fetch = name == "FetchRequest"
        (topic,) = request.topics
        (partition,) = topic.partitions
        self.asked.append((port, name, partition.fetch_offset if is_fetch else partition.position))
        kind, version = (FetchResponse, 17) if is_fetch else (FetchSnapshotResponse, 0)
        parts = "responses" if is_fetch else "topics"
        if self.denied or request.cluster_id != CLUSTER_ID:
            return message(kind, version, error_code=DENIED if self.denied else OTHER_CLUSTER, **{parts: []})
        if is_fetch:
            assert topic.topic_id == METADATA_TOPIC_ID
            return self._fetched(port, partition)
        return self._snapshot(partition)

    def _fetched(self, port: int, asked: Any) -> Any:
        end = self.first_offset + len(self.log)
        oldest, newest = min(self.snapshots, default=0), max(self.snapshots, default=0)
        answer: dict[str, Any] = {
            "partition_index": 0, "error_code": 0, "log_start_offset": self.first_offset, "records": b"",
            "high_watermark": end if self.high_watermark is None else self.high_watermark,
            "current_leader": {"leader_id": LEADER, "leader_epoch": EPOCH},
        }  # fmt: skip
        knows_leader = self.names_leader and port in self.controllers
        nodes = [{"node_id": LEADER, "host": "c", "port": LEADER, "rack": None}] if knows_leader else []
        if port not in self.controllers:
            answer |= {"error_code": UNKNOWN_TOPIC_ID, "current_leader": {"leader_id": -1, "leader_epoch": -1}}
        elif asked.current_leader_epoch != EPOCH or port != LEADER:
            answer["error_code"] = FENCED if asked.current_leader_epoch != EPOCH else NOT_LEADER
        elif self.snapshots and (
            asked.fetch_offset < max(self.first_offset, 1)
            or asked.last_fetched_epoch < self.snapshot_epoch
            or (asked.fetch_offset == oldest == self.first_offset and asked.last_fetched_epoch != self.snapshot_epoch)
        ):
            answer["snapshot_id"] = {"end_offset": newest, "epoch": self.snapshot_epoch}
        elif asked.fetch_offset > end:
            answer["diverging_epoch"] = {"epoch": asked.last_fetched_epoch, "end_offset": end}
        elif self.moves and asked.fetch_offset > 1:
            self.moves -= 1
            answer["snapshot_id"] = {"end_offset": end, "epoch": self.snapshot_epoch}
        else:
            data = encode_log(self.log, first_offset=self.first_offset)
            whole = [b for b in iter_batches(data, source="a fake") if b.last_offset >= asked.fetch_offset]
            last = whole[: max(len(whole) // 2, 1)]
            if last:
                answer["records"] = data[last[0].position : last[-1].position + last[-1].size_bytes]
        return message(FetchResponse, 17, responses=[{"topic_id": METADATA_TOPIC_ID, "partitions": [answer]}],
                       node_endpoints=nodes)  # fmt: skip

    def _snapshot(self, asked: Any) -> Any:
        data = encode_snapshot(self.snapshots[asked.snapshot_id.end_offset])
        assert asked.snapshot_id.epoch == self.snapshot_epoch
        answer = {
            "index": 0, "error_code": 0, "size": len(data), "position": asked.position,
            "snapshot_id": {"end_offset": asked.snapshot_id.end_offset, "epoch": self.snapshot_epoch},
            "unaligned_records": data[asked.position : asked.position + PART_BYTES],
        }  # fmt: skip
        return message(FetchSnapshotResponse, 0, topics=[{"name": "__cluster_metadata", "partitions": [answer]}])
