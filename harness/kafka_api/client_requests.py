"""Requests of clients: committed offsets of consumer groups, and batches and transactions of producers.

The leader of a group's partition of ``__consumer_offsets`` coordinates the group. Commits are those of a consumer that
manages its partitions itself: no member id, generation -1. One Produce is one batch; client libraries batch records by
the clock. A rejection raises `RetriableError` or `RefusedError`. Transactions have a version (KIP-890), by which a
broker knows the versions of the requests.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, Final

from kafka.protocol import producer as protocol
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest

from harness.kafka_api import TopicPartition, messages
from harness.kafka_api.messages import Request, acknowledged, numbers_per_topic, per_topic, request

NO_OFFSET: Final = -1
VERSION: Final = 7
"""Of both requests: OffsetFetch asks for stable offsets from here on (KIP-447)."""


@dataclass(frozen=True)
class CommittedOffsets:
    """A coordinator's answer about a group: the committed offsets, and the first error's name.

    With a pending transaction, and where stable offsets are asked for, ``error`` is ``UnstableOffsetCommitError``.
    """

    offsets: Mapping[TopicPartition, int]
    error: str | None = None


def committed_topics(offsets: Mapping[TopicPartition, int], metadata: str = "") -> list[dict[str, Any]]:
    """Return offsets as requests have them that commit."""
    fields = {"committed_leader_epoch": -1, "committed_metadata": metadata}
    return per_topic(
        (tp, {**fields, "partition_index": tp[1], "committed_offset": offset}) for tp, offset in offsets.items()
    )


def commit_offsets(
    group: str, offsets: Mapping[TopicPartition, int], metadata: str = "", retention_ms: int | None = None
) -> Request[None]:
    """Commit offsets of a group without members. Raises `RetriableError` where the broker does not coordinate it yet.

    ``retention_ms``: until the coordinator may delete them; None: the brokers' ``offsets.retention.minutes``.
    """
    retention = {} if retention_ms is None else {"retention_time_ms": retention_ms}
    return acknowledged(
        OffsetCommitRequest,
        4 if retention else VERSION,  # From version 5 on, a commit has no separate retention (KIP-211).
        f"offsets of group {group} cannot be committed",
        partitions=len(offsets),
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=committed_topics(offsets, metadata),
        **retention,
    )


def fetch_offsets(
    group: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
) -> Request[CommittedOffsets]:
    """Return the offsets that a group would continue at. Raises `RefusedError` for an answer without a partition.

    ``partitions``: None for all that the group has an offset of.
    """
    asked = list(partitions or ())

    def decode(answer: Any) -> CommittedOffsets:
        if not answer.error_code:
            messages.raise_if_incomplete(answer, f"offsets of group {group}", len(asked))
        offsets = {tp: p.committed_offset for tp, p in messages.partitions_in(answer.topics) if not p.error_code}
        errors = [why for _, why in messages.errors_in(answer.to_dict())]
        return CommittedOffsets({tp: n for tp, n in offsets.items() if n != NO_OFFSET}, *errors[:1])

    topics = None if partitions is None else numbers_per_topic(asked)
    return request(OffsetFetchRequest, VERSION, decode, group_id=group, topics=topics, require_stable=require_stable)


def fetch_offsets_of_groups(
    groups: Mapping[str, Iterable[TopicPartition]], *, require_stable: bool
) -> Request[dict[str, dict[TopicPartition, int | str]]]:
    """Return offsets, `NO_OFFSET` or an error's name by group; none of a group that the broker does not coordinate."""
    return request(
        OffsetFetchRequest,
        8,  # the first with several groups in a request (KIP-709)
        lambda answer: {
            group.group_id: messages.results_in(group.topics, attrgetter("committed_offset"))
            for group in answer.groups
            if not group.error_code
        },
        groups=[{"group_id": group, "topics": numbers_per_topic(tps)} for group, tps in groups.items()],
        require_stable=require_stable,
    )


