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

from harness.broker_files.side_files.server_logs import ServerLogs
from harness.cluster.boot import client_spec, cluster_on
from harness.errors import HarnessError, TimeLimitError, interruptible
from harness.escape import LogFormatter
from harness.host import leftovers
from harness.host.workspace import Workspace
from harness.judge.outcome import RunResult
from harness.play import follow_ups
from harness.play.protection import Gates, GuardBeside
from harness.play.runner import Run
from harness.protect.gate.events import parse_line
from harness.report.pictures.ahead import drawing_ahead, write_if_possible
from harness.run_folder.store import COMPLETE, GATE, GUARD, GUARD_LOG, HARNESS_LOG, LATEST, LOGS, RUNNING
from harness.runtimes.base import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from harness.cluster.boot import Equipment
    from harness.host.clock import Clock
    from harness.judge.check import Prepared
    from harness.judge.outcome import Progress
    from harness.kafka_api.security import Security
    from harness.play.applications import Installed
    from harness.play.options import RunOptions
    from harness.play.protection import Protection
    from harness.play.test import Test
    from harness.run_folder.manifest import Manifest
    from harness.run_folder.store import RunFolder

log = logging.getLogger("harness")

SPARK_NICENESS = 10
REPORT_MODULE = "harness.report.page"
SPARK_END_POLL_S = 0.2
FAILED, TIME_LIMIT, INTERRUPTED = "failed", "time-limit", "interrupted"


@dataclass(frozen=True)
class Job:
    """All that a run takes, found and fit, before anything of it is started.

    ``ports`` are one a broker, then one a controller. ``security``: how clients log in, where brokers ask for that.
    ``installed``: the application on top, if any.
    """

    options: RunOptions
    test: Test
    equipment: Equipment
    ports: Sequence[int] = ()
    security: Security | None = None
    installed: Installed | None = None


def conduct(
    job: Job,
    folder: RunFolder,
    begin: Callable[[], Manifest],
    clock: Clock,
    progress: Progress,
    *,
    is_resumed: bool = False,
) -> RunResult:
    """Take a run to its verdict, and take it apart. ``begin`` writes its manifest.

    Raises `UsageError` for anything found wrong before the first broker starts, `HarnessError` where the
    cluster did not come up. Later failures end in the verdict ``unknown``, with what was collected kept.
    """
    test, options, equipment = job.test, job.options, job.equipment
    with interruptible(lambda: _interruption_message(folder)), ExitStack() as owned:
        owned.enter_context(_logging_to(folder.path / HARNESS_LOG))
        workspace = owned.enter_context(Workspace(folder.run_id, folder.path, again=is_resumed))
        if not options.keep:
            owned.callback(_log_how_to_resume, workspace)
        manifest = begin()
        spec = ClusterSpec(
            run_id=folder.run_id,
            work_dir=workspace.path,
            logs_dir=folder.path / LOGS,
            settings=test.broker_settings,
            brokers=test.placement.brokers,
            controllers=test.placement.controllers,
            ports=tuple(job.ports),
            needs=test.nemesis.needs,
            security=job.security,
            clock=clock,
            seed=test.seed,
            jvm_flags=equipment.gate_flags(options.gate_options, test.topic_settings),
        )
        running = owned.enter_context(ExitStack())
        cluster = running.enter_context(cluster_on(equipment, spec, settle_s=test.timers.settle_s, keep=options.keep))
        # Before Spark, which changes the environment that a new process inherits.
        client = client_spec(equipment, spec, cluster.runtime, folder.path / "client.log")
        library = running.enter_context(test.system.client(cluster.runtime, test.client).opened(client))
        stages = _Stages(clock, progress)
        meanwhile = not test.timers.is_resumable
        prepared = owned.enter_context(_checkers(workspace, folder, job, meanwhile=meanwhile))

        def on_window() -> None:
            if test.timers.is_resumable and equipment.ready.is_resumable and test.nemesis.resume is not None:
                workspace.let_resume(resumable=True)

        protection = _protection(job, folder, spec, clock, client.bootstrap)
        run = Run(test, cluster, library, folder, stages.begin, on_window, protection=protection)

        _carry_out(run.resume if is_resumed else run.run, run, manifest, stages)
        if manifest.content["status"] == COMPLETE:
            workspace.let_resume(resumable=False)
            manifest.content["coordination"] = cluster.control.coordination()
            follow_ups.observe(job, run.cluster, client, library, manifest, stages.begin)
        running.close()
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
        if options.keep:
            workspace.keep()
            kept = {broker: str(cluster.runtime.address(broker)) for broker in cluster.brokers}
        return RunResult(folder, verdict, kept)


def _protection(job: Job, folder: RunFolder, spec: ClusterSpec, clock: Clock, bootstrap: str) -> Protection | None:
    if job.options.guard:
        return GuardBeside(
            run_id=folder.run_id,
            bootstrap=bootstrap,
            path=folder.path / GUARD,
            log_path=folder.path / GUARD_LOG,
            clock=clock,
            command_config=job.options.command_config,
        )
    if job.equipment.agent or job.equipment.target.build is not None:
        return Gates(ServerLogs(_logs(spec), parse_line), folder.path / GATE, is_build=not job.equipment.agent)
    return None


def _logs(spec: ClusterSpec) -> dict[int, Path]:
    return {broker: spec.log_path(broker) for broker in spec.brokers}


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
    draft = folder.path.with_name(f".{LATEST}-{folder.run_id}")
    try:
        draft.symlink_to(folder.run_id)
        draft.replace(draft.with_name(LATEST))
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


@dataclass
class _Stages:
    """Reports each stage to the progress display and the log, and adds up seconds per stage."""

    clock: Clock
    progress: Progress
    timings_s: dict[str, float] = field(default_factory=dict)
    current: tuple[str, float] | None = None

    def begin(self, text: str) -> None:
        self.end()
        self.current = (text, self.clock.now_s())
        log.info("%s", text)
        self.progress.stage(text)

    def end(self) -> None:
        if self.current is not None:
            name, since_s = self.current
            self.timings_s[name] = round(self.timings_s.get(name, 0.0) + self.clock.now_s() - since_s, 3)
            self.timings_s["total"] = round(self.clock.now_s(), 3)
            self.current = None


@contextmanager
def _checkers(
    workspace: Workspace, folder: RunFolder, job: Job, *, meanwhile: bool
) -> Iterator[Callable[[], Prepared]]:
    """Give what has the checkers planned, in Spark in the background; ``meanwhile`` brokers boot and clean.

    Otherwise Spark is started when they are asked for, so as not to idle for days.
    """

    def prepare() -> Prepared:
        # Brokers come first: their timers run on wall-clock time. Spark's JVM inherits this thread's niceness.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), SPARK_NICENESS)
        from harness.judge.sessions import prepare_beside  # noqa: PLC0415  (brokers boot while pyspark is imported)

        prepared = prepare_beside(workspace, folder, job.equipment.java, job.options.spark)
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
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
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
