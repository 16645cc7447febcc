"""``harness run``: from options to a verdict, with everything that has to be owned on the way."""

from __future__ import annotations

import logging
import os
import secrets
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness import aftermath, leftovers, manifest, verdict
from harness.catalog import CONTROL, scenarios_for
from harness.clients import ClientSpec, find_client
from harness.clock import RealClock
from harness.errors import HarnessError, TimeLimitError, UsageError
from harness.java import find_java
from harness.placement import place
from harness.ports import free_ports
from harness.runner import Outage, Test
from harness.runtimes.base import bootstrap_servers
from harness.runtimes.local import LocalRuntime, LocalSpec
from harness.store import RunFolder, create_run_folder, new_run_id
from harness.targets import find_target
from harness.targets.jars import jars_for
from harness.timers import find_timers
from harness.workspace import Workspace
from nemesis import find_nemesis

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.check import Prepared
    from harness.clients import MakeProducer
    from harness.cluster import Cluster
    from harness.java import Java
    from harness.manifest import Manifest

log = logging.getLogger("harness")

SPARK_NICENESS = 10
SPARK_END_POLL_S = 0.2
FAILED, TIME_LIMIT, INTERRUPTED = "failed", "time-limit", "interrupted"


class Progress(Protocol):
    """Where a run tells what it is doing."""

    def stage(self, text: str) -> None:
        """A new stage begins."""
        ...

    def jars(self, done: int, total: int) -> None:
        """So many of so many steps of fetching jars are done."""
        ...


@dataclass(frozen=True)
class RunOptions:
    """What the user asked for; ``topic_settings`` and ``broker_settings`` win over the timers'."""

    target: str
    anomaly: str
    nemesis: str = "kill"
    client: str = "librdkafka"
    timers: str = "fast"
    brokers: int = 3
    replication_factor: int = 3
    partitions: int = 1
    absent: int = 1
    results: Path = Path("results")
    seed: int | None = None
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    time_limit_s: float | None = None
    keep: bool = False
    aftermath: bool = False
    port_base: int | None = None


@dataclass(frozen=True)
class RunResult:
    """A run's folder and verdict, and with ``--keep`` where its brokers are."""

    folder: RunFolder
    verdict: dict[str, Any]
    kept: dict[int, str]


def run(options: RunOptions, progress: Progress) -> RunResult:
    """Run the scenarios in one outage and judge what was collected.

    Raises `UsageError` for anything found wrong before the first broker starts, `HarnessError` where the
    cluster did not come up. Later failures end in the verdict ``unknown``, with what was collected kept.
    """
    clock = RealClock(time_limit_s=options.time_limit_s)
    target = find_target(options.target)
    chosen = scenarios_for(options.anomaly)
    timers = find_timers(options.timers)
    placement = place(
        brokers=options.brokers,
        replication_factor=options.replication_factor,
        partitions=options.partitions,
        absent=options.absent,
    )
    test = Test(
        scenarios=(*chosen, CONTROL),
        nemesis=find_nemesis(options.nemesis),
        timers=timers,
        topic_settings={**timers.topic, **options.topic_settings},
        seed=secrets.randbelow(2**31) if options.seed is None else options.seed,
        client=options.client,
        placement=placement,
    )
    if options.aftermath:
        aftermath.raise_if_pointless(test)
    open_client = find_client(options.client)
    broker_settings = {**timers.broker, **test.nemesis.broker_settings, **options.broker_settings}
    java = find_java()
    jars = jars_for(target, on_progress=progress.jars)
    # One that stays: an election in the middle of the outage would be a second fault.
    controllers = placement.staying[:1]
    ports = free_ports(len(placement.brokers) + len(controllers), base=options.port_base)
    run_id = new_run_id()
    folder = create_run_folder(options.results, target.name, options.anomaly, run_id)
    with ExitStack() as owned:
        owned.enter_context(_logging_to(folder.path / "harness.log"))
        workspace = owned.enter_context(Workspace(run_id, folder.path))
        runtime = LocalRuntime(
            LocalSpec(
                run_id=run_id,
                work_dir=workspace.path,
                logs_dir=folder.logs_path,
                java=java.path,
                classpath=jars.classpath,
                settings=broker_settings,
                brokers=placement.brokers,
                controllers=controllers,
                ports=tuple(ports),
            )
        )
        if not options.keep:
            owned.enter_context(closing(runtime))
        told = manifest.begin(
            folder, target=target, anomaly=options.anomaly, test=test, control=CONTROL,
            broker_settings=broker_settings, java=java, jars=jars,
        )  # fmt: skip
        # Before Spark, which changes the environment that a new process inherits.
        client = ClientSpec(
            run_id=run_id,
            bootstrap=bootstrap_servers(runtime),
            java=java,
            classpath=jars.classpath,
            work_dir=workspace.path,
            log_path=folder.path / "client.log",
        )
        make_producer = owned.enter_context(open_client(client))
        stages = _Stages(clock, progress)
        prepared = owned.enter_context(_checkers_meanwhile(workspace, folder, java))
        outage = Outage(test, runtime, make_producer, folder, clock=clock, progress=stages.begin)
        _go(outage, told, stages)
        if options.aftermath and outage.cluster is not None and told.content["status"] == verdict.COMPLETE:
            _follow(outage.cluster, test, make_producer, told=told, stages=stages)
        if not options.keep:
            runtime.close()
        stages.begin("check")
        from harness.check import judge_run  # noqa: PLC0415  (loaded by now)

        said = judge_run(prepared.result, folder, told.content)
        stages.end()
        said["timings_s"] = stages.timings_s
        told.time(stages.timings_s)
        folder.write_json(folder.verdict_path, said)
        kept = {}
        if options.keep:
            workspace.keep()
            kept = {broker: str(runtime.address(broker)) for broker in runtime.brokers}
        return RunResult(folder, said, kept)


