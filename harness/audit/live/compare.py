"""``harness audit live``: compares the replicas of a running cluster with each other and their brokers' answers.

Replicas are read batch by batch, at different times on different brokers, while producers and cleaners continue. They
are compared up to a bound that every replica had before any was read (`spool`). A difference below the bound that a
cleaner caused meanwhile goes away; so brokers are asked once more for what each difference rests on (`settle`). More
data than the limit of the spool is read and judged in waves of partitions, and a larger partition once for each share
of its keys.
"""

import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from checkers.finding import VISIBLE
from harness.audit.explain.advice import ANY_BROKER, Shell
from harness.audit.explain.impact import add_groups
from harness.audit.explain.metadata_evidence import evidence_of_cluster
from harness.audit.judge_copies import NO_ROWS, assemble, judge_copies
from harness.audit.live.broker_reports import ask_coordinators, replica_statuses, spans_between
from harness.audit.live.cluster import AuditedCluster, client_of, describe
from harness.audit.live.metadata_log import METADATA_FOLDER, fetch_metadata_log, verify_controllers
from harness.audit.live.prefilter import Prefiltered, Suspicion, open_without_records, prefilter
from harness.audit.live.reading import PATIENCE_S, RateLimit
from harness.audit.live.request import AuditRequest
from harness.audit.live.settle import CheckedReading, merged, read_in_shares, read_until_settled, still_there, without
from harness.audit.live.spool import ReadWithExecutors, SpoolResult, copies_of, partition_sizes, spool, waves_of
from harness.broker_files.copies.copies import Copies
from harness.broker_files.metadata_log.join import JoinedLog
from harness.broker_files.segments.key_share import KeyShare
from harness.errors import HarnessError, UsageError, raised_as
from harness.host.java import Java, find_java
from harness.host.leftovers import PRIVATE
from harness.host.workspace import Workspace
from harness.judge.finding import Finding, Place
from harness.judge.progress import Progress
from harness.judge.sessions import CHECKS
from harness.judge.verdict import UnknownReason, Verdict
from harness.run_folder.store import AUDIT_RUN, RunFolder, new_run_id
from harness.spark.background import start_compilation
from harness.spark.jobs import stages_reported
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import release, session_of

NOT_READ = "data was not read (--quick): the verdict rests on the brokers' reports of transactions"
UNVERIFIED = UnknownReason("changing", "no broker described the partition after it was read: it may have changed")
INTERRUPTED = UnknownReason("interrupted", "the audit was interrupted before this partition was compared")


