"""``harness run``: from options to a run that is conducted to its verdict."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.clients import find_client
from harness.cluster.boot import equip
from harness.errors import UsageError
from harness.host.clock import RealClock
from harness.host.java import find_java
from harness.host.ports import free_ports
from harness.judge.sessions import CHECKS
from harness.kafka_api.security import read_security
from harness.models.cluster.settings import raise_if_unknown
from harness.play import aftermath, applications
from harness.play.begin import SCHEDULE, begin, without_secrets
from harness.play.contradictions import raise_if_contradictory
from harness.play.lifecycle import Job, conduct
from harness.play.protection import GUARDED_RETENTION_MS
from harness.play.test import Test
from harness.run_folder import store
from harness.runtimes import AUTO, LOCAL, choose
from harness.runtimes.base import Wanted
from harness.schedules.catalog import CONTROL, scenarios_for
from harness.schedules.placement import place
from harness.schedules.sentences import scenario_of, write_schedule
from harness.schedules.timers import find_timers
from harness.spark.background import find_archive
from harness.systems import find_system
from harness.targets import SIMULATED, Target, exact_name, find_target
from harness.targets.applications import RELEASES, jars_of
from harness.targets.settings import note_on
from nemesis import SCRIPTS, find_script
from workloads.applications import find_application

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.judge.outcome import Progress, RunResult
    from harness.play.options import RunOptions
    from harness.run_folder.manifest import Manifest
    from harness.run_folder.store import RunFolder

RETENTION = "delete.retention.ms"
EXPIRY_CHECK_MS = "1000"
"""How often coordinators look for expired offsets. Kafka's default is ten minutes."""


def run(options: RunOptions, progress: Progress, command_line: Callable[[RunOptions], str]) -> RunResult:
    """Run the scenarios in one outage and judge what was collected. Raises as `conduct` does.

    ``command_line``: returns the command that asks for the same run.
    """
    clock = RealClock(time_limit_s=options.time_limit_s)
    raise_if_contradictory(options)
    job = assemble(options, progress)
    if job.equipment.target.build is not None:
        progress.stage(f"{job.equipment.target.name}: {job.equipment.target.note}")
    if note := (options.topic_settings or options.broker_settings) and note_on(job.equipment.target):
        progress.stage(note)
    folder = store.create_run_folder(
        options.results, job.equipment.target.name, options.anomaly or SCHEDULE, store.new_run_id()
    )
    if options.schedule is not None:
        write_schedule(folder.path / store.SCHEDULE, options.schedule)

    def begun() -> Manifest:
        return begin(folder, job, command_line(repeatable(job, folder)))

    return conduct(job, folder, begun, job.equipment.ready.clock(clock), progress)


def assemble(options: RunOptions, progress: Progress) -> Job:
    """Find all that a run takes, whether it begins or goes on. Raises `UsageError` for what is missing or unfit."""
    target, test = find_target(options.target), test_of(options)
    if options.aftermath:
        aftermath.raise_if_pointless(test)
    if options.application:
        has_login = options.command_config is not None
        applications.raise_if_unfit(test, target, find_application(options.application), has_login=has_login)
    client = find_client(test.client)
    security = read_security(options.command_config) if options.command_config else None
    if target.system in SIMULATED:
        raise_if_unknown(test.topic_settings, test.broker_settings)
    java = find_java()
    wanted = Wanted(target, java, progress.jars, needs=test.nemesis.needs, image=options.image, access=options.access)
    runtime, reason = choose(runtime_of(options), wanted)
    if reason is not None:
        progress.stage(f"runtime {runtime} ({reason})")
    if options.spark.is_one_plain_jvm:
        find_archive(java, CHECKS)  # a missing archive is made while jars are fetched
    equipment = equip(
        wanted,
        runtime,
        has_jvm_clients=client.needs_jars and not test.system.has_own_clients,
        gate=(options.gate_options or "") if options.gate else None,
    )
    ports = free_ports(len(test.placement.brokers) + len(test.placement.controllers), base=options.port_base)
    installed = _install(options.application, target, progress) if options.application else None
    return Job(options, test, equipment, ports, security, installed)


