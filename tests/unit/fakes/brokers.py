"""Fake brokers for read-only requests: the content of their replicas is literal, and changes by script."""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, TypeVar

import kafka.errors
from kafka.protocol import admin
from kafka.protocol.consumer import FetchResponse, ListOffsetsResponse, OffsetFetchResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataResponse
from kafka.protocol.producer import WriteTxnMarkersResponse

from fakes.clock import TickingClock
from harness.audit.live.cluster import AuditedCluster
from harness.broker_files.segments.batches import iter_batches
from harness.host.clock import Clock
from harness.kafka_api import TopicPartition, connection, transactions
from harness.kafka_api.address import Address
from harness.kafka_api.messages import Request, message, numbers_per_topic, per_topic
from harness.kafka_api.metadata import ClusterState, PartitionState, TopicState

T = TypeVar("T")

OUT_OF_RANGE = kafka.errors.OffsetOutOfRangeError.errno
NOT_LEADER = kafka.errors.NotLeaderForPartitionError.errno
LATEST, EARLIEST = -1, -2
READ_COMMITTED = 1
TP = ("t", 0)


@dataclass(frozen=True)
class Held:
    """A replica. ``log_end`` is the high watermark where none is given; ``batches`` are whole, in order."""

    high_watermark: int
    last_stable_offset: int
    log_start: int = 0
    log_end: int | None = None
    open: tuple[transactions.OpenTransaction, ...] = ()
    batches: tuple[bytes, ...] = ()
    aborted: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> int:
        return self.high_watermark if self.log_end is None else self.log_end


