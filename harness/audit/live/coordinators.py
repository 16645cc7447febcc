"""The transactions of producers, by their coordinators.

Every broker is asked, as each broker lists the transactions that it coordinates. FindCoordinator is not used: that
request would create ``__transaction_state`` where the topic is missing.
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
    """Ask all brokers for the transactions of these producers, at the same time. ``gaps`` names missing answers.

    A user who sees no transactional id may not have the right to see any, so nothing follows from that.
    """
    if not producer_ids:
        return TransactionDescriptions({})

    def ask(broker: int, caller: Caller) -> tuple[TransactionDescriptions, bool]:
        # No broker lists the transactions in partitions without a leader. A user may not see the topic.
        state = caller.ask(describe_cluster([TRANSACTION_STATE])).partitions
        leaderless = [number for (_, number), partition in state.items() if partition.leader < 0]
        gaps = [f"partition {number} of {TRANSACTION_STATE} has no leader" for number in leaderless]
        by_producer = {}
        listed = caller.ask(list_transactions(producer_ids=sorted(producer_ids)))
        if listed.error:
            gaps.append(f"broker {broker} does not list transactions: {listed.error}")
        elif listed.transactional_ids:
            for name, answer in caller.ask(describe_transactions(listed.transactional_ids, broker)).items():
                if isinstance(answer, str):
                    gaps.append(f"broker {broker} does not describe transactional id {escape(name)}: {answer}")
                else:
                    by_producer[answer.producer_id] = answer
        sees_any = bool(by_producer) or bool(caller.ask(list_transactions()).transactional_ids)
        return TransactionDescriptions(by_producer, tuple(gaps)), sees_any

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
