"""``harness run``: from options to a run that is conducted to its verdict."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness import aftermath, manifest
from harness.catalog import CONTROL
from harness.clients import find_client
from harness.clock import RealClock
from harness.conduct import Job, conduct
from harness.errors import UsageError
from harness.explore.schedule import looked_for
from harness.java import find_java
from harness.placement import place, ports_for
from harness.protocol.security import read_security
from harness.runner import Test
from harness.runtimes import AUTO, SIM, find_runtime
from harness.runtimes.base import Wanted
from harness.spark.options import SparkOptions
from harness.store import create_run_folder, new_run_id
from harness.systems import find_system
from harness.targets import SIMULATED, find_target
from harness.targets.jars import jars_for_client
from harness.timers import find_timers
from models.cluster.settings import raise_if_unknown
from nemesis import find_nemesis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.explore.schedule import Schedule
    from harness.manifest import Manifest
    from harness.outcome import Progress, RunResult
    from harness.runtimes.nodes import Access

SCHEDULE = "schedule"
"""Stands for the anomaly where a schedule was given."""


@dataclass(frozen=True)
class RunOptions:
    """What the user asked for; ``topic_settings`` and ``broker_settings`` win over the timers'.

    A ``schedule`` takes the place of ``anomaly``, which is "" then.
    """

    target: str
    anomaly: str
    schedule: Schedule | None = None
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
    runtime: str = AUTO
    image: str | None = None
    access: Access | None = None
    command_config: Path | None = None
    spark: SparkOptions = field(default_factory=SparkOptions)


def run(options: RunOptions, progress: Progress) -> RunResult:
    """Run the scenarios in one outage and judge what was collected. Raises as `conduct` does."""
    clock = RealClock(time_limit_s=options.time_limit_s)
    target = find_target(options.target)
    test = test_of(options)
    if options.aftermath:
        aftermath.raise_if_pointless(test)
    client = find_client(test.client)
    security = read_security(options.command_config) if options.command_config else None
    prepare = find_runtime(options.runtime)
    if target.system in SIMULATED:
        _raise_if_not_simulated(options)
        raise_if_unknown(test.topic_settings, test.broker_settings)
    java = find_java()
    ready = prepare(
        Wanted(target, java, progress.jars, needs=test.nemesis.needs, image=options.image, access=options.access)
    )
    needs_jars = client.needs_jars and not test.system.has_own_clients
    jars = ready.jars or jars_for_client(target, needed=needs_jars, on_progress=progress.jars)
    ports = ports_for(test.placement, options.port_base)
    folder = create_run_folder(options.results, target.name, options.anomaly or SCHEDULE, new_run_id())

    def begin() -> Manifest:
        return manifest.begin(
            folder,
            target=target,
            anomaly=options.anomaly or SCHEDULE,
            schedule=options.schedule,
            test=test,
            java=java,
            runtime=ready.told,
            jars=jars,
            security=security,
        )

    job = Job(
        test=test,
        folder=folder,
        java=java,
        ready=ready,
        classpath=jars.classpath if jars else "",
        ports=ports,
        begin=begin,
        keep=options.keep,
        aftermath=options.aftermath,
        security=security,
        spark=options.spark,
    )
    return conduct(job, ready.clock(clock), progress)


def _raise_if_not_simulated(options: RunOptions) -> None:
    """Raise `UsageError` for what only brokers outside of this process can be asked for."""
    asked = {
        f"--runtime {options.runtime}": options.runtime not in {AUTO, SIM},
        "--keep": options.keep,
        "--command-config": options.command_config is not None,
    }
    for option, is_asked in asked.items():
        if is_asked:
            raise UsageError(f"{option}: {options.target} is simulated, and gone when the run is over")


def test_of(options: RunOptions) -> Test:
    """Return the test that the options ask for. Raises `UsageError` for names and numbers that do not fit."""
    target, timers, nemesis = find_target(options.target), find_timers(options.timers), find_nemesis(options.nemesis)
    system = find_system(target.system)
    placement = place(
        brokers=options.brokers,
        replication_factor=options.replication_factor,
        partitions=options.partitions,
        absent=options.absent,
        quorum=nemesis.quorum,
        has_odd_replicas=system.has_odd_replicas,
    )
    if system.nemeses is not None and nemesis.name not in system.nemeses:
        raise UsageError(
            f"--nemesis {nemesis.name}: {system.name} cannot be put through it; choose {', '.join(system.nemeses)}"
        )
    if reason := system.why_unfit(placement):
        raise UsageError(reason)
    if reason := nemesis.why_unfit(placement):
        raise UsageError(f"--nemesis {nemesis.name}: {reason}")
    topic_settings, broker_settings = system.settings(target, timers, nemesis.broker_settings)
    return Test(
        scenarios=(*looked_for(options.anomaly, options.schedule), CONTROL),
        nemesis=nemesis,
        timers=system.timers(timers),
        topic_settings={**topic_settings, **options.topic_settings},
        broker_settings={**broker_settings, **options.broker_settings},
        placement=placement,
        seed=secrets.randbelow(2**31) if options.seed is None else options.seed,
        client=options.client,
        system_name=target.system,
    )


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
