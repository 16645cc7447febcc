"""Transactions: the open ones of a replica, those that a coordinator has, and the ABORT marker of a hanging one.

Brokers silently leave out transactional ids on which a user has no right to Describe (KIP-664).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.producer import WriteTxnMarkersRequest

from harness.broker_files.side_files.producer_state import ProducerEntry
from harness.kafka_api import TopicPartition
from harness.kafka_api.messages import Request, acknowledged, error_name, numbers_per_topic, request, results_in

ENDING_STATES: Final = ("PrepareCommit", "PrepareAbort")


@dataclass(frozen=True)
class OpenTransaction:
    """An open transaction of a replica.

    ``last_time_ms``: of the producer's last batch; ``coordinator_epoch``: of its last marker. -1 if they are unknown.
    """

    producer_id: int
    producer_epoch: int
    first_offset: int
    last_time_ms: int = field(default=-1, compare=False)
    coordinator_epoch: int = field(default=-1, compare=False)


OpenTransactions: TypeAlias = "tuple[OpenTransaction, ...] | None"
"""The open transactions of a replica; None where its broker does not list them."""


def describe_producers(
    partitions: Iterable[TopicPartition],
) -> Request[dict[TopicPartition, tuple[ProducerEntry, ...] | str]]:
    """Return the producers of a broker's replicas, or an error's name (KIP-664); followers answer, too.

    No broker reports the offsets of a producer's last batch.
    """
    return request(
        DescribeProducersRequest,
        0,
        lambda answer: results_in(answer.topics, lambda p: tuple(map(_producer, p.active_producers))),
        topics=numbers_per_topic(partitions),
    )


def _producer(producer: Any) -> ProducerEntry:
    return ProducerEntry(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        timestamp_ms=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_first_offset=None if producer.current_txn_start_offset < 0 else producer.current_txn_start_offset,
    )


def open_transactions(producers: tuple[ProducerEntry, ...] | str) -> OpenTransactions:
    """Return the open transactions of these producers; None for an error."""
    if isinstance(producers, str):
        return None
    return tuple(
        OpenTransaction(p.producer_id, p.producer_epoch, first_offset, p.timestamp_ms, p.coordinator_epoch)
        for p in producers
        if (first_offset := p.current_txn_first_offset) is not None
    )


def list_transactions(states: Sequence[str] = (), producer_ids: Iterable[int] = ()) -> Request[tuple[str, ...] | str]:
    """Return the ids that a broker coordinates, in these states and of these producers (() for any), or an error."""

    def decode(answer: Any) -> tuple[str, ...] | str:
        if answer.error_code:
            return error_name(answer.error_code)
        return tuple(state.transactional_id for state in answer.transaction_states)

    filters = {"state_filters": list(states), "producer_id_filters": list(producer_ids)}
    return request(ListTransactionsRequest, 0, decode, **filters)


@dataclass(frozen=True)
class TransactionDescription:
    """A producer's transaction, as its coordinator describes it. ``start_time_ms``: -1 without one.

    ``partitions``: while the transaction is being ended, those that have no marker yet.
    """

    coordinator: int
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    start_time_ms: int
    partitions: frozenset[TopicPartition]
    timeout_ms: int = 0


def describe_transactions(
    transactional_ids: Iterable[str], coordinator: int
) -> Request[dict[str, TransactionDescription | str]]:
    """Return the transactions by their ids, or an error's name. ``coordinator``: the broker that is asked."""

    def decode(answer: Any) -> dict[str, TransactionDescription | str]:
        return {
            state.transactional_id: error_name(state.error_code)
            if state.error_code
            else TransactionDescription(
                coordinator=coordinator,
                transactional_id=state.transactional_id,
                state=state.transaction_state,
                producer_id=state.producer_id,
                producer_epoch=state.producer_epoch,
                start_time_ms=state.transaction_start_time_ms,
                partitions=frozenset((topic.topic, number) for topic in state.topics for number in topic.partitions),
                timeout_ms=state.transaction_timeout_ms,
            )
            for state in answer.transaction_states
        }

    return request(DescribeTransactionsRequest, 0, decode, transactional_ids=list(transactional_ids))


STRICT: Final = 2
"""The version of WriteTxnMarkers, and of transactions, with strict epochs: a marker's must be a new one (KIP-1228)."""


def abort_transaction(
    partition: TopicPartition, transaction: OpenTransaction, coordinator_epoch: int | None = None, *, version: int = 1
) -> Request[None]:
    """Write an ABORT marker, as ``kafka-transactions.sh abort`` does (KIP-664). For the partition's leader.

    ``coordinator_epoch``: of the marker. By default it is the epoch of the producer's last marker, because brokers
    refuse a lower epoch, and 0 without such a marker (`AbortTransactionHandler`). ``version``: 1, or `STRICT`.
    """
    known_epoch = max(transaction.coordinator_epoch, 0)
    marker = {
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "transaction_result": False,
        "topics": numbers_per_topic([partition]),
        "coordinator_epoch": known_epoch if coordinator_epoch is None else coordinator_epoch,
    } | ({"transaction_version": STRICT} if version == STRICT else {})

    action = f"the transaction in {partition[0]}-{partition[1]} cannot be aborted"
    return acknowledged(WriteTxnMarkersRequest, version, action, markers=[marker])