def list_groups() -> Request[list[str]]:
    """Return the groups that a broker coordinates and this user may describe. Raises `HarnessError` for a refusal."""

    def decode(answer: Any) -> list[str]:
        messages.raise_for_errors(answer, "groups cannot be listed")
        return [group.group_id for group in answer.groups]

    return request(ListGroupsRequest, 3, decode)


def delete_offset(group: str, partition: TopicPartition) -> Request[None]:
    """Delete the committed offset of a partition."""
    topics = per_topic([(partition, {"partition_index": partition[1]})])
    action = f"the offset of group {group} cannot be deleted"
    return acknowledged(OffsetDeleteRequest, 0, action, group_id=group, topics=topics)


PRODUCE, END, OFFSET_COMMIT = {1: 9, 2: 12}, {1: 3, 2: 5}, {1: 3, 2: 5}
"""Versions of requests by the version of transactions."""


@dataclass(frozen=True)
class ProducerIdentity:
    """The fields of requests that identify a producer. ``transactional_id``: None without transactions."""

    transactional_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1


def init_producer_id(
    transactional_id: str | None, timeout_ms: int, known: ProducerIdentity | None = None
) -> Request[ProducerIdentity]:
    """Return a producer's id, or a higher epoch; an open transaction is aborted first. For its coordinator.

    ``known``: the producer continues after an error, unless it was fenced (KIP-360).
    """

    def decode(answer: Any) -> ProducerIdentity:
        messages.raise_for_errors(answer, "a producer id")
        return ProducerIdentity(transactional_id, answer.producer_id, answer.producer_epoch)

    producer = asdict(known or ProducerIdentity(transactional_id))
    return request(protocol.InitProducerIdRequest, 4, decode, transaction_timeout_ms=timeout_ms, **producer)


def produce(
    partition: TopicPartition, batch: bytes, transactional_id: str | None, transaction_version: int = 1
) -> Request[None]:
    """Write a batch that the whole ISR acknowledges. For the partition's leader."""
    return acknowledged(
        protocol.ProduceRequest,
        PRODUCE[transaction_version],
        "a batch",
        partitions=1,
        accepted=46,  # DUPLICATE_SEQUENCE_NUMBER: a retry of a batch that was written at the first attempt
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=5_000,
        topic_data=per_topic([(partition, {"index": partition[1], "records": batch})], partitions="partition_data"),
    )


def add_partition(producer: ProducerIdentity, partition: TopicPartition) -> Request[None]:
    """Add a partition to the producer's transaction, which begins it. For its coordinator."""
    fields = {f"v3_and_below_{name}": value for name, value in asdict(producer).items()}
    topics = numbers_per_topic([partition], partitions="partitions")
    return acknowledged(protocol.AddPartitionsToTxnRequest, 3, "a transaction", v3_and_below_topics=topics, **fields)


def add_offsets(producer: ProducerIdentity, group: str) -> Request[None]:
    """Add the group's partition of ``__consumer_offsets`` to the producer's transaction. For its coordinator."""
    return acknowledged(protocol.AddOffsetsToTxnRequest, 3, "a transaction", group_id=group, **asdict(producer))


def commit_in_transaction(
    producer: ProducerIdentity, group: str, offsets: Mapping[TopicPartition, int], transaction_version: int = 1
) -> Request[None]:
    """Commit a group's offsets in the producer's transaction. For the group's coordinator."""
    version, fields = OFFSET_COMMIT[transaction_version], {"topics": committed_topics(offsets), **asdict(producer)}
    action = f"offsets of group {group}"
    return acknowledged(
        protocol.TxnOffsetCommitRequest, version, action, partitions=len(offsets), group_id=group, **fields
    )


def end_transaction(
    producer: ProducerIdentity, *, is_commit: bool, transaction_version: int = 1
) -> Request[ProducerIdentity]:
    """End the producer's transaction; its markers are written after the answer. Return the later identity."""

    def decode(answer: Any) -> ProducerIdentity:
        messages.raise_for_errors(answer, "the end of a transaction")
        if transaction_version == 1:
            return producer
        return ProducerIdentity(producer.transactional_id, answer.producer_id, answer.producer_epoch)

    return request(protocol.EndTxnRequest, END[transaction_version], decode, committed=is_commit, **asdict(producer))
