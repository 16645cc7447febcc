"""The plan of a run: target, scenarios, fault, settings and placement, resolved once; its schedule, and its equipment.

`plan_run` is all that decides what a run does, and `run_schedule` has it in order: write, inject, end, wait until
removed, late writes, snapshot, heal, wait, snapshot. `prepare_run` finds Java, jars and the runtime on this host.
"""

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path

from harness.clients import JAVA, find_client
from harness.cluster.boot import Equipment, equip
from harness.errors import UsageError
from harness.host.java import find_java
from harness.host.ports import free_ports
from harness.judge.progress import Progress
from harness.judge.sessions import CHECKS
from harness.kafka_api import TopicPartition
from harness.kafka_api.security import Security, read_security
from harness.models.cluster.settings import raise_if_unknown
from harness.play import applications
from harness.play.begin import without_secrets
from harness.play.options import RunOptions, raise_if_contradictory
from harness.play.protection import GUARDED_RETENTION_MS
from harness.run_folder import store
from harness.run_folder.store import RunFolder
from harness.runtimes import AUTO, LOCAL, choose
from harness.runtimes.base import Need, RuntimeRequest
from harness.schedules.catalog import CONTROL, SERVED_SCENARIOS, scenarios_for
from harness.schedules.operations import End, Expose, Heal, Inject, TakeSnapshot, UntilInSync, UntilRemoved, of_process
from harness.schedules.placement import Placement, place
from harness.schedules.replay import scenarios_of
from harness.schedules.scenario import Kind, Scenario, client_name
from harness.schedules.schedule import RoundClient, RoundPlan, RoundTopic, Schedule, in_order
from harness.schedules.timers import Timers, find_timers
from harness.spark.background import find_archive
from harness.systems import System, find_system
from harness.targets import SIMULATED, Target, exact_name, find_target
from nemesis import SCRIPTS, find_script
from nemesis.script import Script
from workloads.applications import find_application

NO_FAULT = "none"
RETENTION = "delete.retention.ms"
EXPIRY_CHECK_MS = "1000"
"""The period in which coordinators look for expired offsets. Kafka's default is ten minutes."""


