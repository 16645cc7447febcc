"""``harness run``: owns the processes and files of a run, from the first broker to the verdict."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from harness.broker_files.side_files.server_logs import ServerLogs
from harness.clients import ClientSpec
from harness.cluster.boot import client_spec, cluster_on
from harness.cluster.cluster import Cluster
from harness.errors import HarnessError, TimeLimitError, interruptible
from harness.escape import LogFormatter
from harness.host import leftovers
from harness.host.clock import Clock, RealClock, Stages
from harness.host.workspace import Workspace
from harness.judge.progress import Progress
from harness.judge.run_verdict import STALE_REQUESTS_UNKNOWN
from harness.judge.verdict import RunResult
from harness.kafka_api.messages import RefusedError
from harness.play import applications
from harness.play.begin import SCHEDULE, begin_manifest
from harness.play.group_workload import groups_of
from harness.play.options import RunOptions
from harness.play.protection import Gates, GuardBeside, Protection
from harness.play.run_plan import NO_FAULT, PreparedRun, RunPlan, plan_run, prepare_run, repeatable, run_schedule
from harness.play.run_player import RunPlayer
from harness.play.stale_requests import TOPIC as STALE_REQUESTS
from harness.play.stale_requests import accepted_stale_requests, delete_records_of_requests
from harness.protect.gate.events import parse_line
from harness.report.pictures.ahead import drawing_ahead, write_if_possible
from harness.run_folder import store
from harness.run_folder.manifest import Manifest
from harness.run_folder.store import COMPLETE, GATE, GUARD, GUARD_LOG, HARNESS_LOG, LATEST, LOGS, RUNNING, RunFolder
from harness.runtimes.base import ClusterSpec
from harness.schedules.schedule import write_schedule
from harness.targets import KAFKA
from harness.targets.settings import note_on

if TYPE_CHECKING:
    from harness.judge.check import Prepared

log = logging.getLogger("harness")

SPARK_NICENESS = 10
REPORT_MODULE = "harness.report.page"
SPARK_END_POLL_S = 0.2
FAILED, TIME_LIMIT, INTERRUPTED = "failed", "time-limit", "interrupted"


def run(options: RunOptions, progress: Progress, command_line: Callable[[RunOptions], str]) -> RunResult:
    """Run and judge scenarios; ``command_line`` returns the command for the same run. Raises as `conduct`."""
    clock = RealClock(time_limit_s=options.time_limit_s)
    prepared = prepare_run(plan_run(options), progress)
    target = prepared.plan.target
    if target.build is not None:
        progress.stage(f"{target.name}: {target.note}")
    if note := (options.topic_settings or options.broker_settings) and note_on(target):
        progress.stage(note)
    folder = store.create_run_folder(options.results, target.name, options.anomaly or SCHEDULE, store.new_run_id())
    write_schedule(folder.path / store.SCHEDULE, options.schedule or run_schedule(prepared.plan))

    def begun() -> Manifest:
        return begin_manifest(folder, prepared, command_line(repeatable(prepared, folder)))

    return conduct(prepared, folder, begun, prepared.equipment.ready.clock(clock), progress)


def conduct(
    run: PreparedRun,
    folder: RunFolder,
    begin: Callable[[], Manifest],
    clock: Clock,
    progress: Progress,
    *,
    is_resumed: bool = False,
) -> RunResult:
    """Take a run to its verdict, and take it apart. ``begin`` writes its manifest.

    Raises `UsageError` for anything found wrong before the first broker starts, `HarnessError` where the
    cluster did not come up. Later failures end in the verdict ``unknown``; the run folder keeps what was collected.
    """
    plan, options, equipment = run.plan, run.plan.options, run.equipment
    with interruptible(lambda: _interruption_message(folder)), ExitStack() as owned:
        owned.enter_context(_logging_to(folder.path / HARNESS_LOG))
        workspace = owned.enter_context(Workspace(folder.run_id, folder.path, again=is_resumed))
        manifest = begin()
        spec = ClusterSpec(
            run_id=folder.run_id,
            work_dir=workspace.path,
            logs_dir=folder.path / LOGS,
            settings=plan.broker_settings,
            brokers=plan.placement.brokers,
            controllers=plan.placement.controllers,
            ports=tuple(run.ports),
            needs=plan.needs,
            security=run.security,
            clock=clock,
            seed=plan.seed,
            jvm_flags=equipment.gate_flags(options.gate_options, plan.topic_settings),
        )
        running = owned.enter_context(ExitStack())
        cluster = running.enter_context(cluster_on(equipment, spec, settle_s=plan.timers.settle_s, keep=options.keep))
        # Before Spark, which changes the environment that a new process inherits.
        client = client_spec(equipment, spec, cluster.runtime, folder.path / "client.log")
        library = running.enter_context(plan.system.client(cluster.runtime, options.client)(client))

        def report(stage: str) -> None:
            log.info("%s", stage)
            progress.stage(stage)

        stages = Stages(clock.now_s, report)
        # Groups keep the processors busy until their records are removed, and leave them idle while they are observed.
        meanwhile = not plan.timers.is_resumable and not groups_of(plan)
        prepare = owned.enter_context(_checkers(workspace, folder, run, meanwhile=meanwhile))

        def on_window() -> None:
            # Spark is not to idle for days.
            if not plan.timers.is_resumable:
                prepare()
            elif equipment.ready.is_resumable and plan.nemesis.resume is not None:
                leftovers.change_owner(workspace.path, resumable=True)

        protection = _protection(run, folder, spec, clock, client.bootstrap)
        player = RunPlayer(plan, cluster, library, folder, stages.begin, on_window, protection, is_resumed)
        _carry_out(player, manifest, stages)
        manifest.content["departures"] = list(player.departures)
        if manifest.content["status"] == COMPLETE:
            leftovers.change_owner(workspace.path, resumable=False)
            manifest.content["coordination"] = cluster.control.coordination()
            _send_stale_requests(plan, cluster, manifest)
            _follow_up(run, player.cluster, client, manifest, stages.begin)
        running.close()
        stages.begin("check")
        from harness.judge.check import judge_run, run_checkers, store  # noqa: PLC0415  (with pyspark)

        with drawing_ahead(folder) as drawn:
            results = run_checkers(prepare().result()) if manifest.content["status"] == COMPLETE else None
        verdict = judge_run(results, folder, manifest.content)
        stages.end()
        timings_s = _timings_s(stages)
        verdict = replace(verdict, timings_s=timings_s)
        manifest.time(timings_s)
        store(folder, verdict, results)
        write_if_possible(folder, verdict, drawn())
        _point_latest_here(folder)
        addresses = {}
        if options.keep:
            workspace.keep()
            addresses = {broker: str(cluster.runtime.address(broker)) for broker in cluster.brokers}
        return RunResult(folder, verdict, addresses)


def _send_stale_requests(plan: RunPlan, cluster: Cluster, manifest: Manifest) -> None:
    """Note in the manifest which stale requests brokers accepted, or which valid one they refused, without a fault."""
    if plan.nemesis.name != NO_FAULT or plan.target.system != KAFKA or plan.is_served:
        return
    accepted: list[str] = []
    manifest.content |= {"accepted_requests": accepted, "stale_requests_sent": False}
    try:
        # Requests that were accepted before a failure stay in the list.
        accepted.extend(accepted_stale_requests(cluster, has_groups=bool(groups_of(plan))))
        delete_records_of_requests(cluster)
        manifest.content["stale_requests_sent"] = True
    except RefusedError as error:
        operation = f"{STALE_REQUESTS}, a valid request: {error}"
        manifest.content["refusal"] = {"process": STALE_REQUESTS, "error": str(error), "operation": operation}
    except (HarnessError, OSError) as error:
        log.warning("%s: %s", STALE_REQUESTS_UNKNOWN, error)
    manifest.write()


def _protection(
    run: PreparedRun, folder: RunFolder, spec: ClusterSpec, clock: Clock, bootstrap: str
) -> Protection | None:
    if run.plan.options.guard:
        login = run.plan.options.command_config
        return GuardBeside(folder.run_id, bootstrap, folder.path / GUARD, folder.path / GUARD_LOG, clock, login)
    if run.equipment.agent or run.equipment.target.build is not None:
        logs = {broker: spec.log_path(broker) for broker in spec.brokers}
        return Gates(ServerLogs(logs, parse_line), folder.path / GATE, is_build=not run.equipment.agent)
    return None


def _interruption_message(folder: RunFolder) -> str:
    """Return what an interrupted run leaves, for its user."""
    status = RUNNING
    with suppress(OSError, ValueError, KeyError):
        status = json.loads(folder.manifest_path.read_text())["status"]
    if status == COMPLETE:
        return f"the run is kept in {folder.path}/, and `harness check {folder.path}` judges it"
    return f"the collected evidence is kept in {folder.path}/, without a verdict"


def _point_latest_here(folder: RunFolder) -> None:
    draft = folder.path.with_name(f".{LATEST}-{folder.run_id}")
    try:
        draft.symlink_to(folder.run_id)
        draft.replace(draft.with_name(LATEST))
    except OSError as error:
        log.warning("latest does not point at %s: %s", folder.path, error.strerror or error)


def _timings_s(stages: Stages) -> dict[str, float]:
    return {**stages.took_s, "total": round(stages.now_s(), 3)}


def _carry_out(player: RunPlayer, manifest: Manifest, stages: Stages) -> None:
    """Play a run and record in the manifest how they ended. Raises errors that leave nothing to judge."""
    try:
        player.run()
    except TimeLimitError as error:
        manifest.finish(TIME_LIMIT, _timings_s(stages), str(error))
    except Exception as error:
        manifest.content |= player.failure
        why = str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
        manifest.finish(FAILED, _timings_s(stages), why)
        log.exception("the run failed")
        if not player.is_observing:
            raise
    except BaseException:
        manifest.finish(INTERRUPTED, _timings_s(stages), "interrupted")
        raise
    else:
        manifest.finish(COMPLETE, _timings_s(stages))


@contextmanager
def _checkers(
    workspace: Workspace, folder: RunFolder, run: PreparedRun, *, meanwhile: bool
) -> Iterator[Callable[[], Future[Prepared]]]:
    """Give a function that, when first called, starts Spark and has the checkers planned in the background.

    ``meanwhile``: call it at once, while brokers boot.
    """

    def prepared() -> Prepared:
        # Brokers come first: their timers run on wall-clock time. Spark's JVM inherits this thread's niceness.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), SPARK_NICENESS)
        from harness.judge.sessions import prepare_beside  # noqa: PLC0415  (brokers boot while pyspark is imported)

        planned = prepare_beside(workspace, folder, run.equipment.java, run.plan.options.spark)
        # The report's module takes a second to load; now the cluster does not notice.
        import_module(REPORT_MODULE)
        return planned

    with ThreadPoolExecutor(1, thread_name_prefix="spark") as pool:
        futures: list[Future[Prepared]] = []

        def prepare() -> Future[Prepared]:
            if not futures:
                futures.append(pool.submit(prepared))
            return futures[0]

        if meanwhile:
            prepare()
        try:
            yield prepare
        finally:
            # Its JVM is ended and not stopped: nothing in it is needed any more, finished or not.
            while not all(future.done() for future in futures):
                leftovers.end_processes(workspace.run_id, carrying=leftovers.SPARK_MARKER)
                wait(futures, timeout=SPARK_END_POLL_S)
            leftovers.end_processes(workspace.run_id, carrying=leftovers.SPARK_MARKER)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    handler, root, previous = logging.FileHandler(path), logging.getLogger(), log.level
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.setLevel(previous)
        root.removeHandler(handler)
        handler.close()


def _follow_up(
    run: PreparedRun, cluster: Cluster, client: ClientSpec, manifest: Manifest, progress: Callable[[str], None]
) -> None:
    """Observe an application, if any, and list the evidence again. A failure is logged alone."""
    if run.installed is None:
        return
    try:
        applications.follow(run.plan, cluster, manifest.folder, progress, installed=run.installed, client=client)
    except (HarnessError, OSError) as error:
        log.warning("the application was not followed to its end: %s", error)
        manifest.content["application_failure"] = str(error)
        manifest.write()
    manifest.list_evidence()
