"""The transactions of producers, by their coordinators: ListTransactions and DescribeTransactions (KIP-664).

Every broker is asked, as each one lists the transactions that it coordinates. FindCoordinator is not used: it would
create ``__transaction_state`` where that topic is missing. A user needs Describe on the transactional ids; brokers
silently leave out the ids that the user may not see.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import kafka.errors
from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest

from harness.audit.connection import quick_connection
from harness.brokers.protocol.admin import metadata_request
from harness.errors import HarnessError
from harness.escape import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from harness.audit.cluster import Cluster
    from harness.audit.connection import ReconnectingConnection
    from harness.brokers.protocol.replica import Caller, TopicPartition
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock

TRANSACTION_STATE = "__transaction_state"
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


def ask_coordinators(
    cluster: Cluster,
    producer_ids: Collection[int],
    clock: Clock,
    dial: Callable[[Address, Clock], ReconnectingConnection] = quick_connection,
) -> TransactionDescriptions:
    """Ask all brokers for the transactions of these producers, at the same time. ``gaps`` has what they did not answer.

    A user who sees no transactional id may lack the right to see any, so nothing follows from that.
    """
    if not producer_ids:
        return TransactionDescriptions({})

    def ask(broker: int) -> tuple[TransactionDescriptions, bool]:
        try:
            with closing(dial(cluster.brokers[broker], clock)) as connection:
                leaderless = leaderless_partitions(connection)
                descriptions = describe_transactions(connection, broker, sorted(producer_ids))
                return TransactionDescriptions(descriptions.by_producer, (*leaderless, *descriptions.gaps)), bool(
                    descriptions.by_producer
                ) or sees_transactional_ids(connection)
        except (OSError, HarnessError) as error:
            return TransactionDescriptions({}, (f"broker {broker} does not list transactions: {error}",)), False

    with ThreadPoolExecutor(len(cluster.brokers)) as pool:
        answers = list(pool.map(ask, cluster.brokers))
    by_producer = {
        producer_id: transaction
        for descriptions, _ in answers
        for producer_id, transaction in descriptions.by_producer.items()
    }
    gaps = dict.fromkeys(reason for descriptions, _ in answers for reason in descriptions.gaps)
    if not any(any_seen for _, any_seen in answers):
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