def _go(outage: Outage, told: Manifest, stages: _Stages) -> None:
    """Run the outage and write down how it ended. Raises what leaves nothing to judge."""
    try:
        outage.run()
    except TimeLimitError as error:
        told.finish(TIME_LIMIT, stages.timings_s, str(error))
    except Exception as error:
        why = str(error) if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
        told.finish(FAILED, stages.timings_s, why)
        log.exception("the run failed")
        if not outage.is_observing:
            raise
    except BaseException:
        told.finish(INTERRUPTED, stages.timings_s, "interrupted")
        raise
    else:
        told.finish(verdict.COMPLETE, stages.timings_s)


def _follow(
    cluster: Cluster,
    test: Test,
    make_producer: MakeProducer,
    *,
    told: Manifest,
    stages: _Stages,
) -> None:
    """Watch what lasts. What fails here is told, and takes nothing from the verdict."""
    settings = told.content["broker_settings"]
    expiration_ms = int(settings.get(aftermath.EXPIRATION, aftermath.KAFKA_DEFAULT_EXPIRATION_MS))
    try:
        aftermath.follow(test, cluster, make_producer, told.folder, expiration_ms=expiration_ms, progress=stages.begin)
    except (HarnessError, OSError) as error:
        log.warning("the aftermath was not followed to its end: %s", error)
        told.content["aftermath_failure"] = str(error)
        told.write()


class _Stages:
    """Tells the progress and the log what begins, and adds up seconds per stage."""

    def __init__(self, clock: RealClock, progress: Progress) -> None:
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
def _checkers_meanwhile(workspace: Workspace, folder: RunFolder, java: Java) -> Iterator[Future[Prepared]]:
    """Start Spark in the background and plan the checkers, while brokers boot and clean."""

    def prepare() -> Prepared:
        # Brokers come first: their timers run on wall-clock time. Spark's JVM inherits this thread's niceness.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), SPARK_NICENESS)
        from harness.checking import prepare_beside  # noqa: PLC0415  (brokers boot while pyspark is imported)

        return prepare_beside(workspace, folder, java)

    with ThreadPoolExecutor(1, thread_name_prefix="spark") as pool:
        future = pool.submit(prepare)
        try:
            yield future
        finally:
            # Its JVM is ended and not stopped: nothing in it is needed any more, finished or not.
            while not future.done():
                leftovers.end_processes(workspace.run_id, carrying=leftovers.SPARK_MARKER)
                wait([future], timeout=SPARK_END_POLL_S)
            leftovers.end_processes(workspace.run_id, carrying=leftovers.SPARK_MARKER)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
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


def parse_settings(pairs: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Return topic and broker settings of ``--set topic.NAME=VALUE`` and ``--set broker.NAME=VALUE``.

    Raises `UsageError` for anything else.
    """
    settings: dict[str, dict[str, str]] = {"topic": {}, "broker": {}}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        scope, _, setting = name.partition(".")
        if not equals or scope not in settings or not setting:
            raise UsageError(f"--set {pair}: give topic.NAME=VALUE or broker.NAME=VALUE")
        settings[scope][setting.strip()] = value.strip()
    return settings["topic"], settings["broker"]
