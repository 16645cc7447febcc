"""Replicas whose last stable offset does not move: read_committed consumers get nothing from there on.

Either `harness.audit.prefilter` suspects the replica: it holds a transaction open that was decided. Or a transaction is
open for longer than it may be: its coordinator aborts it once its timeout is over (KIP-98), so nobody decides it any
more. Where no coordinator tells of it, the longest timeout counts that brokers allow by default.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.audit.lags import sample
from harness.audit.line import fetch_version, quick_line
from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.audit.cluster import Cluster
    from harness.audit.line import Line
    from harness.audit.prefilter import Prefiltered, Suspicion
    from harness.brokers.protocol.replica import OpenTransaction, TopicPartition
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock

DEFAULT_MAX_TIMEOUT_MS: Final = 900_000
"""``transaction.max.timeout.ms`` unless it is set (`TransactionStateManagerConfig`)."""
GRACE_MS: Final = 60_000
"""For a coordinator to look again (10 s), to write its markers, and for clocks that differ."""
ONE_BATCH_BYTES: Final = 1


@dataclass(frozen=True)
class Frozen:
    """One replica, and the first transaction that holds it: offsets, and times in milliseconds since the epoch.

    ``suspicion``: why it is decided already; None where it is only open ``since_ms``, for longer than its
    ``timeout_ms``. ``by_producers_clock``: that time is the record's, else the coordinator's.
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


def find_frozen(
    cluster: Cluster, prefiltered: Prefiltered, clock: Clock, dial: Callable[[Address, Clock], Line] = quick_line
) -> tuple[Frozen, ...]:
    """Return the replicas of the last look that are frozen, one each, by partition and broker."""
    suspected: dict[tuple[int, TopicPartition], Suspicion] = {}
    for one in sorted(prefiltered.suspicions, key=lambda one: one.offset):
        suspected.setdefault((one.broker, (one.topic, one.partition)), one)
    frozen = []
    for (broker, tp), look in sorted(prefiltered.looks.replicas.items(), key=lambda item: (item[0][1], item[0][0])):
        suspicion = suspected.get((broker, tp))
        held = min(look.open or (), key=lambda one: one.first_offset, default=None)
        offsets = (look.last_stable_offset, look.high_watermark)
        if suspicion is not None:
            producer_id = suspicion.transaction.producer_id if suspicion.transaction else None
            frozen.append(Frozen(broker, tp, *offsets, producer_id, suspicion))
        elif held is not None:
            since_ms, timeout_ms, by_coordinator = _began(cluster, prefiltered, broker, tp, held, clock, dial)
            if since_ms is not None and clock.time_ms() - since_ms > timeout_ms + GRACE_MS:
                frozen.append(
                    Frozen(broker, tp, *offsets, held.producer_id, None, since_ms, timeout_ms, not by_coordinator)
                )
    return tuple(frozen)


def _began(  # noqa: PLR0917
    cluster: Cluster,
    prefiltered: Prefiltered,
    broker: int,
    tp: TopicPartition,
    held: OpenTransaction,
    clock: Clock,
    dial: Callable[[Address, Clock], Line],
) -> tuple[int | None, int, bool]:
    """Return when a transaction began, how long it may last, and whether its coordinator said so."""
    word = prefiltered.words.told.get(held.producer_id)
    if word is not None and word.start_time_ms >= 0 and tp in word.partitions:
        return word.start_time_ms, word.timeout_ms, True
    try:
        with closing(dial(cluster.brokers[broker], clock)) as line:
            batches = sample(line, tp, held.first_offset, fetch_version(line), max_bytes=ONE_BATCH_BYTES)
    except (OSError, HarnessError):
        # The broker has gone or its log was cut since it was looked at.
        return None, DEFAULT_MAX_TIMEOUT_MS, False
    written_ms = batches[0].max_timestamp_ms if batches else -1
    return (written_ms if written_ms >= 0 else None), DEFAULT_MAX_TIMEOUT_MS, False
