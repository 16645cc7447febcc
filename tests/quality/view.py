"""The view of one replica's files: its own replay, without the truth."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.broker_files.segments.records import COMMIT
from harness.broker_files.side_files.producer_state import AbortedTxn
from harness.models.log.batch import ModelBatch
from harness.models.log.replica import Replica


@dataclass(slots=True)
class Run:
    """A producer's batches up to one marker, on one replica: one transaction, as that broker sees it."""

    producer_id: int
    batches: list[ModelBatch]
    marker: ModelBatch | None = None


@dataclass(slots=True)
class View:
    """The content of one replica's files, read once."""

    replica: Replica
    log_end: int
    runs: list[Run] = field(default_factory=list)
    control: dict[int, list[ModelBatch]] = field(default_factory=lambda: defaultdict(list))
    aborted: list[AbortedTxn] = field(default_factory=list)
    bases: set[int] = field(default_factory=set)
    """The first offsets of its batches, including empty ones."""
    last_of_keys: dict[bytes, int] = field(default_factory=dict)
    """Offset of the last record of each key, committed or not."""
    final: dict[bytes, tuple[int, bool]] = field(default_factory=dict)
    """Offset of the last record that is believed committed, and whether it is a tombstone."""

    @property
    def frozen_at(self) -> int:
        return min((run.batches[0].base_offset for run in self.runs if run.marker is None), default=self.log_end)

    def covers(self, offset: int) -> bool:
        """Tell whether the log starts at or before an offset."""
        return self.replica.log_start <= offset


def view(replica: Replica) -> View:
    """Replay a replica's log, up to where an unreplicated tail begins."""
    end = replica.log_end if replica.diverged_from is None else replica.diverged_from
    seen = View(replica, end)
    current: dict[int, Run] = {}
    for batch in replica.batches():
        if batch.base_offset >= end:
            break
        seen.bases.add(batch.base_offset)
        if batch.control:
            seen.control[batch.producer_id].append(batch)
            if batch.marker and (run := current.pop(batch.producer_id, None)):
                run.marker = batch
            continue
        seen.last_of_keys.update((r.key, r.offset) for r in batch.records if r.key is not None)
        if not batch.transactional:
            _settle(seen, [batch])
        elif run := current.get(batch.producer_id):
            run.batches.append(batch)
        else:
            current[batch.producer_id] = Run(batch.producer_id, [batch])
            seen.runs.append(current[batch.producer_id])
    for run in seen.runs:
        if run.marker and run.marker.marker == COMMIT:
            _settle(seen, run.batches)
    seen.aborted = [entry for segment in replica.segments for entry in segment.aborted if entry.last_offset < end]
    return seen


def _settle(seen: View, batches: Iterable[ModelBatch]) -> None:
    for batch in batches:
        for record in batch.records:
            if record.key is not None and record.offset >= seen.replica.log_start:
                known = seen.final.get(record.key)
                if known is None or known[0] < record.offset:
                    seen.final[record.key] = record.offset, record.value is None
