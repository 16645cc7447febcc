"""A run while it goes on: who owns what, from the first broker to the verdict."""

from __future__ import annotations

import json
import logging
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from harness.clients import ClientSpec
from harness.errors import HarnessError, TimeLimitError, interruptible
from harness.escape import log_formatter
from harness.host import leftovers
from harness.host.workspace import Workspace
from harness.judge.outcome import RunResult
from harness.report.ahead import drawing_ahead, write_if_possible
from harness.run import aftermath
from harness.run.runner import Run
from harness.run_folder.store import COMPLETE, HARNESS_LOG, RUNNING, point_latest
from harness.runtimes.base import ClusterSpec, bootstrap_servers
from harness.spark.options import SparkOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from harness.brokers.protocol.security import Security
    from harness.clients import MakeProducer
    from harness.cluster.cluster import Cluster
    from harness.host.clock import Clock
    from harness.host.java import Java
    from harness.judge.check import Prepared
    from harness.judge.outcome import Progress
    from harness.run.runner import Test
    from harness.run_folder.manifest import Manifest
    from harness.run_folder.store import RunFolder
    from harness.runtimes.base import Ready, Runtime

log = logging.getLogger("harness")

SPARK_NICENESS = 10
REPORT_MODULE = "harness.report.page"
SPARK_END_POLL_S = 0.2
FAILED, TIME_LIMIT, INTERRUPTED = "failed", "time-limit", "interrupted"


@dataclass(frozen=True)
class Job:
    """A run that is about to begin or to go on.

    ``begin`` writes its manifest. ``classpath`` is the client's. ``ports`` are one a broker, then one a controller.
    ``security``: how clients log in, where brokers ask for that.
    """

    test: Test
    folder: RunFolder
    java: Java
    ready: Ready
    classpath: str
    ports: Sequence[int]
    begin: Callable[[], Manifest]
    is_resumed: bool = False
    keep: bool = False
    aftermath: bool = False
    security: Security | None = None
    spark: SparkOptions = field(default_factory=SparkOptions)


def conduct(job: Job, clock: Clock, progress: Progress) -> RunResult:
    """Take a run to its verdict, and take it apart.

    Raises `UsageError` for anything found wrong before the first broker starts, `HarnessError` where the
    cluster did not come up. Later failures end in the verdict ``unknown``, with what was collected kept.
    """
    test, folder = job.test, job.folder
    with interruptible(lambda: _interruption_message(folder)), ExitStack() as owned:
        owned.enter_context(_logging_to(folder.path / HARNESS_LOG))
        workspace = owned.enter_context(Workspace(folder.run_id, folder.path, again=job.is_resumed))
        if not job.keep:
            owned.callback(_log_how_to_resume, workspace)
        manifest = job.begin()
        runtime = job.ready.make(
            ClusterSpec(
                run_id=folder.run_id,
                work_dir=workspace.path,
                logs_dir=folder.logs_path,
                settings=test.broker_settings,
                brokers=test.placement.brokers,
                controllers=test.placement.controllers,
                ports=tuple(job.ports),
                needs=test.nemesis.needs,
                security=job.security,
                clock=clock,
                seed=test.seed,
            )
        )
        owned.callback(_close, runtime, keep=job.keep)
        # Before Spark, which changes the environment that a new process inherits.
        client = ClientSpec(
            run_id=folder.run_id,
            bootstrap=bootstrap_servers(runtime),
            java=job.java,
            classpath=job.classpath,
            work_dir=workspace.path,
            log_path=folder.path / "client.log",
            security=job.security,
        )
        make_producer = owned.enter_context(test.system.client(runtime, test.client).opened(client))
        stages = _Stages(clock, progress)
        meanwhile = not test.timers.is_resumable
        prepared = owned.enter_context(_checkers(workspace, job, meanwhile=meanwhile))

        def on_window() -> None:
            if test.timers.is_resumable and job.ready.is_resumable and test.nemesis.reinject is not None:
                workspace.let_resume(resumable=True)

        run = Run(test, runtime, make_producer, folder, clock=clock, progress=stages.begin, on_window=on_window)
        _carry_out(run.resume if job.is_resumed else run.run, run, manifest, stages)
        if manifest.content["status"] == COMPLETE:
            workspace.let_resume(resumable=False)
            if run.cluster is not None:
                manifest.content["coordination"] = run.cluster.control.coordination()
            if job.aftermath and run.cluster is not None:
                _follow(run.cluster, test, make_producer, manifest=manifest, stages=stages)
                manifest.list_evidence()
        if not job.keep:
            _close(runtime)
        stages.begin("check")
        from harness.judge.check import judge_run, run_checkers, store  # noqa: PLC0415  (loaded by now)

        with drawing_ahead(folder) as drawn:
            results = run_checkers(prepared()) if manifest.content["status"] == COMPLETE else None
        judgement = judge_run(results, folder, manifest.content)
        stages.end()
        verdict = judgement.verdict
        verdict["timings_s"] = stages.timings_s
        manifest.time(stages.timings_s)
        store(folder, judgement)
        write_if_possible(folder, verdict, drawn())
        _point_latest_here(folder)
        kept = {}
        if job.keep:
            workspace.keep()
            kept = {broker: str(runtime.address(broker)) for broker in runtime.brokers}
        return RunResult(folder, verdict, kept)


