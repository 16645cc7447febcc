"""Requests of a producer: one Produce is one batch, and a transaction is begun and ended explicitly.

Client libraries batch records by the clock; here, what brokers store follows from requests alone. All raise
`RetriableError` or `RefusedError` for a rejection. Transactions have a version (KIP-890), by which a broker knows the
versions of the requests.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

from harness.kafka_api import TopicPartition
from harness.kafka_api.groups import committed_topics
from harness.kafka_api.messages import Request, acknowledged, numbers_per_topic, per_topic, raise_for_errors, request

TIMEOUT_MS: Final = 5_000
PRODUCE, END, OFFSET_COMMIT = {1: 9, 2: 12}, {1: 3, 2: 5}, {1: 3, 2: 5}
"""Versions of requests by the version of transactions."""


@dataclass(frozen=True)
class ProducerIdentity:
    """The fields of requests that identify a producer. ``transactional_id``: None without transactions."""

    transactional_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1


def init_producer_id(transactional_id: str | None, timeout_ms: int) -> Request[ProducerIdentity]:
    """Return a producer's id, or a higher epoch; an open transaction is aborted first. For its coordinator."""

    def decode(answer: Any) -> ProducerIdentity:
        raise_for_errors(answer, "a producer id")
        return ProducerIdentity(transactional_id, answer.producer_id, answer.producer_epoch)

    producer = asdict(ProducerIdentity(transactional_id))
    return request(InitProducerIdRequest, 4, decode, transaction_timeout_ms=timeout_ms, **producer)


def produce(
    partition: TopicPartition, batch: bytes, transactional_id: str | None, transaction_version: int = 1
) -> Request[None]:
    """Write a batch that the whole ISR acknowledges. For the partition's leader."""
    return acknowledged(
        ProduceRequest,
        PRODUCE[transaction_version],
        "a batch",
        accepted=46,  # DUPLICATE_SEQUENCE_NUMBER: a retry of a batch that was written at the first attempt
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=per_topic([(partition, {"index": partition[1], "records": batch})], partitions="partition_data"),
    )


def add_partition(producer: ProducerIdentity, partition: TopicPartition) -> Request[None]:
    """Add a partition to the producer's transaction, which begins it. For its coordinator."""
    fields = {f"v3_and_below_{name}": value for name, value in asdict(producer).items()}
    topics = numbers_per_topic([partition], partitions="partitions")
    return acknowledged(AddPartitionsToTxnRequest, 3, "a transaction", v3_and_below_topics=topics, **fields)


def add_offsets(producer: ProducerIdentity, group: str) -> Request[None]:
    """Add the group's partition of ``__consumer_offsets`` to the producer's transaction. For its coordinator."""
    return acknowledged(AddOffsetsToTxnRequest, 3, "a transaction", group_id=group, **asdict(producer))


def commit_in_transaction(
    producer: ProducerIdentity, group: str, offsets: Mapping[TopicPartition, int], transaction_version: int = 1
) -> Request[None]:
    """Commit a group's offsets in the producer's transaction. For the group's coordinator."""
    version, fields = OFFSET_COMMIT[transaction_version], {"topics": committed_topics(offsets), **asdict(producer)}
    return acknowledged(TxnOffsetCommitRequest, version, f"offsets of group {group}", group_id=group, **fields)


def end_transaction(
    producer: ProducerIdentity, *, is_commit: bool, transaction_version: int = 1
) -> Request[ProducerIdentity]:
    """End the producer's transaction; its markers are written after the answer. Return the later identity."""

    def decode(answer: Any) -> ProducerIdentity:
        raise_for_errors(answer, "the end of a transaction")
        if transaction_version == 1:
            return producer
        return ProducerIdentity(producer.transactional_id, answer.producer_id, answer.producer_epoch)

    return request(EndTxnRequest, END[transaction_version], decode, committed=is_commit, **asdict(producer))
