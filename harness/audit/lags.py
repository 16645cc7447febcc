"""Which replicas are out of the ISR, and since when they lack what the leader has, as far as reading can tell.

No broker tells since when a replica is out. What it lacks does: the leader's first record at or after the replica's log
end was written at a known time, and the replica was already missing then. It may have been out for longer, if nothing
was written at first or a cleaner has removed it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.audit.line import fetch_version, quick_line
from harness.audit.pieces import whole_entries
from harness.brokers.protocol.replica import FETCH_VERSION, READ_UNCOMMITTED, ReplicaState, fetch
from harness.brokers.segments.batches import Batch, iter_batches
from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from harness.audit.cluster import Cluster
    from harness.audit.line import Line
    from harness.audit.looks import Looks
    from harness.brokers.protocol.replica import Caller, TopicPartition
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock

SAMPLE_BYTES = 1 << 20


@dataclass(frozen=True)
class Lag:
    """A replica that is out of the ISR, or whose broker does not answer.

    ``log_end``: None where it is not known. ``lacks``: the leader's batches from there on, about `SAMPLE_BYTES` of
    them; None where nobody shows them. ``why_unseen``: why the replica was not seen.
    """

    broker: int
    partition: TopicPartition
    log_end: int | None
    lacks: tuple[Batch, ...] | None
    why_unseen: str | None

    @property
    def lacks_since_ms(self) -> int | None:
        """When the first batch that it lacks was written; None where it lacks none or that one carries no time."""
        if not self.lacks or self.lacks[0].max_timestamp_ms < 0:
            return None
        return self.lacks[0].max_timestamp_ms

    @property
    def by_brokers_clock(self) -> bool:
        """Whether the leader stamped that time; else producers did, and theirs may be anything."""
        first = self.lacks[0] if self.lacks else None
        return first is not None and first.timestamp_type == "append"


def find_lags(
    cluster: Cluster,
    looks: Looks,
    adding: Collection[tuple[int, TopicPartition]],
    clock: Clock,
    dial: Callable[[Address, Clock], Line] = quick_line,
) -> tuple[Lag, ...]:
    """Return the replicas that are behind, but for those that are being added.

    Redpanda's metadata names every replica as in sync: there only those of brokers that do not answer are found.
    """

    def lacked(partition: TopicPartition, log_end: int) -> tuple[Batch, ...] | None:
        leader = cluster.partitions[partition].leader
        ahead = looks.replicas.get((leader, partition))
        if ahead is None:
            return None
        try:
            with closing(dial(cluster.brokers[leader], clock)) as line:
                return sample(line, partition, max(log_end, ahead.log_start), fetch_version(line))
        except (OSError, HarnessError):
            # The leader has gone or changed since it was looked at.
            return None

    lags = []
    for tp, state in sorted(cluster.partitions.items()):
        for broker in state.replicas:
            look = looks.replicas.get((broker, tp))
            if (broker, tp) in adding or (look is not None and broker in state.isr):
                continue
            why = None if look else looks.silent.get(broker) or looks.unseen.get((broker, tp), "it was not seen")
            log_end = look.log_end if look else None
            lags.append(Lag(broker, tp, log_end, None if log_end is None else lacked(tp, log_end), why))
    return tuple(lags)


def sample(
    broker: Caller,
    partition: TopicPartition,
    offset: int,
    version: int = FETCH_VERSION,
    max_bytes: int = SAMPLE_BYTES,
) -> tuple[Batch, ...]:
    """Return a broker's batches from an offset on, about ``max_bytes`` of them, and at least one (KIP-74).

    Raises OSError, `HarnessError` where it does not serve them, `CorruptLogError` where they are none.
    """
    answers = fetch(broker, {partition: offset}, isolation=READ_UNCOMMITTED, max_bytes=max_bytes, version=version)
    answer, name = answers[partition], f"{partition[0]}-{partition[1]}"
    if not isinstance(answer, ReplicaState):
        raise HarnessError(f"{name} at offset {offset}: {answer}")
    source = f"Fetch answer of {name}"
    end = max((e.position + e.size_bytes for e in whole_entries(answer.records, source)), default=0)
    batches = iter_batches(answer.records[:end], source=source, verify_crc=False)
    return tuple(batch for batch in batches if batch.last_offset >= offset)