class InterruptedAudit(KeyboardInterrupt):
    """Ctrl-C while replicas were read or judged. ``verdict``: on what was compared before; the rest is unknown."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self.verdict = verdict


def audit_quickly(request: AuditRequest, progress: Progress) -> tuple[Verdict, Prefiltered]:
    """Return the verdict by the brokers' answers, without reading data, and the answers.

    Raises `UsageError` as `describe` and `prefilter`.
    """
    answers = _ask(request, progress)
    return answers.verdict(CheckedReading((), NO_ROWS, {}), {}, notes=(NOT_READ,)), answers.prefiltered


def audit_live(request: AuditRequest, progress: Progress, spark: SparkOptions) -> Verdict:
    """Return the verdict on every replica of the topics.

    Raises `InterruptedAudit` for an interrupt once the brokers were asked, `UsageError` as `describe`, `prefilter`,
    `verify_controllers` and `session_of` do and where ``save`` cannot be made, and `SpoolDiskError` where the data does
    not fit on the disk.
    """
    java = find_java()
    save_folder = None if request.save is None else _new_folder(request.save)
    answers, started_s = _ask(request, progress), time.monotonic()
    verify_controllers(answers.cluster.client, request.controllers, answers.cluster.state.cluster_id)
    # The amount of data is unknown before it is read, and reading leaves the processors idle.
    start_compilation()
    with (
        Workspace(answers.run_id, Path.cwd()) as workspace,
        closing(ReplicaComparer(workspace, java, spark, progress, save_folder)) as comparer,
    ):
        waves = [list(answers.cluster.state.partitions)]
        if save_folder is None:
            sizes = partition_sizes(answers.cluster, answers.prefiltered.statuses, waves[0])
            waves = waves_of(sizes, request.spool_limit_bytes)
        done: list[CheckedReading] = []
        interrupt: KeyboardInterrupt | None = None
        why = INTERRUPTED
        try:
            for number, places in enumerate(waves, 1):
                wave = f", wave {number} of {len(waves)}" if len(waves) > 1 else ""
                done.append(comparer.compare(answers, places, wave))
        except KeyboardInterrupt as error:
            interrupt = error
        except HarnessError as error:
            if not done:
                raise
            why = UnknownReason("not-read", str(error))
        unread = {place: (why,) for places in waves[len(done) :] for place in places}
        # Leadership is evidence only where it did not change while replicas were read.
        after = None
        with suppress(HarnessError):
            after = describe(answers.cluster.client, request.topics, may_miss=True) if done else None
        compared = merged([*done, CheckedReading((), NO_ROWS, unread)])
        log = None
        if request.controllers and after is not None:
            progress.stage("fetch the metadata log")
            log = metadata_log(request, after, save_folder or workspace.path)
        verdict = answers.verdict(compared, {"read_and_check": _since(started_s)}, after, log)
        if interrupt is not None:
            raise InterruptedAudit(verdict) from interrupt
        return verdict


def recreated(before: AuditedCluster, after: AuditedCluster | None) -> dict[Place, tuple[UnknownReason, ...]]:
    """Return the partitions of topics with another id now: the records that were read belong to two topics."""
    why = UnknownReason("changing", "its topic was deleted and created again while it was read")
    ids = {} if after is None else after.topic_ids
    topics = {topic for topic, topic_id in before.topic_ids.items() if ids.get(topic, topic_id) != topic_id}
    return {place: (why,) for place in before.state.partitions if place[0] in topics}


def reassigned(before: AuditedCluster, after: AuditedCluster | None) -> dict[Place, tuple[UnknownReason, ...]]:
    """Return the partitions whose replicas are on other brokers since, as these were not read."""
    why = UnknownReason("changing", "it was reassigned while it was read")
    return {
        place: (why,)
        for place, state in before.state.partitions.items()
        if after is not None
        if (now := after.state.partitions.get(place)) is not None and {*now.replicas} != {*state.replicas}
    }


@dataclass(frozen=True)
class AuditAnswers:
    """A cluster, and the answers of its brokers before any data is read. ``took_s``: how long these took."""

    request: AuditRequest
    run_id: str
    cluster: AuditedCluster
    prefiltered: Prefiltered
    took_s: float

    def verdict(
        self,
        last_readings: CheckedReading,
        timings_s: Mapping[str, float],
        after: AuditedCluster | None = None,
        log: JoinedLog | None = None,
        notes: Sequence[str] = (),
    ) -> Verdict:
        """Assemble the verdict by these answers and the last readings.

        ``after``: the cluster after the readings; ``log``: its metadata log then. None: not known, or not asked for.
        """
        request, cluster, state = self.request, self.cluster, self.cluster.state
        evidence, of_two_topics = evidence_of_cluster(cluster, after, log), recreated(cluster, after)
        last_readings, unsure = without(last_readings, of_two_topics), open_without_records(self.prefiltered.statuses)
        unverified = {copy.place: (UNVERIFIED,) for copy in last_readings.replicas if after is None}
        suspicions = [_finding(suspicion) for suspicion in self.prefiltered.suspicions]
        notes = (*cluster.notes, *cluster.selection, *self.prefiltered.notes, *(log.notes if log else ()), *notes)
        verdict = assemble(
            Copies(self.run_id, last_readings.replicas, notes=notes, topic_ids=cluster.topic_ids),
            last_readings.rows,
            timings_s={"ask": self.took_s, **timings_s},
            target={"name": "cluster", "cluster_id": state.cluster_id, "brokers": sorted(state.brokers)},
            evidence=evidence,
            unknown={**unsure, **unverified, **last_readings.unknown, **reassigned(cluster, after), **of_two_topics},
            broker_findings=[finding for finding in suspicions if finding.place not in of_two_topics],
            shell=Shell(",".join(map(str, request.bootstrap)) or ANY_BROKER, request.config, cluster.own_settings),
        )
        return add_groups(verdict, cluster, evidence.leaders)


@dataclass
class ReplicaComparer:
    """Reads, judges and settles partitions, wave after wave, in one Spark session, which starts with the first data.

    ``save``: the folder of the data; None for the workspace, where each reading is deleted once it is judged.
    ``outlives_jobs``: as in `SparkSpec`.
    """

    workspace: Workspace
    java: Java
    spark: SparkOptions
    progress: Progress
    save: Path | None = None
    outlives_jobs: bool = False
    session: SparkSession | None = None
    _owned: ExitStack = field(default_factory=ExitStack)

    def compare(self, answers: AuditAnswers, places: Collection[Place], wave: str = "") -> CheckedReading:
        """Return the last reading of each partition (`read_until_settled`). ``wave``: a remark for the progress."""

        def read(share: KeyShare) -> CheckedReading:
            return read_until_settled(
                partial(self._read, answers, share, wave), places, partial(still_there, answers.cluster)
            )

        return read_in_shares(read, places)

    def close(self) -> None:
        """End the session, if any; the next data start another one."""
        self.session = None
        self._owned.close()

    def _read(
        self, answers: AuditAnswers, share: KeyShare, wave: str, number: int, places: Collection[Place]
    ) -> CheckedReading:
        request, cluster = answers.request, answers.cluster
        readings = self.save or self.workspace.path / "readings"
        folder = RunFolder(readings / f"reading-{number}")
        try:
            # Executors read brokers, unless they see the folder.
            executors = self._executors(request) if self.spark.has_executors and self.save is None else None
            statuses = replica_statuses(cluster, places)
            # First the coordinators: transactions that they have completed are below the high watermarks to read to.
            transactions = None if request.is_limited else ask_coordinators(cluster, statuses.open_producers)
            replicas = [(broker, tp) for tp in places for broker in cluster.state.partitions[tp].replicas]
            limits = request.since_ms, request.until_ms
            spans, without_span = spans_between(cluster, *limits, places) if request.is_limited else ({}, {})
            again = " again: differences went away that cleaners had caused"
            part = "" if share.count == 1 else f", keys {share.number + 1} of {share.count}"
            self.progress.stage(f"read {len(replicas)} replicas{wave}{part}{again if number > 1 else ''}")
            rate = request.rate_limit_bytes_s
            read = spool(
                cluster,
                statuses.without(without_span),
                folder,
                replicas,
                limit=None if rate is None else RateLimit(rate, cluster.client.clock),
                spans=spans,
                on_progress=self.progress.reading,
                share=share,
                most_bytes=request.spool_limit_bytes if self.save is None else None,
                executors=executors,
            )
            copies = copies_of(folder, answers.run_id, read, transactions)
            # Unless executors read, Spark starts when there is something to judge: reading may take hours.
            session = self._session([readings])
            self.progress.stage(f"check {len(read.readings)} replicas")
            with stages_reported(session, self.progress.tasks):
                rows = judge_copies(session, [copies])
        finally:
            if self.save is None:
                shutil.rmtree(folder.path, ignore_errors=True)
        release(session)
        return CheckedReading(copies.replicas, rows, _unknown(read, is_limited=request.is_limited))

    def _session(self, folders: Sequence[Path]) -> SparkSession:
        if self.session is None:
            self.progress.stage("start Spark")
            host = self.workspace, self.java, self.spark
            starting = session_of(*host, folders, CHECKS, outlives_jobs=self.outlives_jobs)
            self.session = self._owned.enter_context(starting)
        return self.session

    def _executors(self, request: AuditRequest) -> ReadWithExecutors:
        from harness.audit.live.source import read_with_executors  # noqa: PLC0415  (slow imports)

        if (security := request.bootstrap[0].security) is not None:
            _ = security.without_files  # rejects a login that executors cannot use before Spark starts
        return partial(
            read_with_executors,
            session=self._session([]),
            rate_bytes_s=request.rate_limit_bytes_s,
            report=self.progress.tasks,
        )


def metadata_log(request: AuditRequest, cluster: AuditedCluster, parent: Path) -> JoinedLog:
    """Fetch the metadata log from the request's controllers, into a folder of its own in ``parent``."""
    state, folder = cluster.state, parent / METADATA_FOLDER
    return fetch_metadata_log(cluster.client, request.controllers, state.cluster_id, folder, state.topics)


