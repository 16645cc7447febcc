"""Computes what a log cleaner has to do on one replica, from files: what is dirty, and since when a pass is due.

Sources: ``LogCleanerManager.cleanableOffsets`` (a pass ends before the last stable offset, the active segment, and the
first segment with a record younger than ``min.compaction.lag.ms``), ``LogToClean`` (the dirty ratio, of whole
segments), ``grabFilthiestCompactedLog`` and ``maxCompactionDelay`` (a pass begins above ``min.cleanable.dirty.ratio``,
or when the oldest dirty segment is older than ``max.compaction.lag.ms``, KIP-354).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, pairwise
from typing import Final

from checkers.evidence.copies import replica_facts
from harness.audit.removal_settings import RemovalSettings, read_settings
from harness.broker_files.copies.copies import Copies, ReplicaCopy
from harness.broker_files.copies.selection import is_compacted
from harness.host.clock import duration_text, time_text
from harness.judge.finding import CheckerRow, name_of, place_of

OVERDUE_MS: Final = 3_600_000
"""A cleaner with thousands of partitions may begin a pass late. A partition that waits for longer is reported."""
ASSUMED_RATIO: Final = 0.9
"""Where the copies do not show the topic's own ratio: more than any sensible default of a broker."""
ACTIVE, STABLE, YOUNG = "the active segment", "the last stable offset", "min.compaction.lag.ms"


@dataclass(frozen=True)
class TimedSegment:
    """A segment. ``modified_ms``: of the last append, which a cleaner keeps (``Cleaner.cleanSegments``); 0: unknown."""

    base_offset: int
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True)
class Cleaning:
    """A cleaner's work on one replica.

    ``dirty_offset``: the first offset that no pass has cleaned. ``end``: the first offset that no pass may clean now,
    because of ``held_by``; its segment had been rolled at ``held_ms``. ``due_ms``: since when a pass is due; None where
    none is. ``now_ms``: of the last append. Times are those of files: timestamps of records may be years older than
    their arrival on this broker. A copy that does not keep the times of files shows no delay.
    """

    dirty_offset: int
    end: int
    held_by: str
    held_ms: int
    dirty_bytes: int
    ratio: float
    due_ms: int | None
    now_ms: int


def cleaning(
    segments: Sequence[TimedSegment], checkpoint: int | None, log_start: int, stable_end: int, settings: RemovalSettings
) -> Cleaning:
    """Return the work of a cleaner, by every segment and the ``cleaner-offset-checkpoint``; None: was never cleaned.

    A segment's records count as written at the last append, and the segment as rolled at the last append to the next
    one: both are at least as late as Kafka's own times, so that no pass counts as due too early.
    """
    pairs, now_ms = list(pairwise(segments)), max(segment.modified_ms for segment in segments)
    dirty = max(log_start, checkpoint or 0)
    lag_ms = settings.min_compaction_lag_ms or 0
    young = [s for s, _ in pairs if lag_ms and s.base_offset >= dirty and s.modified_ms > now_ms - lag_ms]
    bounds = [(segments[-1].base_offset, ACTIVE), (stable_end, STABLE), *((s.base_offset, YOUNG) for s in young[:1])]
    end, held_by = min(bounds)
    # A pass cleans whole segments, up to the segment that has the end.
    last = max((s.base_offset for s in segments if s.base_offset <= end), default=log_start)
    work = [(s, after.modified_ms) for s, after in pairs if after.base_offset > dirty and s.base_offset < last]
    sizes = list(accumulate(segment.size_bytes for segment, _ in work))
    clean_bytes, dirty_bytes = sum(s.size_bytes for s, _ in pairs if s.base_offset < dirty), (sizes or [0])[-1]
    threshold = ASSUMED_RATIO if settings.min_cleanable_dirty_ratio is None else settings.min_cleanable_dirty_ratio
    is_above = [size > threshold * (clean_bytes + size) for size in sizes]
    due = [rolled_ms for _, rolled_ms in compress(work, is_above)][:1]
    if work and settings.max_compaction_lag_ms is not None:
        due.append(max(work[0][0].modified_ms + settings.max_compaction_lag_ms, work[0][1]))
    return Cleaning(
        dirty,
        max(dirty, end),
        held_by,
        held_ms=next((after.modified_ms for _, after in pairs if after.base_offset > end), now_ms),
        dirty_bytes=dirty_bytes,
        ratio=dirty_bytes / max(clean_bytes + dirty_bytes, 1),
        due_ms=min((time for time in due if 0 < time <= now_ms), default=None),
        now_ms=now_ms,
    )


def cleaning_of(copy: ReplicaCopy, stable_end: int, settings: RemovalSettings) -> Cleaning | None:
    """Return the work of a copied replica's cleaner; None without ``cleaner-offset-checkpoint``. Raises OSError."""
    checkpoint = copy.folder.parent / "cleaner-offset-checkpoint"
    if not checkpoint.exists():
        return None
    facts = replica_facts(copy.folder)
    segments = [
        TimedSegment(segment.base_offset, (stat := path.stat()).st_size, int(getattr(stat, "st_mtime", 0) * 1000))
        for segment, path in zip(copy.segments, copy.logs, strict=True)
    ]
    return cleaning(segments, facts["cleaner_offset"], facts["log_start"] or 0, stable_end, settings)


def uncleaned_notes(copies: Copies, replicas: Iterable[CheckerRow]) -> Iterator[str]:
    """Yield a sentence for each copied replica that its cleaner has not cleaned for `OVERDUE_MS`.

    ``replicas``: broker, place and ``stable_end`` of replicas that were read. Settings are those of the topic itself,
    in the metadata log. Without the log, partitions count as compacted that a cleaner has cleaned before.
    """
    own = {} if copies.metadata is None else copies.metadata.settings
    ends = {(row["broker"], place_of(row)): row["stable_end"] for row in replicas}
    for copy in copies.replicas:
        values, end = own.get(copy.topic, {}), ends.get((copy.broker, copy.place))
        was_cleaned = copies.metadata is None and replica_facts(copy.folder)["cleaner_offset"] is not None
        if end is not None and (was_cleaned or is_compacted(copy.topic, values.get("cleanup.policy"))):
            work = cleaning_of(copy, end, read_settings(values))
            if work is not None and (problem := problem_of(work)):
                yield f"broker {copy.broker} no longer cleans {name_of(copy.place)}: {problem}"


def problem_of(work: Cleaning) -> str | None:
    """Return why a replica is not cleaned; None where its cleaner is not late, or nothing shows that it is."""
    dirty = f"its dirty offset is {work.dirty_offset}"
    if work.due_ms is not None and work.now_ms - work.due_ms > OVERDUE_MS:
        return (
            f"{dirty}, {work.dirty_bytes:,} bytes are dirty (ratio {work.ratio:.2f}), and a pass is due since"
            f" {time_text(work.due_ms)}, {duration_text((work.now_ms - work.due_ms) / 1000)} before the last append."
            " Its cleaner died or has marked the partition as uncleanable (search log-cleaner.log for 'uncleanable' and"
            " 'ERROR'; a restart of the broker ends both), or settings that the copies do not show pause it"
        )
    if work.held_by == STABLE and work.now_ms - work.held_ms > OVERDUE_MS:
        return (
            f"{dirty}, and a transaction that is open from offset {work.end} on holds the cleaner there, for at least"
            f" {duration_text((work.now_ms - work.held_ms) / 1000)}"
        )
    return None
