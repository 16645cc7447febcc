"""One pass of Redpanda's compaction over one replica, as documented; the model was not compared with a broker.

Sources: Redpanda's post on Kafka's bug; its documentation on compaction (``delete.retention.ms`` is for
tombstones, and for control batches where ``log_compaction_tx_batch_removal_enabled``); and descriptions of pull
requests of redpanda-data/redpanda: 5318 (nothing from the last stable offset on is compacted),
26795 (ages count from when a segment was first compacted), 28805 (committed data lose their transactional bit, and
control batches stay until that has happened). Nothing was taken from Redpanda's source.

Our reading: a pass is all or nothing, its key map has room for all keys, segments are not merged, a compacted segment
ends where its last batch does, and an empty segment is removed. The last batch of a pass leaves a placeholder. A
snapshot of the transactions is taken with each roll, and covers the offsets before the segment that was closed. Fences
of transactions are not modelled: data begin them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from harness.models.log.batch import ModelBatch
from harness.models.log.cleaner import UNBOUNDED, Bounds, Cleaning, stable_segments
from harness.models.log.replica import ModelSegment, Replica

RULES: Final[Mapping[str, str]] = {
    "committed-is-plain": "a pass clears the transactional bit of committed data",
    "free-not-ended": "MXFO is where transactional data begins in a log, not where the first open transaction begins",
    "tombstones-age": "tombstones are kept until their segment was clean for the retention",
    "markers-age": "markers are kept until their segment was clean for the retention",
    "snapshot-first": "markers are kept until a snapshot of the transactions covers their segment",
}
"""The rules that can be left out in addition to `harness.models.world.coordination.RULES`, and their meaning."""


def clean(
    replica: Replica,
    cleaning: Cleaning,
    now_ms: int,
    bounds: Bounds = UNBOUNDED,
    *,
    without: frozenset[str] = frozenset(),
) -> bool:
    """Run one pass, and return whether anything changed."""
    count = stable_segments(replica, cleaning, now_ms)
    segments = replica.segments[:count]
    if not segments:
        return False
    end = replica.segments[count].base_offset if count < len(replica.segments) else replica.log_end
    batches = [batch for segment in segments for batch in segment.batches]
    data = [batch for batch in batches if not (batch.control or replica.is_aborted(batch))]
    last_of_keys = {record.key: record.offset for batch in data for record in batch.records}
    snapshot_end = replica.log_end if "snapshot-first" in without else _snapshot_end(replica, cleaning)
    limits = Bounds(bounds.tombstones, min(bounds.markers, snapshot_end))
    cleaned: list[ModelSegment] = []
    for segment in segments:
        since_ms = segment.clean_since_ms
        is_old = since_ms is not None and now_ms - since_ms >= cleaning.delete_retention_ms
        tombstones_go = (is_old or "tombstones-age" in without) and segment.next_offset <= limits.tombstones
        markers_go = (is_old or "markers-age" in without) and segment.next_offset <= limits.markers
        target = ModelSegment(segment.base_offset, clean_since_ms=now_ms if since_ms is None else since_ms)
        for batch in segment.batches:
            if batch.control:
                records = () if markers_go else batch.records
            else:
                is_aborted = replica.is_aborted(batch)
                records = tuple(
                    record
                    for record in batch.records
                    if not is_aborted
                    and record.offset == last_of_keys[record.key]
                    and not (tombstones_go and record.is_tombstone)
                )
            if records:
                is_marked = batch.transactional and not batch.control and "committed-is-plain" not in without
                retained = batch.keeping(records)
                target.batches.append(replace(retained, transactional=False) if is_marked else retained)
            elif batch.last_offset + 1 == end:
                target.batches.append(_placeholder(batch))
        if target.batches or segment is segments[-1]:
            cleaned.append(target)
    is_same = cleaned == segments and replica.cleaned_to == end
    replica.replaced = segments
    replica.segments[:count] = cleaned
    replica.cleaned_to = end
    return not is_same


def progress(replica: Replica, without: frozenset[str] = frozenset()) -> Bounds:
    """Return a replica's MCCO and MXFO.

    MXFO: in the post, the offset up to which every transaction has ended. In pull request 28805, it is the end of the
    part of the log that is compacted and free of transactional data, as the name says: the rule ``free-not-ended``.
    """
    clean_to = replica.cleaned_to or 0
    if "free-not-ended" in without:
        return Bounds(clean_to, replica.last_stable_offset)
    data = (batch.base_offset for batch in replica.batches() if batch.transactional and not batch.control)
    return Bounds(clean_to, min([clean_to, *data]))


def _snapshot_end(replica: Replica, cleaning: Cleaning) -> int:
    """Return the offset up to which a snapshot of the transactions reaches; with endless other traffic, the log end."""
    if cleaning.active_too:
        return replica.log_end
    return replica.segments[-2].base_offset if len(replica.segments) > 1 else replica.log_start


def _placeholder(batch: ModelBatch) -> ModelBatch:
    """Return the placeholder for the offsets of a removed batch: without a producer, and empty (type 29)."""
    if batch.control and not batch.records:
        return batch
    return replace(
        batch, records=(), producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False, control=True
    )
