"""The transactions of producers, by their coordinators: ListTransactions and DescribeTransactions (KIP-664).

Every broker is asked, as each one lists the transactions that it coordinates. FindCoordinator is not used: it would
create ``__transaction_state`` where that topic is missing. A user needs Describe on the transactional ids; brokers
silently leave out the ids that the user may not see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import kafka.errors
from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest

from harness.broker_files.internal_topics.decode import TRANSACTION_STATE
from harness.escape import escape
from harness.kafka_api.admin import metadata_request

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.audit.live.connection import ClusterClient
    from harness.kafka_api.replica import Caller, TopicPartition

NOTHING_SEEN = "this user sees no transactional id: coordinators list them to users with Describe on them"
ONGOING = "Ongoing"
FINISHED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""``TransactionState`` without an open transaction. In the Prepare… states, markers are being written."""


@dataclass(frozen=True)
class TransactionDescription:
    """A producer's transaction, as its coordinator describes it.

    ``start_time_ms``: -1 where there is none; ``timeout_ms``: time from the start until the coordinator aborts it.
    ``partitions``: those of the transaction; while it is being ended, those that have no marker yet.
    """

    coordinator: int
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    start_time_ms: int
    partitions: frozenset[TopicPartition]
    timeout_ms: int = 0


@dataclass(frozen=True)
class TransactionDescriptions:
    """Transactions by producer id. ``gaps``: why coordinators may have more than these, each in a sentence."""

    by_producer: Mapping[int, TransactionDescription]
    gaps: tuple[str, ...] = ()


def ask_coordinators(client: ClusterClient, producer_ids: Collection[int]) -> TransactionDescriptions:
    """Ask all brokers for the transactions of these producers, at the same time. ``gaps`` has what they did not answer.

    A user who sees no transactional id may lack the right to see any, so nothing follows from that.
    """
    if not producer_ids:
        return TransactionDescriptions({})

    def ask(broker: int, caller: Caller) -> tuple[TransactionDescriptions, bool]:
        leaderless = leaderless_partitions(caller)
        described = describe_transactions(caller, broker, sorted(producer_ids))
        sees_any = bool(described.by_producer) or sees_transactional_ids(caller)
        return TransactionDescriptions(described.by_producer, (*leaderless, *described.gaps)), sees_any

    by_producer: dict[int, TransactionDescription] = {}
    gaps: dict[str, None] = {}
    is_any_seen = False
    for broker, answer in client.ask_all(client.cluster.brokers, ask).items():
        if isinstance(answer, Exception):
            gaps[f"broker {broker} does not list transactions: {answer}"] = None
        else:
            described, sees_any = answer
            by_producer |= described.by_producer
            gaps |= dict.fromkeys(described.gaps)
            is_any_seen |= sees_any
    if not is_any_seen:
        gaps[NOTHING_SEEN] = None
    return TransactionDescriptions(by_producer, tuple(gaps))


def sees_transactional_ids(caller: Caller) -> bool:
    """Whether this broker lists any transactional id to this user. Raises OSError."""
    listed = caller.call(ListTransactionsRequest[0](state_filters=[], producer_id_filters=[]))
    return bool(listed.transaction_states)


def leaderless_partitions(caller: Caller) -> tuple[str, ...]:
    """Name the partitions of ``__transaction_state`` without a leader; none where this user may not see the topic.

    No broker lists the transactions in them. Raises OSError.
    """
    (topic,) = caller.call(metadata_request([TRANSACTION_STATE])).topics
    return tuple(
        f"partition {p.partition_index} of {TRANSACTION_STATE} has no leader"
        for p in topic.partitions
        if p.leader_id < 0 and not topic.error_code
    )


def describe_transactions(caller: Caller, broker: int, producer_ids: Sequence[int]) -> TransactionDescriptions:
    """Return the transactions of these producers that one broker coordinates. Raises OSError."""
    listed = caller.call(ListTransactionsRequest[0](state_filters=[], producer_id_filters=list(producer_ids)))
    if listed.error_code:
        name = kafka.errors.for_code(listed.error_code).__name__
        return TransactionDescriptions({}, (f"broker {broker} does not list transactions: {name}",))
    ids = [state.transactional_id for state in listed.transaction_states]
    if not ids:
        return TransactionDescriptions({})
    by_producer, gaps = {}, []
    for one in caller.call(DescribeTransactionsRequest[0](transactional_ids=ids)).transaction_states:
        if one.error_code:
            name = kafka.errors.for_code(one.error_code).__name__
            gaps.append(f"broker {broker} does not describe transactional id {escape(one.transactional_id)}: {name}")
            continue
        by_producer[one.producer_id] = TransactionDescription(
            coordinator=broker,
            transactional_id=one.transactional_id,
            state=one.transaction_state,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            start_time_ms=one.transaction_start_time_ms,
            partitions=frozenset((topic.topic, number) for topic in one.topics for number in topic.partitions),
            timeout_ms=one.transaction_timeout_ms,
        )
    return TransactionDescriptions(by_producer, tuple(gaps))