def _ask(request: AuditRequest, progress: Progress) -> AuditAnswers:
    progress.stage("ask the cluster")
    return answers_of(request, describe(client_of(request.bootstrap), request.topics))


def answers_of(request: AuditRequest, cluster: AuditedCluster) -> AuditAnswers:
    """Ask the brokers about every replica. Raises `UsageError` as `prefilter`."""
    started_s = time.monotonic()
    prefiltered = prefilter(cluster)
    return AuditAnswers(request, f"{AUDIT_RUN}{new_run_id()}", cluster, prefiltered, _since(started_s))


def _unknown(read: SpoolResult, *, is_limited: bool) -> dict[Place, tuple[UnknownReason, ...]]:
    """Return by partition why it cannot be called clean."""
    reasons: dict[Place, dict[UnknownReason, None]] = {}
    for (broker, tp), why in sorted(read.failures.items()):
        reason = UnknownReason("not-read", f"the replica of broker {broker} was not read: {why}")
        reasons.setdefault(tp, {})[reason] = None
    limited = UnknownReason("limited", "only the records between --since and --until were read")
    why = f"its high watermark stayed behind for {PATIENCE_S:.0f} s"
    for (broker, tp), reading in read.readings.items():
        if is_limited or not reading.is_complete:
            behind = UnknownReason("behind", f"the replica of broker {broker} was not read to its end: {why}")
            reasons.setdefault(tp, {})[limited if is_limited else behind] = None
    return {tp: tuple(texts) for tp, texts in reasons.items()}


def _new_folder(path: Path) -> Path:
    with raised_as(UsageError, f"--save {path}", OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=PRIVATE, exist_ok=True)
        if any(path.iterdir()):
            raise UsageError(f"--save {path}: the folder is not empty; name a new folder")
    return path.absolute()


def _finding(suspicion: Suspicion) -> Finding:
    """Return a suspicion as a finding: every follower had its time to catch up."""
    transaction, described = suspicion.transaction, suspicion.coordinator
    return Finding(
        **{name: getattr(suspicion, name) for name in ("anomaly", "broker", "topic", "partition", "offset")},
        key=None,
        producer_id=None if transaction is None else transaction.producer_id,
        effect=VISIBLE,
        explanation=suspicion.explanation,
        witness={
            "other_broker": next(iter(suspicion.decided_on), None),
            "decided_on": list(suspicion.decided_on),
            "producer_epoch": None if transaction is None else transaction.producer_epoch,
            "transactional_id": None if described is None else described.transactional_id,
            "coordinator_says": None if described is None else described.state,
        },
    )


def _since(started_s: float) -> float:
    return round(time.monotonic() - started_s, 3)
