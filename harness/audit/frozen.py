"""Replicas whose last stable offset does not move: read_committed consumers get nothing from that offset on.

There are two cases. `harness.audit.prefilter` suspects the replica: the replica has a transaction open that was ended
elsewhere. Or a transaction is open for longer than its timeout: its coordinator should have aborted it by then
(KIP-98), so nothing will end it. Where no coordinator describes the transaction, its timeout is taken to be the longest
that brokers allow by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.audit.lags import read_batches
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.audit.connection import ClusterClient
    from harness.audit.prefilter import Prefiltered, Suspicion
    from harness.brokers.protocol.replica import OpenTransaction, TopicPartition

DEFAULT_MAX_TIMEOUT_MS: Final = 900_000
"""Default of ``transaction.max.timeout.ms`` (`TransactionStateManagerConfig`)."""
GRACE_MS: Final = 60_000
"""For a coordinator's next check (10 s), for its markers to be written, and for differences between clocks."""
ONE_BATCH_BYTES: Final = 1


@dataclass(frozen=True)
class FrozenReplica:
    """One replica, and the first transaction that stops it: offsets, and times in milliseconds since the epoch.

    ``suspicion``: why the transaction has ended already; None where it is open ``since_ms``, for longer than its
    ``timeout_ms``. ``by_producers_clock``: whether that time is the record's timestamp, not the coordinator's start
    time.
    """

    broker: int
    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    producer_id: int | None
    suspicion: Suspicion | None
    since_ms: int | None = None
    timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS
    by_producers_clock: bool = False


def find_frozen(client: ClusterClient, prefiltered: Prefiltered) -> tuple[FrozenReplica, ...]:
    """Return the replicas that are frozen by their last status, one entry each, by partition and broker."""
    suspicions: dict[tuple[int, TopicPartition], Suspicion] = {}
    for one in sorted(prefiltered.suspicions, key=lambda one: one.offset):
        suspicions.setdefault((one.broker, (one.topic, one.partition)), one)
    frozen = []
    for (broker, tp), status in sorted(
        prefiltered.statuses.replicas.items(), key=lambda item: (item[0][1], item[0][0])
    ):
        suspicion = suspicions.get((broker, tp))
        transaction = min(status.open or (), key=lambda one: one.first_offset, default=None)
        offsets = (status.last_stable_offset, status.high_watermark)
        if suspicion is not None:
            producer_id = suspicion.transaction.producer_id if suspicion.transaction else None
            frozen.append(FrozenReplica(broker, tp, *offsets, producer_id, suspicion))
        elif transaction is not None:
            since_ms, timeout_ms, by_coordinator = _beginning(client, prefiltered, broker, tp, transaction)
            if since_ms is not None and client.clock.time_ms() - since_ms > timeout_ms + GRACE_MS:
                frozen.append(
                    FrozenReplica(
                        broker, tp, *offsets, transaction.producer_id, None, since_ms, timeout_ms, not by_coordinator
                    )
                )
    return tuple(frozen)


def _beginning(
    client: ClusterClient, prefiltered: Prefiltered, broker: int, tp: TopicPartition, transaction: OpenTransaction
) -> tuple[int | None, int, bool]:
    """Return when a transaction began, its timeout, and whether its coordinator reported both."""
    described = prefiltered.coordinator_answers.by_producer.get(transaction.producer_id)
    if described is not None and described.start_time_ms >= 0 and tp in described.partitions:
        return described.start_time_ms, described.timeout_ms, True
    try:
        with client.connection(broker) as connection:
            batches = read_batches(connection, tp, transaction.first_offset, ONE_BATCH_BYTES)
    except (OSError, HarnessError):
        # The broker is gone, or its log was truncated since its last status.
        return None, DEFAULT_MAX_TIMEOUT_MS, False
    written_ms = batches[0].max_timestamp_ms if batches else -1
    return (written_ms if written_ms >= 0 else None), DEFAULT_MAX_TIMEOUT_MS, False
