"""``harness audit live``: the replicas of a running cluster, against each other and against what their brokers say."""

from __future__ import annotations

import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from checkers.finding import VISIBLE
from harness.audit.advice import ANY_BROKER
from harness.audit.cluster import describe
from harness.audit.coordinators import ask_coordinators
from harness.audit.judge import NO_ROWS, Beside, assemble, judge_copies
from harness.audit.knowledge import Knowledge, knowledge_of_cluster
from harness.audit.looks import look_at
from harness.audit.prefilter import prefilter
from harness.audit.rate import RateLimit
from harness.audit.rounds import Round, repeated
from harness.audit.span import spans_between
from harness.audit.spool import Spool, spool
from harness.audit.spooled import copies_of, store_words
from harness.brokers.copies.copies import Copies
from harness.brokers.segments.tombstones import BY_NULL
from harness.errors import UsageError
from harness.host.clock import RealClock
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.compilation import compile_beside
from harness.judge.session import session_of
from harness.run_folder.store import RunFolder, new_run_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import SparkSession

    from harness.audit.cluster import Cluster
    from harness.audit.coordinators import Words
    from harness.audit.looks import Looks
    from harness.audit.prefilter import Prefiltered, Suspicion
    from harness.audit.rounds import Place
    from harness.audit.spool import Progress as Amount
    from harness.audit.spool import Spooled
    from harness.brokers.protocol.wire import Address
    from harness.brokers.segments.tombstones import Tombstones
    from harness.spark.options import SparkOptions

NOT_READ = "data was not read (--quick): what is known is what brokers say of transactions"
LIMITED = "only what lies between --since and --until was read"
UNSETTLED = "it was written to while it was read: what its brokers say of it is about more than was read"


class Progress(Protocol):
    """Where an audit tells what it is doing."""

    def stage(self, text: str) -> None:
        """A new stage begins."""
        ...

    def reading(self, fraction: float, done_bytes: int) -> None:
        """So much was read."""
        ...


@dataclass(frozen=True)
class Request:
    """What is to be audited. Times are milliseconds since the epoch. ``keep``: a new folder for what is read.

    ``tombstones``: what deletes a key.
    """

    bootstrap: Sequence[Address]
    topics: Sequence[str]
    rate_limit_bytes_s: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    keep: Path | None = None
    tombstones: Tombstones = BY_NULL

    @property
    def is_limited(self) -> bool:
        """Whether only a part of the time is read."""
        return self.since_ms is not None or self.until_ms is not None


def audit_quickly(request: Request, progress: Progress) -> tuple[dict[str, Any], Prefiltered]:
    """Return the verdict on what brokers say, without reading data, and what they said.

    Raises `UsageError` as `describe` and `prefilter`.
    """
    clock = RealClock()
    cluster = _described(request, progress)
    started_s = time.monotonic()
    told = prefilter(cluster, clock)
    copies = Copies(f"audit-{new_run_id()}", (), notes=(*cluster.notes, *told.notes, NOT_READ))
    return assemble(
        copies, NO_ROWS, timings_s={"ask": _since(started_s)}, beside=_beside(request, cluster, told, {}, Knowledge())
    ), told


def audit_live(request: Request, progress: Progress, spark: SparkOptions) -> dict[str, Any]:
    """Return the verdict on every replica of the topics.

    Raises `UsageError` as `describe`, `prefilter` and `session_of` do and where ``keep`` cannot be made;
    `SpoolDiskError` where what is to be read does not fit on the disk.
    """
    clock, run_id, java = RealClock(), f"audit-{new_run_id()}", find_java()
    kept = None if request.keep is None else _new_folder(request.keep)
    cluster = _described(request, progress)
    started_s = time.monotonic()
    told = prefilter(cluster, clock)
    asked_s = _since(started_s)
    # How much there is to judge shows when it is read, and reading leaves the processors idle.
    compile_beside()
    with Workspace(run_id, Path.cwd()) as workspace, ExitStack() as owned:
        sessions: list[SparkSession] = []
        room = kept or workspace.path / "readings"

        def session() -> SparkSession:
            """Start Spark once there is something to judge: reading may take hours."""
            if not sessions:
                progress.stage("start Spark")
                sessions.append(owned.enter_context(session_of(workspace, java, spark, [room])))
            return sessions[0]

        audit = _Audit(request, run_id, cluster, clock, session, progress, room)
        known = repeated(audit.read)
        # Who leads is evidence only where nothing changed while replicas were read.
        knowledge = knowledge_of_cluster(cluster, describe(request.bootstrap, request.topics))
        copies = Copies(run_id, known.replicas, notes=(*cluster.notes, *told.notes))
        timings_s = {"ask": asked_s, "read_and_check": _since(started_s) - asked_s}
        return assemble(
            copies, known.rows, timings_s=timings_s, beside=_beside(request, cluster, told, known.unknown, knowledge)
        )