@dataclass
class FakeBroker:
    """Answers as Kafka's brokers do, or refuses what Redpanda's followers refuse.

    ``states``: each of its partitions' replica, one after the other: a question for the log end brings the next one.
    ``coordinators``: who leads each partition of ``__transaction_state``; nothing where that may not be seen.
    ``growth_bytes``: by how much its replicas grow until they are asked for their sizes (again).
    ``groups``: the committed offsets of the groups that it coordinates; None where the user may not describe a group.
    ``dies_after``: how many requests it answers before it is gone.
    """

    states: dict[tuple[str, int], list[Held]]
    words: list[transactions.TransactionDescription] = field(default_factory=list)
    coordinators: tuple[int, ...] = ()
    is_redpanda_follower: bool = False
    sizes: dict[tuple[str, int], int] = field(default_factory=dict)
    fetch_versions: tuple[int, int] = (4, 17)
    groups: dict[str, dict[tuple[str, int], int] | None] = field(default_factory=dict)
    dies_after: int | None = None
    error: int = 0
    listing_error: int = 0
    asked: list[Any] = field(default_factory=list)
    answer_bytes: int = 1 << 20
    adding: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    growth_bytes: int = 0
    by_time: dict[int, int] = field(default_factory=dict)
    now: dict[tuple[str, int], Held] = field(default_factory=dict)

    def ask(self, request: Request[T]) -> T:
        """Answer as `harness.kafka_api.connection.Connection`."""
        return request.decode(self.call(request.message))

    def call(self, request: Any) -> Any:
        """Answer as `harness.kafka_api.connection.SocketStream`."""
        if self.dies_after is not None and len(self.asked) >= self.dies_after:
            raise ConnectionResetError("gone")
        self.asked.append(request)
        name = type(request).__name__
        return getattr(self, f"_{name.removesuffix('Request').lower()}")(request)

    def close(self) -> None:
        """Nothing is open."""

    def named(self, kind: str) -> list[Any]:
        return [request for request in self.asked if type(request).__name__ == f"{kind}Request"]

    def _apiversions(self, _request: Any) -> Any:
        low, high = self.fetch_versions
        return message(ApiVersionsResponse, 0, api_keys=[{"api_key": 1, "min_version": low, "max_version": high}])

    def _listoffsets(self, request: Any) -> Any:
        def answer(partition: tuple[str, int], timestamp: int) -> Any:
            states = self.states[partition]
            if timestamp == LATEST:
                self.now[partition] = states.pop(0) if len(states) > 1 else states[0]
            held = self._held(partition)
            offset = {LATEST: held.end, EARLIEST: held.log_start}.get(timestamp, self.by_time.get(timestamp, -1))
            code = NOT_LEADER if self.is_redpanda_follower else 0
            return {"partition_index": partition[1], "error_code": code, "offset": offset}

        wanted = [((t.name, p.partition_index), p.timestamp) for t in request.topics for p in t.partitions]
        return message(ListOffsetsResponse, 4, topics=per_topic((tp, answer(tp, at)) for tp, at in wanted))

    def _held(self, partition: tuple[str, int]) -> Held:
        return self.now.get(partition, self.states[partition][0])

    def _fetch(self, request: Any) -> Any:
        """Answer with at least one batch, and with further ones, also of other partitions, that fit (KIP-74)."""
        total = 0

        def answer(topic: str, wanted: Any) -> Any:
            nonlocal total
            held = self._held((topic, wanted.partition))
            code = self.error or (0 if held.log_start <= wanted.fetch_offset <= held.end else OUT_OF_RANGE)
            is_committed = request.isolation_level == READ_COMMITTED
            until = held.last_stable_offset if is_committed else held.high_watermark
            served = b""
            for batch in held.batches:
                (header,) = iter_batches(batch, source="a stand-in")
                if header.last_offset >= wanted.fetch_offset and header.base_offset < until:
                    if total and total + len(batch) > min(request.max_bytes, self.answer_bytes):
                        break
                    served += batch
                    total += len(batch)
            return fetched_partition(wanted.partition, held, served, code=code, has_aborted=is_committed)

        return fetched(((t.topic, p.partition), answer(t.topic, p)) for t in request.topics for p in t.partitions)

    def _describeproducers(self, request: Any) -> Any:
        code = NOT_LEADER if self.is_redpanda_follower else 0
        wanted = [(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
        return described((tp, described_partition(tp[1], self._held(tp), code=code)) for tp in wanted)

    def _metadata(self, request: Any) -> Any:
        (wanted,) = request.topics
        partitions = [
            {"partition_index": number, "leader_id": leader, "replica_nodes": [], "isr_nodes": []}
            for number, leader in enumerate(self.coordinators)
        ]
        code = 0 if partitions else kafka.errors.TopicAuthorizationFailedError.errno
        topics = [{"name": wanted.name, "error_code": code, "partitions": partitions}]
        return message(MetadataResponse, 8, brokers=[], topics=topics)

    def _listtransactions(self, request: Any) -> Any:
        filters = request.producer_id_filters
        words = [word for word in self.words if not filters or word.producer_id in filters]
        states = [{"transactional_id": word.transactional_id} for word in words]
        return message(admin.ListTransactionsResponse, 0, error_code=self.error, transaction_states=states)

    def _describetransactions(self, request: Any) -> Any:
        states = [
            {
                "transactional_id": word.transactional_id, "transaction_state": word.state,
                "transaction_start_time_ms": word.start_time_ms, "transaction_timeout_ms": word.timeout_ms,
                "producer_id": word.producer_id, "producer_epoch": word.producer_epoch,
                "topics": numbers_per_topic(word.partitions, name="topic", partitions="partitions"),
            }
            for word in self.words if word.transactional_id in request.transactional_ids
        ]  # fmt: skip
        return message(admin.DescribeTransactionsResponse, 0, transaction_states=states)

    def _listgroups(self, _request: Any) -> Any:
        groups = [{"group_id": group, "protocol_type": "consumer"} for group in self.groups]
        return message(admin.ListGroupsResponse, 3, error_code=self.listing_error, groups=groups)

    def _offsetfetch(self, request: Any) -> Any:
        def answer(wanted: Any) -> dict[str, Any]:
            offsets = self.groups[wanted.group_id]
            code = kafka.errors.GroupAuthorizationFailedError.errno if offsets is None else 0
            tps = [(topic.name, number) for topic in wanted.topics for number in topic.partition_indexes]
            answers = [{"partition_index": tp[1], "committed_offset": (offsets or {}).get(tp, -1)} for tp in tps]
            topics = per_topic(zip(tps, answers, strict=True))
            return {"group_id": wanted.group_id, "topics": topics, "error_code": code}

        return message(OffsetFetchResponse, 8, groups=[answer(wanted) for wanted in request.groups])

    def _writetxnmarkers(self, request: Any) -> Any:
        markers = [{"producer_id": marker.producer_id, "topics": []} for marker in request.markers]
        return message(WriteTxnMarkersResponse, 1, markers=markers)

    def _listpartitionreassignments(self, _request: Any) -> Any:
        topics = per_topic(
            (tp, {"partition_index": tp[1], "adding_replicas": brokers, "removing_replicas": []})
            for tp, brokers in self.adding.items()
        )
        return message(admin.ListPartitionReassignmentsResponse, 0, error_code=self.listing_error, topics=topics)

    def _describelogdirs(self, _request: Any) -> Any:
        self.sizes = {tp: size + self.growth_bytes for tp, size in self.sizes.items()}
        topics = per_topic((tp, {"partition_index": tp[1], "partition_size": n}) for tp, n in self.sizes.items())
        return message(admin.DescribeLogDirsResponse, 1, results=[{"topics": topics}])


def fetched(partitions: Iterable[tuple[TopicPartition, Any]]) -> Any:
    """Return a Fetch response."""
    return message(FetchResponse, 11, responses=per_topic(partitions, name="topic"))


def described(partitions: Iterable[tuple[TopicPartition, Any]]) -> Any:
    """Return a DescribeProducers response."""
    return message(admin.DescribeProducersResponse, 0, topics=per_topic(partitions))


def fetched_partition(number: int, held: Held, records: bytes, *, code: int, has_aborted: bool) -> Any:
    """Return a partition of a Fetch response."""
    aborted = [{"producer_id": producer, "first_offset": offset} for producer, offset in held.aborted]
    return {
        "partition_index": number, "error_code": code, "log_start_offset": held.log_start, "records": records,
        "high_watermark": held.high_watermark, "last_stable_offset": held.last_stable_offset,
        "aborted_transactions": aborted if has_aborted else None,
    }  # fmt: skip


def described_partition(number: int, held: Held, *, code: int) -> Any:
    """Return a partition of a DescribeProducers response."""
    producers = [
        {"producer_id": producer, "producer_epoch": epoch, "last_sequence": 0, "current_txn_start_offset": offset,
         "last_timestamp": last_ms, "coordinator_epoch": coordinator_epoch}
        for producer, epoch, offset, last_ms, coordinator_epoch in map(astuple, held.open)
    ]  # fmt: skip
    return {"partition_index": number, "error_code": code, "active_producers": producers}


def audited(
    brokers: dict[int, FakeBroker], *, settings: dict[str, str] | None = None, absent: tuple[int, ...] = (),
    isr: tuple[int, ...] | None = None, clock: Clock | None = None, addresses: Mapping[int, Address] | None = None,
) -> AuditedCluster:  # fmt: skip
    """Return a cluster with partition `TP` on all of these brokers and the absent ones, led by the first."""
    replicas = (*brokers, *absent)
    partition = PartitionState(leader=replicas[0], replicas=replicas, isr=tuple(brokers) if isr is None else isr)
    addresses = addresses or {broker: Address("127.0.0.1", 9000 + broker) for broker in brokers}
    state = ClusterState("id", addresses, {TP[0]: TopicState(TP[0], {TP[1]: partition})})
    return audited_cluster(state, brokers, {} if settings is None else {TP[0]: settings}, clock)


def audited_cluster(
    state: ClusterState, brokers: Mapping[int, Any], settings: Any = None, clock: Clock | None = None
) -> AuditedCluster:
    """Return a cluster with these brokers, which answer as `harness.kafka_api.connection.SocketStream`."""
    by_address = {address: brokers[broker] for broker, address in state.brokers.items()}
    client = connection.ClusterClient(
        lambda: list(by_address), clock=clock or TickingClock(), dial=lambda address, **_: by_address[address]
    )
    client.remember([state])
    return AuditedCluster(client, state, settings or {})
