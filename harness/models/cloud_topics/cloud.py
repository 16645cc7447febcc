"""The engine: partitions in one object store and one metastore, compacted by any broker, with the caller's clock.

    cloud = Cloud()
    cloud.create("orders-0", Settings(delete_retention_ms=1000))
    cloud.append("orders-0", [batch])
    name = cloud.poll(broker=3, now_ms=10)
    job = cloud.begin(3, name, now_ms=10)
    why_not = cloud.commit(job, now_ms=20)

With all rules on, one call of ``commit`` is the whole commit. With a rule for atomicity off, call it again while
``job.left`` is not empty; a crash may happen in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.models.cloud_topics.compaction import begin_pass
from harness.models.cloud_topics.metastore import Log, appended, applied, refusal, stages
from harness.models.cloud_topics.rules import ALL_ON
from harness.models.cloud_topics.scheduler import Scheduler, need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.models.cloud_topics.compaction import Settings
    from harness.models.cloud_topics.metastore import Update
    from harness.models.log.batch import Batch


@dataclass(slots=True)
class Stored:
    """One partition: its settings, and its log in the metastore."""

    settings: Settings
    log: Log = field(default_factory=Log)


@dataclass(slots=True, eq=False)
class Job:
    """One pass at one broker. ``left``: the updates that are not committed yet; empty once the pass is over."""

    broker: int
    name: str
    update: Update
    left: tuple[Update, ...]


@dataclass(slots=True)
class Cloud:
    """The state of all partitions."""

    without: frozenset[str] = ALL_ON
    partitions: dict[str, Stored] = field(default_factory=dict)
    schedulers: dict[int, Scheduler] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)

    def create(self, name: str, settings: Settings) -> None:
        """Add an empty partition; raises ``ValueError`` if the name exists."""
        if name in self.partitions:
            raise ValueError(f"{name} is there already")
        self.partitions[name] = Stored(settings)

    def append(self, name: str, batches: Sequence[Batch]) -> None:
        """Append decided batches of L0 as one object; raises ``ValueError`` for others."""
        stored = self.partitions[name]
        stored.log = appended(stored.log, batches)

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
        update = begin_pass(stored.log, stored.settings, now_ms=now_ms, without=self.without)
        if update is None:
            self._scheduler(broker).finished(name)
            return None
        job = Job(broker, name, update, stages(update, self.without))
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

    def _scheduler(self, broker: int) -> Scheduler:
        return self.schedulers.setdefault(broker, Scheduler())

    def _end(self, job: Job) -> None:
        job.left = ()
        self.jobs.remove(job)
        self._scheduler(job.broker).finished(job.name)