@dataclass(frozen=True)
class RunPlan:
    """Everything that decides what a run does.

    ``target``: with its build, where it is one of the user's own. ``topic_settings`` and ``broker_settings`` are those
    of the timers and the nemesis, with the user's on top.
    """

    options: RunOptions = field(compare=False)
    target: Target
    scenarios: tuple[Scenario, ...]
    nemesis: Script
    timers: Timers
    topic_settings: Mapping[str, str]
    broker_settings: Mapping[str, str]
    placement: Placement
    seed: int

    @property
    def system(self) -> System:
        """The system of the brokers under test."""
        return find_system(self.target)

    @property
    def is_served(self) -> bool:
        """Return whether the run is judged by what clients are served, without a fault."""
        return self.scenarios[0].kind is Kind.SERVED

    @property
    def partitions(self) -> dict[str, list[TopicPartition]]:
        """The partitions of each scenario, by its name; scenarios share no partition."""
        numbers: dict[str, Iterator[int]] = {scenario.topic: count() for scenario in self.scenarios}
        return {
            s.name: [(s.topic, n) for n in islice(numbers[s.topic], self.placement.partitions)] for s in self.scenarios
        }

    @property
    def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Every partition of every scenario with the brokers that hold it."""
        partitions, replicas = self.partitions, self.placement.replicas
        return {tp: replicas(tp[1], control=s.anomaly is None) for s in self.scenarios for tp in partitions[s.name]}

    @property
    def needs(self) -> frozenset[str]:
        """The abilities that the runtime must have."""
        return self.nemesis.needs | ({Need.CLOCK} if self.timers.clock_step_s else set())


def plan_run(options: RunOptions) -> RunPlan:
    """Return the plan of a run. Raises `UsageError` for names and numbers that do not fit, or contradict each other."""
    target, timers, nemesis = find_target(options.target), find_timers(options.timers), find_script(options.nemesis)
    raise_if_contradictory(options, target)
    system = find_system(target)
    scenarios = (
        scenarios_of(options.schedule) if options.schedule else scenarios_for(options.anomaly, target.group_protocols)
    )
    if is_served := scenarios == SERVED_SCENARIOS:
        if not target.supports.end_transactions:
            scenarios = tuple(s for s in scenarios if not any(isinstance(operation, End) for operation in s.operations))
        nemesis, placement = find_script(NO_FAULT), _without_absent(options, target)
    else:
        sizes = {name: getattr(options, name) for name in ("brokers", "replication_factor", "partitions", "absent")}
        if options.schedule:
            leaving = sum(isinstance(operation, Inject) for operation in options.schedule.operations)
            sizes["absent"] = max(sizes["absent"], leaving)
        placement = place(**sizes, quorum=nemesis.quorum, has_odd_replicas=system.has_odd_replicas)
    if nemesis.name in system.unsupported_nemeses:
        supported = ", ".join(name for name in SCRIPTS if name not in system.unsupported_nemeses)
        raise UsageError(f"--nemesis {nemesis.name}: {system.name} cannot be put through it; choose {supported}")
    if reason := system.why_unfit(placement):
        raise UsageError(reason)
    if reason := nemesis.why_unfit(placement):
        raise UsageError(f"--nemesis {nemesis.name}: {reason}")
    topic_settings, broker_settings = system.settings(target, timers, nemesis.broker_settings)
    # A guard needs a retention in which it looks several times.
    for_guard = {RETENTION: str(max(int(topic_settings[RETENTION]), GUARDED_RETENTION_MS))} if options.guard else {}
    if options.application:
        scenarios = (*scenarios, *find_application(options.application).scenarios)
    groups = placement.partitions * sum(scenario.kind.is_of_groups for scenario in scenarios)
    return RunPlan(
        options=options,
        target=target,
        scenarios=scenarios if is_served else (*scenarios, CONTROL),
        nemesis=nemesis,
        timers=system.timers(timers),
        topic_settings={**topic_settings, **for_guard, **options.topic_settings},
        broker_settings={
            **({"offsets.retention.check.interval.ms": EXPIRY_CHECK_MS} if groups else {}),
            **broker_settings,
            **options.broker_settings,
            # A coordinator takes its number from the topic only if that exists when the broker starts.
            **({"offsets.topic.num.partitions": str(groups)} if groups else {}),
        },
        placement=placement,
        seed=secrets.randbelow(2**31) if options.seed is None else options.seed,
    )


def _without_absent(options: RunOptions, target: Target) -> Placement:
    """Return the placement of a run without absent brokers. Raises `UsageError` for options that have no effect."""
    given = {
        f"--nemesis {options.nemesis}": options.nemesis not in {RunOptions.nemesis, NO_FAULT},
        "--gate": options.gate,
        "--guard": options.guard,
        "--application": options.application is not None,
        f"--absent {options.absent}": options.absent > RunOptions.absent,
    }
    for flag, is_given in given.items():
        if is_given:
            raise UsageError(f"{flag} contradicts --anomaly {options.anomaly}: these runs have no fault")
    count, replicas, most = options.brokers, options.replication_factor, target.supports.brokers
    count = min(count, most) if count == RunOptions.brokers else count
    if replicas > max(count, RunOptions.replication_factor):
        raise UsageError(f"--replication-factor {replicas}: give {count} at most, the number of brokers")
    return Placement(tuple(range(1, count + 1)), (), min(replicas, count), options.partitions)


def run_schedule(plan: RunPlan) -> Schedule:
    """Return the schedule of a run.

    The processes are clients by their names (`client_name`). Their operations concern all partitions of the scenario:
    the ``home`` of the client. An act on several absent brokers is one operation for each broker.
    """
    script, absent = plan.nemesis, plan.placement.absent
    before, outage, late = (
        [
            of_process(operation, client_name(scenario.name, operation.process))
            for scenario in plan.scenarios
            for operation in getattr(scenario, phase)
        ]
        for phase in ("before", "outage", "late")
    )
    operations = (
        *before,
        UntilInSync(),
        *(Inject(script.name, broker) for broker in absent),
        *outage,
        UntilRemoved(),
        *late,
        UntilInSync(),
        *(Expose(script.name, broker) for broker in absent if script.expose),
        TakeSnapshot(store.BEFORE_RETURN),
        *(Heal(script.name, broker) for broker in absent),
        UntilInSync(),
        TakeSnapshot(store.AFTER_REJOIN),
    )
    steps = in_order(*(before if plan.is_served else operations))
    return Schedule(steps, plan.options.anomaly, plan.target.name, plan=_plan_of(plan))


def _plan_of(plan: RunPlan) -> RoundPlan:
    partitions, counts = plan.partitions, Counter(topic for topic, _ in plan.replicas)
    return RoundPlan(
        plan.seed,
        tuple(RoundTopic(topic, count, plan.topic_settings) for topic, count in counts.items()),
        tuple(
            RoundClient(
                name := client_name(scenario.name, process),
                plan.options.client,
                name if process in scenario.transactional_processes else None,
                home=tuple(partitions[scenario.name]),
            )
            for scenario in plan.scenarios
            for process in sorted({operation.process for operation in scenario.operations})
        ),
        plan.placement.brokers,
    )


@dataclass(frozen=True)
class PreparedRun:
    """A plan, and all that its run takes, found on this host before anything is started.

    ``ports`` are one a broker, then one a controller. ``security``: how clients log in, where brokers ask for that.
    ``installed``: the application on top, if any.
    """

    plan: RunPlan
    equipment: Equipment
    ports: Sequence[int] = ()
    security: Security | None = None
    installed: applications.Installed | None = None


def prepare_run(plan: RunPlan, progress: Progress) -> PreparedRun:
    """Find Java, jars and the runtime for a run. Raises `UsageError` for anything that is missing or unfit."""
    options, target = plan.options, plan.target
    application = find_application(options.application) if options.application else None
    if application:
        applications.raise_if_unfit(plan, application, has_login=options.command_config is not None)
    find_client(options.client)
    security = read_security(options.command_config) if options.command_config else None
    if security is not None:
        security.for_brokers("")  # rejects a login that the harness does not configure on brokers
    if target.system in SIMULATED:
        raise_if_unknown(plan.topic_settings, plan.broker_settings)
    java = find_java()
    request = RuntimeRequest(target, java, progress.jars, needs=plan.needs, image=options.image, access=options.access)
    runtime, reason = choose(runtime_of(options), request)
    if reason is not None:
        progress.stage(f"runtime {runtime} ({reason})")
    if options.spark.is_one_plain_jvm:
        find_archive(java, CHECKS)  # a missing archive is made while jars are fetched
    equipment = equip(
        request,
        runtime,
        has_jvm_clients=options.client == JAVA and not plan.system.has_own_clients,
        gate=(options.gate_options or "") if options.gate else None,
    )
    ports = free_ports(len(plan.placement.brokers) + len(plan.placement.controllers), base=options.port_base)
    installed = applications.install(application, target, progress.jars) if application else None
    return PreparedRun(plan, equipment, ports, security, installed)


def runtime_of(options: RunOptions) -> str:
    """Return the name of the runtime that is asked for: brokers with the gate are local ones, unless one is named."""
    return LOCAL if options.gate and options.runtime == AUTO else options.runtime


def repeatable(run: PreparedRun, folder: RunFolder) -> RunOptions:
    """Return the options with the choices that were made: seed, runtime, and the version of a short name.

    Paths of files are absolute, so that the command works in any directory; a schedule is the run folder's. Secrets
    among brokers' settings are hidden, as everywhere in a run folder.
    """
    options = run.plan.options
    access, login, schedule = options.access, options.command_config, options.schedule
    if access is not None:
        key, known_hosts = (path and str(Path(path).absolute()) for path in (access.key, access.known_hosts))
        access = replace(access, key=key, known_hosts=known_hosts)
    return replace(
        options,
        target=exact_name(run.plan.target),
        seed=run.plan.seed,
        runtime=run.equipment.runtime_name,
        broker_settings=without_secrets(options.broker_settings),
        schedule_path=(folder.path / store.SCHEDULE).absolute() if schedule else None,
        command_config=login and login.absolute(),
        access=access,
    )
