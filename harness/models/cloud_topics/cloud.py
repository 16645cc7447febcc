"""The engine: partitions in one object store and one metastore, compacted by any broker, with the caller's clock.

    cloud = Cloud()
    cloud.create("orders-0", Settings(delete_retention_ms=1000))
    cloud.append("orders-0", [batch])
    name = cloud.poll(broker=3, now_ms=10)
    job = cloud.begin(3, name, now_ms=10)
    why_not = cloud.commit(job, now_ms=20)

With all rules on, one call of ``commit`` is the whole commit. With a rule for atomicity off, call it again while
``job.updates`` is not empty; a crash may happen in between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from harness.models.cloud_topics.compaction import Settings, begin_pass, dirty, removable
from harness.models.cloud_topics.metastore import Log, Update, appended, applied, overlap, refusal, stages
from harness.models.log.batch import ModelBatch, size_bytes


@dataclass(frozen=True, slots=True)
class CompactionNeed:
    """The reason why a log is eligible. ``lag_ms``: the age of its oldest dirty record."""

    name: str
    dirty_ratio: float
    lag_ms: int
    is_overdue: bool


def need(name: str, log: Log, settings: Settings, *, now_ms: int) -> CompactionNeed | None:
    """Return why a log is eligible now; None if it is not.

    The post names the dirty ratio (dirty bytes of all bytes, against min.cleanable.dirty.ratio) and the time since data
    became eligible (max.compaction.lag.ms). As in Kafka, the ratio must be exceeded, and data are eligible from
    when they were written. A batch with a dirty record counts as dirty as a whole. Decided here: a log with
    removable tombstones is eligible too; otherwise they would stay in a log without new records.
    """
    unclean = dirty(log)
    batches = [batch for piece in log.objects for batch in piece.batches]
    dirty_batches = [batch for batch in batches if overlap(unclean, batch.base_offset, batch.last_offset + 1)]
    stamps_ms = (record.timestamp_ms for batch in dirty_batches for record in batch.records)
    lag_ms = max(0, now_ms - min(stamps_ms, default=now_ms))
    ratio = size_bytes(dirty_batches) / size_bytes(batches) if batches else 0.0
    is_overdue = bool(dirty_batches) and lag_ms >= settings.max_compaction_lag_ms
    if ratio > settings.min_cleanable_dirty_ratio or is_overdue or removable(log, settings, now_ms=now_ms):
        return CompactionNeed(name, ratio, lag_ms, is_overdue)
    return None


def queue(needs: Iterable[CompactionNeed]) -> list[CompactionNeed]:
    """Return logs in the order of their turns.

    The post names both criteria, not how they are weighed. Decided here: logs that have reached
    max.compaction.lag.ms come first, as that setting is a guarantee; then the highest dirty ratio, as in Kafka; then
    the lag.
    """
    return sorted(needs, key=lambda need: (not need.is_overdue, -need.dirty_ratio, -need.lag_ms, need.name))


@dataclass(slots=True)
class Stored:
    """One partition: its settings, and its log in the metastore."""

    settings: Settings
    log: Log = field(default_factory=Log)


@dataclass(slots=True, eq=False)
class Job:
    """One pass at one broker. ``updates``: the updates that are not committed yet; empty once the pass is over."""

    broker: int
    name: str
    update: Update
    updates: tuple[Update, ...]


@dataclass(slots=True)
class Cloud:
    """The state of all partitions.

    ``running``: the logs that workers of a broker have taken. Its scheduler has no information about other brokers (the
    post), so two brokers may compact one log at once: the metastore accepts the first update.
    """

    partitions: dict[str, Stored] = field(default_factory=dict)
    running: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    jobs: list[Job] = field(default_factory=list)

    def create(self, name: str, settings: Settings) -> None:
        """Add an empty partition; raises ``ValueError`` if the name exists."""
        if name in self.partitions:
            raise ValueError(f"{name} already exists")
        self.partitions[name] = Stored(settings)

    def append(self, name: str, batches: Sequence[ModelBatch]) -> None:
        """Append decided batches of L0 as one object; raises ``ValueError`` for others."""
        stored = self.partitions[name]
        stored.log = appended(stored.log, batches)

    def poll(self, broker: int, *, now_ms: int) -> str | None:
        """Give an idle worker of a broker, the next log of any (the post); None without a free log."""
        needs = (
            need(name, stored.log, stored.settings, now_ms=now_ms)
            for name, stored in self.partitions.items()
            if name not in self.running[broker]
        )
        name = next((need.name for need in queue(filter(None, needs))), None)
        if name is not None:
            self.running[broker].add(name)
        return name

    def begin(self, broker: int, name: str, *, now_ms: int) -> Job | None:
        """Run a pass over a log, also without ``poll``, and upload its objects; None without any work."""
        stored = self.partitions[name]
        update = begin_pass(stored.log, stored.settings, now_ms=now_ms)
        if update is None:
            self.running[broker].discard(name)
            return None
        job = Job(broker, name, update, stages(update, stored.settings.without))
        self.running[broker].add(name)
        self.jobs.append(job)
        return job

    def commit(self, job: Job, *, now_ms: int) -> str | None:
        """Ask the metastore for the next step of a job's update; return why it is refused, None if it is applied.

        A refused job is over: its objects never become part of the log. Raises ``ValueError`` for a job that
        is over already.
        """
        if not job.updates:
            raise ValueError(f"the pass of broker {job.broker} over {job.name} is over")
        stored = self.partitions[job.name]
        without = stored.settings.without
        why_not = refusal(stored.log, job.updates[0], without)
        if why_not is None:
            stored.log = applied(stored.log, job.updates[0], now_ms=now_ms, without=without)
            job.updates = job.updates[1:]
        if why_not is not None or not job.updates:
            self.end(job)
        return why_not

    def crash(self, broker: int) -> list[Job]:
        """Let a broker lose its passes and its scheduler's state, and return the passes. The logs are shared."""
        lost = [job for job in self.jobs if job.broker == broker]
        for job in lost:
            self.end(job)
        self.running.pop(broker, None)
        return lost

    def end(self, job: Job) -> None:
        """End a pass; updates that are not committed yet never are."""
        job.updates = ()
        self.jobs.remove(job)
        self.running[job.broker].discard(job.name)
