"""The engine: partitions in one object store and one metastore, compacted by any broker, with the caller's clock.

    cloud = Cloud()
    cloud.create("orders-0", Settings(delete_retention_ms=1000))
    cloud.produce("orders-0", [(b"k", b"v")], now_ms=0)
    name = cloud.poll(broker=3, now_ms=10)
    job = cloud.begin(3, name, now_ms=10)
    why_not = cloud.commit(job, now_ms=20)

With all rules on, one call of ``commit`` is the whole commit. With a rule for atomicity off, call it again while
``job.left`` is not empty; a crash may happen in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.brokers.segments.records import Record
from models.batch import Batch
from models.cloud_topics.compaction import begin_pass
from models.cloud_topics.judge import wrong_in_log
from models.cloud_topics.metastore import Log, appended, applied, refusal, stages
from models.cloud_topics.rules import ALL_ON
from models.cloud_topics.scheduler import Scheduler, need

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from models.cloud_topics.compaction import Pass, Settings
    from models.cloud_topics.metastore import L1Object, Update


@dataclass(slots=True)
class Stored:
    """One partition: its settings, its log in the metastore, and, as the truth, every record that was ever written."""

    settings: Settings
    log: Log = field(default_factory=Log)
    written: list[Record] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Job:
    """One pass at one broker. ``left``: the updates that are not committed yet; empty once the pass is over."""

    broker: int
    name: str
    made: Pass
    left: tuple[Update, ...]


@dataclass(slots=True)
class Cloud:
    """The state of all partitions. ``uploaded``: every object that was ever uploaded, in order."""

    without: frozenset[str] = ALL_ON
    partitions: dict[str, Stored] = field(default_factory=dict)
    schedulers: dict[int, Scheduler] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    uploaded: list[L1Object] = field(default_factory=list)

    def create(self, name: str, settings: Settings) -> None:
        """Add an empty partition; raises ``ValueError`` if the name exists."""
        if name in self.partitions:
            raise ValueError(f"{name} is there already")
        self.partitions[name] = Stored(settings)

    def append(self, name: str, batches: Sequence[Batch]) -> None:
        """Append decided batches of L0 as one object; raises ``ValueError`` for others."""
        stored = self.partitions[name]
        log = appended(stored.log, batches)
        if log is stored.log:
            return
        stored.log = log
        stored.written += [record for batch in batches for record in batch.records]
        self.uploaded.append(log.objects[-1])

    def produce(self, name: str, records: Sequence[tuple[bytes, bytes | None]], *, now_ms: int) -> Batch:
        """Append one batch of keys and values without a producer id, and return the batch."""
        base = self.partitions[name].log.end_offset
        made = tuple(Record(base + index, now_ms, key, value) for index, (key, value) in enumerate(records))
        batch = Batch(base, base + len(made) - 1, made, now_ms)
        self.append(name, [batch])
        return batch

    def poll(self, broker: int, *, now_ms: int) -> str | None:
        """Return the log that an idle worker of a broker gets; any broker may compact any log (the post)."""
        needs = (
            need(name, one.log, one.settings, now_ms=now_ms, without=self.without)
            for name, one in self.partitions.items()
        )
        return self._scheduler(broker).poll(one for one in needs if one)

    def begin(self, broker: int, name: str, *, now_ms: int) -> Job | None:
        """Run a pass over a log as it is now and upload its objects; None where there is nothing to do.

        The log need not come from ``poll``: only the scheduler decides which logs are eligible.
        """
        stored = self.partitions[name]
        made = begin_pass(stored.log, stored.settings, now_ms=now_ms, without=self.without)
        if made is None:
            self._scheduler(broker).finished(name)
            return None
        self.uploaded += made.update.objects
        job = Job(broker, name, made, stages(made.update, self.without))
        self._scheduler(broker).running.add(name)
        self.jobs.append(job)
        return job

    def commit(self, job: Job, *, now_ms: int) -> str | None:
        """Ask the metastore for the next step of a job's update; return why it is refused, None if it is applied.

        A refused job is over: its objects never become part of the log. Raises ``ValueError`` for a job that
        is over already.
        """
        if not job.left:
            raise ValueError(f"the pass of broker {job.broker} over {job.name} is over")
        stored = self.partitions[job.name]
        why_not = refusal(stored.log, job.left[0], self.without)
        if why_not is None:
            stored.log = applied(stored.log, job.left[0], now_ms=now_ms, without=self.without)
            job.left = job.left[1:]
        if why_not is not None or not job.left:
            self._end(job)
        return why_not

    def crash(self, broker: int) -> list[Job]:
        """Let a broker lose its passes and its scheduler's state, and return the passes. The logs are shared."""
        lost = [job for job in self.jobs if job.broker == broker]
        for job in lost:
            self._end(job)
        self.schedulers.pop(broker, None)
        return lost

    def fetch(self, name: str, from_offset: int = 0) -> Iterator[Batch]:
        """Return the batches from an offset on, as any broker serves them: there is one copy."""
        for piece in self.partitions[name].log.objects:
            for batch in piece.batches:
                if batch.last_offset >= from_offset:
                    yield batch

    def orphans(self) -> list[L1Object]:
        """Return the objects that no log has and no pass is about to commit.

        Such an object was replaced, or was uploaded by a pass that was refused or crashed.
        """
        used = {piece for stored in self.partitions.values() for piece in stored.log.objects}
        used.update(piece for job in self.jobs for piece in job.made.update.objects)
        return [piece for piece in self.uploaded if piece not in used]

    def wrong(self, name: str) -> set[str]:
        """Return the names of the violations in a log now (``judge.NAMES``)."""
        stored = self.partitions[name]
        return wrong_in_log(stored.log, stored.written)

    def _scheduler(self, broker: int) -> Scheduler:
        return self.schedulers.setdefault(broker, Scheduler())

    def _end(self, job: Job) -> None:
        job.left = ()
        self.jobs.remove(job)
        self._scheduler(job.broker).finished(job.name)
