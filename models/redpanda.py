"""One pass of Redpanda's compaction over one replica, as far as documents tell; none of it was compared with a broker.

What is said where: Redpanda's post on Kafka's bug; its documentation on compaction (``delete.retention.ms`` is for
tombstones, and for control batches where ``log_compaction_tx_batch_removal_enabled``); and descriptions of pull
requests of redpanda-data/redpanda: 5318 (nothing from the last stable offset on is compacted),
26795 (ages count from when a segment was first compacted), 28805 (committed data lose their transactional bit, and
control batches stay until that has happened: see `own`). Nothing was taken from Redpanda's source.

* Closed segments below the last stable offset are compacted, each into one of its own: of each key the last record
  stays, of an aborted transaction none, and what is left of a committed one is no longer marked as transactional.
* A tombstone goes when its segment was clean for `Cleaning.delete_retention_ms` and ends at or below MTRO - 1.
* A marker goes when its segment was clean for as long, and ends at or below MXRO - 1 and what a snapshot of the
  transactions covers. One is taken with each roll, and covers what lies before the segment that was closed.

Our reading: a pass is all or nothing, its map of keys has room for all, segments are not merged, what is left of a
segment ends where its last batch does, and an emptied segment goes. The last batch of a pass leaves a placeholder.
Fences of transactions are not modelled: data begin them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.brokers.segments.tombstones import is_tombstone
from models.cleaner import UNBOUNDED, Bounds, stable_segments
from models.coordination import Pair
from models.replica import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from models.batch import Batch
    from models.cleaner import Cleaning
    from models.replica import Replica

RULES: Final[Mapping[str, str]] = {
    "committed-is-plain": "a pass takes the transactional bit from committed data",
    "free-not-ended": "MXFO is up to where a log has no transactional data left, not up to where they have ended",
    "tombstones-age": "tombstones are kept until their segment was clean for the retention",
    "markers-age": "markers are kept until their segment was clean for the retention",
    "snapshot-first": "markers are kept until a snapshot of the transactions covers their segment",
}
"""What may be left out beside `models.coordination.RULES`, and what it says."""


def clean(
    replica: Replica,
    cleaning: Cleaning,
    now_ms: int,
    bounds: Bounds = UNBOUNDED,
    *,
    without: frozenset[str] = frozenset(),
) -> bool:
    """Compact once, and tell whether anything changed."""
    count = stable_segments(replica, cleaning, now_ms)
    segments = replica.segments[:count]
    if not segments:
        return False
    end = replica.segments[count].base_offset if count < len(replica.segments) else replica.log_end
    data = [batch for one in segments for batch in one.batches if not (batch.control or replica.is_aborted(batch))]
    last_of_keys = {record.key: record.offset for batch in data for record in batch.records}
    snapshot_end = replica.log_end if "snapshot-first" in without else _snapshot_end(replica, cleaning)
    limits = Bounds(bounds.tombstones, min(bounds.markers, snapshot_end))
    cleaned: list[Segment] = []
    for segment in segments:
        since_ms = segment.clean_since_ms
        goes = _goes(segment, cleaning, now_ms, limits, without)
        left = Segment(segment.base_offset, clean_since_ms=now_ms if since_ms is None else since_ms)
        for batch in segment.batches:
            kept = None if replica.is_aborted(batch) else _kept(batch, last_of_keys, cleaning, goes)
            if kept is not None:
                is_marked = kept.transactional and not kept.control and "committed-is-plain" not in without
                left.batches.append(replace(kept, transactional=False) if is_marked else kept)
            elif batch.last_offset + 1 == end:
                left.batches.append(_placeholder(batch))
        if left.batches or segment is segments[-1]:
            cleaned.append(left)
    is_same = cleaned == segments and replica.cleaned_to == end
    replica.replaced = segments
    replica.segments[:count] = cleaned
    replica.cleaned_to = end
    return not is_same


def own(replica: Replica, without: frozenset[str] = frozenset()) -> Pair:
    """Return a replica's MCCO and MXFO.

    MXFO: the post has it as the offset up to which every transaction has ended. Pull request 28805 has markers wait for
    the part of the log that is compacted and free of transactional data, as the name says: that is the rule
    ``free-not-ended``, and the post's is what remains without it.
    """
    clean_to = replica.cleaned_to or 0
    if "free-not-ended" in without:
        return Pair(clean_to, replica.last_stable_offset)
    return Pair(clean_to, min([clean_to, *_transactional(replica)]))


def _transactional(replica: Replica) -> Iterator[int]:
    return (batch.base_offset for batch in replica.batches() if batch.transactional and not batch.control)


def _snapshot_end(replica: Replica, cleaning: Cleaning) -> int:
    """Return up to where a snapshot of the transactions reaches; other traffic that never ends takes it to the end."""
    if cleaning.active_too:
        return replica.log_end
    return replica.segments[-2].base_offset if len(replica.segments) > 1 else replica.log_start


class _Goes(NamedTuple):
    tombstones: bool
    markers: bool


def _goes(segment: Segment, cleaning: Cleaning, now_ms: int, limits: Bounds, without: frozenset[str]) -> _Goes:
    """Tell what may leave a segment, as old as it is, and as far as it lies."""
    since_ms = segment.clean_since_ms
    is_old = since_ms is not None and now_ms - since_ms >= cleaning.delete_retention_ms
    return _Goes(
        (is_old or "tombstones-age" in without) and segment.next_offset <= limits.tombstones,
        (is_old or "markers-age" in without) and segment.next_offset <= limits.markers,
    )


def _kept(batch: Batch, last_of_keys: Mapping[bytes | None, int], cleaning: Cleaning, goes: _Goes) -> Batch | None:
    """Return what is left of a batch that no abort takes; None where nothing is."""
    if batch.control:
        return batch if batch.records and not goes.markers else None
    records = tuple(
        record
        for record in batch.records
        if record.offset == last_of_keys[record.key]
        and not (goes.tombstones and is_tombstone(record, cleaning.tombstones))
    )
    if not records:
        return None
    return batch if len(records) == len(batch.records) else batch.keeping(records)


def _placeholder(batch: Batch) -> Batch:
    """Return what holds the offsets of a batch that is gone: nobody's, and nothing in it (type 29)."""
    if batch.control and not batch.records:
        return batch
    return replace(
        batch, records=(), producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False, control=True
    )