@dataclass(frozen=True)
class _Audit:
    """Reads and judges; ``room`` is where readings go, deleted once they are judged unless they are to be kept."""

    request: Request
    run_id: str
    cluster: Cluster
    clock: RealClock
    session: Callable[[], SparkSession]
    progress: Progress
    room: Path

    def read(self, number: int, places: Collection[Place] | None) -> Round:
        """Read every replica, or those of some partitions, and judge them.

        Coordinators are asked before: what they have finished by then is below the high watermarks that are read to.
        """
        folder = RunFolder(self.room / f"reading-{number}")
        looks = look_at(self.cluster, self.clock)
        words = None if self.request.is_limited else self._ask(looks)
        replicas = [
            (broker, tp)
            for tp, state in self.cluster.partitions.items()
            for broker in state.replicas
            if places is None or tp in places
        ]
        again = " again: what differs because the cluster goes on does not stay so" if number > 1 else ""
        self.progress.stage(f"read {len(replicas)} replicas{again}")
        read = spool(self.cluster, looks, folder, self._how(), replicas)
        copies = copies_of(folder, self.run_id, read, {} if words is None else store_words(folder, words))
        copies = replace(copies, tombstones=self.request.tombstones)
        session = self.session()
        self.progress.stage(f"check {len(read.readings)} replicas")
        rows = judge_copies(session, [copies])
        if self.request.keep is None:
            shutil.rmtree(folder.path)
        return Round(copies.replicas, rows, self._unknown(read))

    def _ask(self, looks: Looks) -> Words:
        producers = {held.producer_id for look in looks.replicas.values() for held in look.open or ()}
        return ask_coordinators(self.cluster, producers, self.clock)

    def _how(self) -> Spool:
        asked = self.request
        limit = None if asked.rate_limit_bytes_s is None else RateLimit(asked.rate_limit_bytes_s, self.clock)
        spans = spans_between(self.cluster, self.clock, asked.since_ms, asked.until_ms) if asked.is_limited else {}

        def tell(amount: Amount) -> None:
            self.progress.reading(amount.fraction, amount.bytes_done)

        return Spool(self.clock, limit, spans, tell)

    def _unknown(self, read: Spooled) -> dict[Place, tuple[str, ...]]:
        reasons: dict[Place, dict[str, None]] = {}
        for (broker, tp), why in sorted(read.failures.items()):
            reasons.setdefault(tp, {})[f"the replica of broker {broker} was not read: {why}"] = None
        for (_, tp), reading in read.readings.items():
            if self.request.is_limited or not reading.is_settled:
                reasons.setdefault(tp, {})[LIMITED if self.request.is_limited else UNSETTLED] = None
        return {tp: tuple(told) for tp, told in reasons.items()}


def _described(request: Request, progress: Progress) -> Cluster:
    progress.stage("ask the cluster")
    return describe(request.bootstrap, request.topics)


def _new_folder(path: Path) -> Path:
    """Make the folder for what is read. Raises `UsageError` where that cannot be or there is something in it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise UsageError(f"--keep {path}: there is something in it already; name a new folder")
    except OSError as error:
        raise UsageError(f"--keep {path}: {error.strerror or error}") from error
    return path.absolute()


def _beside(
    request: Request,
    cluster: Cluster,
    told: Prefiltered,
    unknown: Mapping[Place, tuple[str, ...]],
    knowledge: Knowledge,
) -> Beside:
    return Beside(
        target={"name": "cluster", "cluster_id": cluster.cluster_id, "brokers": sorted(cluster.brokers)},
        holders={tp: state.replicas for tp, state in cluster.partitions.items()},
        unknown=unknown,
        told=[_finding(one) for one in told.suspicions],
        knowledge=knowledge,
        bootstrap=",".join(map(str, request.bootstrap)) or ANY_BROKER,
    )


def _finding(one: Suspicion) -> dict[str, Any]:
    """Return a suspicion in the words of a finding: every follower was given its time to catch up."""
    held, word = one.transaction, one.coordinator
    return {
        "anomaly": one.anomaly,
        "candidates": [],
        "decided": True,
        "broker": one.broker,
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "key": None,
        "producer_id": None if held is None else held.producer_id,
        "effect": VISIBLE,
        "explanation": one.explanation,
        "witness": {
            "other_broker": next(iter(one.decided_on), None),
            "decided_on": list(one.decided_on),
            "producer_epoch": None if held is None else held.producer_epoch,
            "transactional_id": None if word is None else word.transactional_id,
            "coordinator_says": None if word is None else word.state,
        },
    }


def _since(started_s: float) -> float:
    return round(time.monotonic() - started_s, 3)
