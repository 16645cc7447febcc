"""The transactions of producers, by their coordinators.

Every broker is asked, as each one lists the transactions that it coordinates. FindCoordinator is not used: it would
create ``__transaction_state`` where that topic is missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.broker_files.internal_topics.decode import TRANSACTION_STATE
from harness.escape import escape
from harness.kafka_api.metadata import describe_cluster
from harness.kafka_api.transactions import describe_transactions, list_transactions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from harness.audit.live.cluster import AuditedCluster
    from harness.kafka_api.messages import Caller
    from harness.kafka_api.transactions import TransactionDescription

NOTHING_SEEN = "this user sees no transactional id: coordinators list them to users with Describe on them"
ONGOING = "Ongoing"
FINISHED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""``TransactionState`` without an open transaction. In the Prepare… states, markers are being written."""


@dataclass(frozen=True)
class TransactionDescriptions:
    """Transactions by producer id. ``gaps``: why coordinators may have more than these, each in a sentence."""

    by_producer: Mapping[int, TransactionDescription]
    gaps: tuple[str, ...] = ()


def ask_coordinators(cluster: AuditedCluster, producer_ids: Collection[int]) -> TransactionDescriptions:
    """Ask all brokers for the transactions of these producers, at the same time. ``gaps`` has what they did not answer.

    A user who sees no transactional id may lack the right to see any, so nothing follows from that.
    """
    if not producer_ids:
        return TransactionDescriptions({})

    def ask(broker: int, caller: Caller) -> tuple[TransactionDescriptions, bool]:
        leaderless = _leaderless_partitions(caller)
        described = _describe(caller, broker, producer_ids)
        sees_any = bool(described.by_producer) or bool(caller.ask(list_transactions()).transactional_ids)
        return TransactionDescriptions(described.by_producer, (*leaderless, *described.gaps)), sees_any

    by_producer: dict[int, TransactionDescription] = {}
    gaps: dict[str, None] = {}
    is_any_seen = False
    for broker, answer in cluster.client.ask_all(cluster.state.brokers, ask).items():
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


def _leaderless_partitions(caller: Caller) -> tuple[str, ...]:
    """Name the partitions of ``__transaction_state`` without a leader; none where this user may not see the topic.

    No broker lists the transactions in them.
    """
    return tuple(
        f"partition {number} of {TRANSACTION_STATE} has no leader"
        for (_, number), state in caller.ask(describe_cluster([TRANSACTION_STATE])).partitions.items()
        if state.leader < 0
    )


def _describe(caller: Caller, broker: int, producer_ids: Collection[int]) -> TransactionDescriptions:
    """Return the transactions of these producers that one broker coordinates."""
    listed = caller.ask(list_transactions(producer_ids=sorted(producer_ids)))
    if listed.error:
        return TransactionDescriptions({}, (f"broker {broker} does not list transactions: {listed.error}",))
    if not listed.transactional_ids:
        return TransactionDescriptions({})
    answers = caller.ask(describe_transactions(listed.transactional_ids, broker))
    return TransactionDescriptions(
        {answer.producer_id: answer for answer in answers.values() if not isinstance(answer, str)},
        tuple(
            f"broker {broker} does not describe transactional id {escape(transactional_id)}: {answer}"
            for transactional_id, answer in answers.items()
            if isinstance(answer, str)
        ),
    )
