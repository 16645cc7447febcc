"""Aborts transactions that hang, as ``kafka-transactions.sh abort`` does (KIP-664).

A transaction is aborted only if it is open on every replica, and if its coordinator has ended it or does not know it;
brokers and coordinators are asked again just before. A client may still commit any other open transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from checkers.finding import HANGING_TRANSACTION
from harness.audit.live.cluster import client_of, describe
from harness.audit.live.prefilter import prefilter
from harness.errors import HarnessError
from harness.judge.finding import name_of
from harness.kafka_api.connection import ONCE
from harness.kafka_api.transactions import abort_transaction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.audit.live.cluster import AuditedCluster
    from harness.audit.live.prefilter import Suspicion
    from harness.host.clock import Clock
    from harness.kafka_api.address import Address
    from harness.protect.repair.plan import Abort


@dataclass(frozen=True)
class Aborted:
    """``why``: the reason why the transaction was not aborted; None where it was, or where it has ended already."""

    abort: Abort
    why: str | None


def is_confirmed(abort: Abort, suspicion: Suspicion) -> bool:
    """Return whether a suspicion confirms that the transaction still hangs."""
    transaction = suspicion.transaction
    return (
        suspicion.anomaly == HANGING_TRANSACTION
        and (suspicion.topic, suspicion.partition) == abort.partition
        and suspicion.offset == abort.offset
        and transaction is not None
        and transaction.producer_id == abort.producer_id
    )


def abort_all(aborts: Sequence[Abort], bootstrap: Sequence[Address], clock: Clock) -> list[Aborted]:
    """Abort the transactions that still hang. Raises `UsageError` as `describe` and `prefilter` do."""
    if not aborts:
        return []
    cluster = describe(client_of(bootstrap, clock), sorted({abort.partition[0] for abort in aborts}))
    suspicions = prefilter(cluster).suspicions
    aborted = []
    for abort in aborts:
        suspicion = next((suspicion for suspicion in suspicions if is_confirmed(abort, suspicion)), None)
        aborted.append(Aborted(abort, None if suspicion is None else _abort(abort, suspicion, cluster)))
    return aborted


def _abort(abort: Abort, suspicion: Suspicion, cluster: AuditedCluster) -> str | None:
    leader = cluster.state.partitions[abort.partition].leader
    if leader not in cluster.state.brokers or suspicion.transaction is None:
        return f"{name_of(abort.partition)} has no leader"
    try:
        cluster.client.ask(leader, abort_transaction(abort.partition, suspicion.transaction), ONCE)
    except (HarnessError, OSError) as error:
        return str(error)
    return None