def _close(runtime: Runtime, *, keep: bool = False) -> None:
    """Let go of the brokers. A failure here is logged, and takes nothing from the verdict."""
    try:
        runtime.close(keep=keep)
    except (HarnessError, OSError) as error:
        log.warning("the brokers were not let go of as they should be: %s", error)


def _interruption_message(folder: RunFolder) -> str:
    """Return what an interrupted run leaves, for its user."""
    try:
        status = json.loads(folder.manifest_path.read_text())["status"]
    except (OSError, ValueError, KeyError):
        status = RUNNING
    if status == COMPLETE:
        return f"the run is kept in {folder.path}/, and `harness check {folder.path}` judges it"
    return f"what was collected is kept in {folder.path}/, without a verdict"


def _point_latest_here(folder: RunFolder) -> None:
    try:
        point_latest(folder.path)
    except OSError as error:
        log.warning("latest does not point at %s: %s", folder.path, error.strerror or error)


def _log_how_to_resume(workspace: Workspace) -> None:
    owner = leftovers.read_owner(workspace.path)
    if owner is not None and owner.resumable:
        log.warning("this run can go on with `harness run --resume %s`", owner.run_dir)


def _carry_out(phases: Callable[[], None], run: Run, manifest: Manifest, stages: _Stages) -> None:
    """Run the phases and record in the manifest how they ended. Raises errors that leave nothing to judge."""
    try:
        phases()
    except TimeLimitError as error:
        manifest.finish(TIME_LIMIT, stages.timings_s, str(error))
    except Exception as error:
        why = str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
        manifest.finish(FAILED, stages.timings_s, why)
        log.exception("the run failed")
        if not run.is_observing:
            raise
    except BaseException:
        manifest.finish(INTERRUPTED, stages.timings_s, "interrupted")
        raise
    else:
        manifest.finish(COMPLETE, stages.timings_s)


def _follow(
    cluster: Cluster,
    test: Test,
    make_producer: MakeProducer,
    *,
    manifest: Manifest,
    stages: _Stages,
) -> None:
    """Watch what lasts. A failure here is logged, and takes nothing from the verdict."""
    expiration_ms = int(test.broker_settings.get(aftermath.EXPIRATION, aftermath.KAFKA_DEFAULT_EXPIRATION_MS))
    try:
        aftermath.follow(
            test, cluster, make_producer, manifest.folder, expiration_ms=expiration_ms, progress=stages.begin
        )
    except (HarnessError, OSError) as error:
        log.warning("the aftermath was not followed to its end: %s", error)
        manifest.content["aftermath_failure"] = str(error)
        manifest.write()


class _Stages:
    """Reports each stage to the progress display and the log, and adds up seconds per stage."""

    def __init__(self, clock: Clock, progress: Progress) -> None:
        self._clock = clock
        self._progress = progress
        self._current: tuple[str, float] | None = None
        self.timings_s: dict[str, float] = {}

    def begin(self, text: str) -> None:
        self.end()
        self._current = (text, self._clock.now_s())
        log.info("%s", text)
        self._progress.stage(text)

    def end(self) -> None:
        if self._current is not None:
            name, since_s = self._current
            self.timings_s[name] = round(self.timings_s.get(name, 0.0) + self._clock.now_s() - since_s, 3)
            self.timings_s["total"] = round(self._clock.now_s(), 3)
            self._current = None


@contextmanager
def _checkers(workspace: Workspace, job: Job, *, meanwhile: bool) -> Iterator[Callable[[], Prepared]]:
    """Give what has the checkers planned, in Spark in the background; ``meanwhile`` brokers boot and clean.

    Otherwise Spark is started when they are asked for, so as not to idle for days.
    """

    def prepare() -> Prepared:
        # Brokers come first: their timers run on wall-clock time. Spark's JVM inherits this thread's niceness.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), SPARK_NICENESS)
        from harness.judge.session import prepare_beside  # noqa: PLC0415  (brokers boot while pyspark is imported)

        prepared = prepare_beside(workspace, job.folder, job.java, job.spark)
        # What draws the report takes a second to load, which the cluster does not notice now.
        import_module(REPORT_MODULE)
        return prepared

    with ThreadPoolExecutor(1, thread_name_prefix="spark") as pool:
        futures: list[Future[Prepared]] = [pool.submit(prepare)] if meanwhile else []

        def prepared() -> Prepared:
            if not futures:
                futures.append(pool.submit(prepare))
            return futures[0].result()

        try:
            yield prepared
        finally:
            # Its JVM is ended and not stopped: nothing in it is needed any more, finished or not.
            while not all(future.done() for future in futures):
                leftovers.end_processes(workspace.run_id, carrying=leftovers.SPARK_MARKER)
                wait(futures, timeout=SPARK_END_POLL_S)
            leftovers.end_processes(workspace.run_id, carrying=leftovers.SPARK_MARKER)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    handler = logging.FileHandler(path)
    handler.setFormatter(log_formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    previous = log.level
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(previous)
        root.removeHandler(handler)
        handler.close()
