"""What the transaction coordinators say of producers (KIP-664): ListTransactions by producer id, DescribeTransactions.

Every broker is asked, as each knows those that it coordinates. FindCoordinator is not: it would make
``__transaction_state`` where that is missing. A user needs Describe on the transactional ids; brokers leave out what it
may not see, without a word.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import kafka.errors
from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest

from harness.audit.line import quick_line
from harness.brokers.protocol.admin import metadata_request
from harness.errors import HarnessError
from harness.escape import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from harness.audit.cluster import Cluster
    from harness.audit.line import Line
    from harness.brokers.protocol.replica import Caller, TopicPartition
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock

TRANSACTION_STATE = "__transaction_state"
NOTHING_SEEN = "this user sees no transactional id at all: Describe on them shows what coordinators know"
ONGOING = "Ongoing"
FINISHED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""States in which a producer has nothing open (``TransactionState``). In Prepare… its markers are being written."""


@dataclass(frozen=True)
class Word:
    """What its coordinator says of a producer's transaction.

    ``start_time_ms``: -1 where there is none; ``timeout_ms``: how long from then on until it is aborted.
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
class Words:
    """By producer id. ``untold``: why some coordinators may know more than this, each in a sentence."""

    told: Mapping[int, Word]
    untold: tuple[str, ...] = ()


def ask_coordinators(
    cluster: Cluster, producer_ids: Collection[int], clock: Clock, dial: Callable[[Address, Clock], Line] = quick_line
) -> Words:
    """Ask all brokers for these producers, at the same time. What is not told is among ``untold``.

    A user who sees no transactional id may be one who has no right to: nothing follows from that.
    """
    if not producer_ids:
        return Words({})

    def ask(broker: int) -> tuple[Words, bool]:
        try:
            with closing(dial(cluster.brokers[broker], clock)) as line:
                lacking = without_coordinator(line)
                words = words_of(line, broker, sorted(producer_ids))
                return Words(words.told, (*lacking, *words.untold)), bool(words.told) or sees_any(line)
        except (OSError, HarnessError) as error:
            return Words({}, (f"broker {broker} does not tell of transactions: {error}",)), False

    with ThreadPoolExecutor(len(cluster.brokers)) as pool:
        answers = list(pool.map(ask, cluster.brokers))
    told = {producer_id: word for words, _ in answers for producer_id, word in words.told.items()}
    untold = dict.fromkeys(reason for words, _ in answers for reason in words.untold)
    if not any(sees for _, sees in answers):
        untold[NOTHING_SEEN] = None
    return Words(told, tuple(untold))


def sees_any(caller: Caller) -> bool:
    """Whether this broker names any transactional id to this user. Raises OSError."""
    listed = caller.call(ListTransactionsRequest[0](state_filters=[], producer_id_filters=[]))
    return bool(listed.transaction_states)


def without_coordinator(caller: Caller) -> tuple[str, ...]:
    """Say which partitions of ``__transaction_state`` nobody leads now; nothing where this user may not see it.

    What they hold no broker lists. Raises OSError.
    """
    (topic,) = caller.call(metadata_request([TRANSACTION_STATE])).topics
    return tuple(
        f"partition {p.partition_index} of {TRANSACTION_STATE} has no leader"
        for p in topic.partitions
        if p.leader_id < 0 and not topic.error_code
    )


def words_of(caller: Caller, broker: int, producer_ids: Sequence[int]) -> Words:
    """Return what one broker says of those of these producers that it coordinates. Raises OSError."""
    listed = caller.call(ListTransactionsRequest[0](state_filters=[], producer_id_filters=list(producer_ids)))
    if listed.error_code:
        name = kafka.errors.for_code(listed.error_code).__name__
        return Words({}, (f"broker {broker} does not tell of transactions: {name}",))
    ids = [state.transactional_id for state in listed.transaction_states]
    if not ids:
        return Words({})
    told, untold = {}, []
    for one in caller.call(DescribeTransactionsRequest[0](transactional_ids=ids)).transaction_states:
        if one.error_code:
            name = kafka.errors.for_code(one.error_code).__name__
            untold.append(f"broker {broker} does not tell of transactional id {escape(one.transactional_id)}: {name}")
            continue
        told[one.producer_id] = Word(
            coordinator=broker,
            transactional_id=one.transactional_id,
            state=one.transaction_state,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            start_time_ms=one.transaction_start_time_ms,
            partitions=frozenset((topic.topic, number) for topic in one.topics for number in topic.partitions),
            timeout_ms=one.transaction_timeout_ms,
        )
    return Words(told, tuple(untold))