def runtime_of(options: RunOptions) -> str:
    """Return the name of the runtime that is asked for: brokers with the gate are local ones, unless one is named."""
    return LOCAL if options.gate and options.runtime == AUTO else options.runtime


def _for_guard(topic_settings: Mapping[str, str]) -> dict[str, str]:
    """Return what a guard needs: a retention in which it looks several times."""
    retention_ms = max(int(topic_settings[RETENTION]), GUARDED_RETENTION_MS)
    return {RETENTION: str(retention_ms)}


def _install(name: str, target: Target, progress: Progress) -> applications.Installed:
    version = RELEASES[name].version_for(target)
    return applications.Installed(find_application(name), version, jars_of(name, target, progress.jars))


def repeatable(job: Job, folder: RunFolder) -> RunOptions:
    """Return the options with what was left open decided as it was: seed, runtime, and the version of a short name.

    Files are named so that they are found from any directory; a schedule is that of the run folder. Secrets among the
    brokers' settings are hidden, as everywhere in a run folder.
    """
    options = job.options
    access = options.access
    return replace(
        options,
        target=exact_name(job.equipment.target),
        seed=job.test.seed,
        runtime=job.equipment.runtime_name,
        broker_settings=without_secrets(options.broker_settings),
        schedule_path=(folder.path / store.SCHEDULE).absolute() if options.schedule else None,
        command_config=options.command_config.absolute() if options.command_config else None,
        access=replace(access, key=_absolute(access.key), known_hosts=_absolute(access.known_hosts))
        if access
        else None,
    )


def _absolute(path: str | None) -> str | None:
    return None if path is None else str(Path(path).absolute())


def test_of(options: RunOptions) -> Test:
    """Return the test that the options ask for. Raises `UsageError` for names and numbers that do not fit."""
    target, timers, nemesis = find_target(options.target), find_timers(options.timers), find_script(options.nemesis)
    system = find_system(target.system)
    placement = place(
        brokers=options.brokers,
        replication_factor=options.replication_factor,
        partitions=options.partitions,
        absent=options.absent,
        quorum=nemesis.quorum,
        has_odd_replicas=system.has_odd_replicas,
    )
    if nemesis.name in system.unsupported_nemeses:
        supported = ", ".join(name for name in SCRIPTS if name not in system.unsupported_nemeses)
        raise UsageError(f"--nemesis {nemesis.name}: {system.name} cannot be put through it; choose {supported}")
    if reason := system.why_unfit(placement):
        raise UsageError(reason)
    if reason := nemesis.why_unfit(placement):
        raise UsageError(f"--nemesis {nemesis.name}: {reason}")
    topic_settings, broker_settings = system.settings(target, timers, nemesis.broker_settings)
    scenarios = (
        (scenario_of(options.schedule),) if options.schedule else scenarios_for(options.anomaly, target.group_protocols)
    )
    if options.application:
        scenarios = (*scenarios, *find_application(options.application).scenarios)
    groups = placement.partitions * sum(scenario.kind.is_of_groups for scenario in scenarios)
    return Test(
        scenarios=(*scenarios, CONTROL),
        nemesis=nemesis,
        timers=system.timers(timers),
        topic_settings={
            **topic_settings,
            **(_for_guard(topic_settings) if options.guard else {}),
            **options.topic_settings,
        },
        broker_settings={
            **({"offsets.retention.check.interval.ms": EXPIRY_CHECK_MS} if groups else {}),
            **broker_settings,
            **options.broker_settings,
            # A coordinator takes its number from the topic only if that exists when the broker starts.
            **({"offsets.topic.num.partitions": str(groups)} if groups else {}),
        },
        placement=placement,
        seed=secrets.randbelow(2**31) if options.seed is None else options.seed,
        client=options.client,
        system_name=target.system,
        group_protocols=target.group_protocols,
    )
