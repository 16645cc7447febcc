"""The cluster of a soak: what it takes, how it is booted, and the cluster as a round and its faults see it."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from harness.broker_files.side_files.server_logs import ServerLogs
from harness.clients import ClientSpec
from harness.cluster.cluster import Cluster
from harness.cluster.observe import Observer
from harness.errors import HarnessError, UsageError
from harness.host.java import find_java
from harness.host.network import remove_network
from harness.models.clock import VirtualClock
from harness.models.cluster.settings import TOPIC as SIMULATED_SETTINGS
from harness.play.options import RunOptions
from harness.play.start import agent_for
from harness.protect.gate import events as gate_events
from harness.protect.gate.build import gate_options
from harness.runtimes import AUTO, LOCAL, choose, find_runtime
from harness.runtimes.base import ClusterSpec, Wanted, bootstrap_servers
from harness.runtimes.local import ON_LINKS
from harness.schedules.placement import Placement
from harness.schedules.timers import FAST
from harness.soak.causes import skipped_markers
from harness.soak.draw import plan
from harness.soak.draw.composition import available
from harness.systems import find_system
from harness.targets import KAFKA, SIM_KAFKA, SIMULATED, find_target
from harness.targets.jars import jars_for_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from harness.clients import Library
    from harness.host.clock import Clock, RealClock
    from harness.host.java import Java
    from harness.judge.outcome import Progress
    from harness.kafka_api.admin import Admin
    from harness.protect.gate.build import Agent
    from harness.run_folder.store import RunFolder
    from harness.runtimes.base import Ready, Runtime
    from harness.schedules.plan import RoundPlan
    from harness.soak.draw.plan import Shape
    from harness.systems import Control, System
    from harness.targets import Target
    from harness.targets.jars import JarSet
    from nemesis.fault import Fault

BROKERS: Final = (1, 2, 3)
SETTLE_S: Final = 60.0
BOOT_S: Final = 120.0
BROKER_SETTINGS: Final = {
    **FAST.broker,
    # Kafka's default. On a busy machine replicas leave the ISR otherwise for as long as a broker gets no processor, and
    # brokers that are away leave it anyway, as the controller fences them.
    "replica.lag.time.max.ms": "30000",
    "broker.session.timeout.ms": "3000",
    # Brokers forget by it, too, that they have verified a transaction (KIP-890, ``ProducerStateManager``,
    # ``verificationStates``). On a busy machine more than the 0.7 s of the fast timers may pass before the record is
    # appended, and the broker answers INVALID_TXN_STATE then, which is fatal for librdkafka. Not much longer: until
    # then cleaners keep the last marker of a producer, and outages expose nothing.
    "producer.id.expiration.ms": "2000",
}
REQUEST_SETTINGS: Final = dict.fromkeys(
    ("request.timeout.ms", "replica.socket.timeout.ms", "controller.socket.timeout.ms"), "5000"
)
"""Of real brokers: they repeat a request whose answer was lost on a broken link only after that (transaction markers,
fetches of followers, changes of the ISR). By default it takes 30 s each, for which whole rounds stand still."""
IMAGE_SETTINGS: Final = {"metadata.max.idle.interval.ms": "100"}
MAX_IMAGE_AGE_MS: Final = 250
GATE_OPTIONS: Final = f"max-image-age-ms={MAX_IMAGE_AGE_MS}"
"""By a metadata image that is older than a topic's ``delete.retention.ms``, no cleaner knows who has copied what it
removes, and on a busy machine an image may be seconds late. So the bound of gates is below each retention of a round
(`harness.soak.draw.plan.SETTINGS`), and images without news are younger than that. By default they are up to 500 ms
old.
"""
TIMERS: Final = replace(FAST, broker=BROKER_SETTINGS, settle_s=SETTLE_S)
FILLER_PERIOD_S: Final = 0.4
LACKS: Final[Mapping[str, Mapping[str, str]]] = {
    KAFKA: {},
    SIM_KAFKA: {
        plan.GROUP_OFFSETS: "group coordinators are not part of the simulated cluster",
        plan.IDEMPOTENCE: "simulated producers are idempotent in transactions alone",
    },
}
"""What of `plan.FEATURES` a system lacks, and why. Other systems are not soaked."""


@dataclass(frozen=True)
class Setup:
    """All that a soak takes, found and fit, before anything is started.

    ``left_out``: what rounds do not draw, and why, by name. ``agent``: the gate that brokers run with, if any.
    """

    target: Target
    java: Java
    runtime_name: str
    ready: Ready
    jars: JarSet | None
    shape: Shape
    faults: Mapping[str, Fault]
    left_out: Mapping[str, str]
    broker_settings: Mapping[str, str]
    agent: Agent | None = None

    @property
    def system(self) -> System:
        """What kind of brokers are under test."""
        return find_system(self.target.system)

    @property
    def is_simulated(self) -> bool:
        """Whether brokers are simulated: then every round has a cluster of its own, and is repeated exactly."""
        return self.system.has_own_clients


def find_setup(target_name: str, shape: Shape, progress: Progress, *, gate: bool = False, runtime: str = AUTO) -> Setup:
    """Find all that a soak takes. Raises `UsageError` for what is missing or unfit."""
    target, java = find_target(target_name), find_java()
    if target.system not in LACKS:
        raise UsageError(f"--target {target_name}: soak is for Kafka and sim-kafka")
    if gate and target.system in SIMULATED:
        raise UsageError(f"--gate is for brokers of this host, and {target_name} has none")
    system, wanted = find_system(target.system), Wanted(target, java, progress.jars)
    runtime_name, _ = choose(LOCAL if gate and runtime == AUTO else runtime, wanted)
    prepare = find_runtime(runtime_name)
    ready = prepare(wanted)

    def why_lacking(needs: frozenset[str]) -> str | None:
        try:
            prepare(replace(wanted, needs=needs))
        except UsageError as error:
            return str(error)
        return None

    faults, left_out = available(system.unsupported_nemeses, why_lacking)
    if needs := frozenset[str]().union(*(fault.needs for fault in faults.values())):
        ready = prepare(replace(wanted, needs=needs))
    jars = ready.jars or jars_for_client(target, needed=not system.has_own_clients, on_progress=progress.jars)
    lacks = LACKS[target.system]
    known = frozenset(SIMULATED_SETTINGS if system.has_own_clients else plan.SETTINGS) & plan.SETTINGS.keys()
    unknown = {f"topic setting {name}": "not modelled" for name in plan.SETTINGS.keys() - known}
    own = {} if system.has_own_clients else {**REQUEST_SETTINGS, **IMAGE_SETTINGS}
    of_faults = {name: value for fault in faults.values() for name, value in fault.broker_settings.items()}
    _, broker_settings = system.settings(target, TIMERS, {**own, **of_faults})
    agent = agent_for(RunOptions(target_name, "", gate=True), java, jars, progress) if gate else None
    return Setup(
        target,
        java,
        runtime_name,
        ready,
        jars,
        replace(
            shape,
            brokers=BROKERS,
            settings=frozenset(known),
            features=plan.FEATURES - lacks.keys(),
            group_protocols=target.group_protocols,
        ),
        faults,
        dict(sorted({**left_out, **lacks, **unknown}.items())),
        broker_settings,
        agent,
    )


@dataclass(frozen=True)
class Rig:
    """A cluster that runs. ``client``: what libraries need to reach it.

    ``log_path``: the log of each broker. ``gates``: what its gates write there, if any. ``skipped``: which markers
    coordinators say that they leave out.
    """

    setup: Setup
    runtime: Runtime
    admin: Admin
    control: Control
    clock: Clock
    client: ClientSpec
    log_path: Callable[[int], Path]
    skipped: ServerLogs
    gates: ServerLogs | None = None

    @contextmanager
    def libraries(self) -> Iterator[Mapping[str, Library]]:
        """Give the libraries that clients write with, by name, for one round: producers end with their library."""
        with ExitStack() as owned:
            yield {
                name: owned.enter_context(self.setup.system.client(self.runtime, name).opened(self.client))
                for name in self.setup.shape.libraries
            }

    def cluster_for(self, of: RoundPlan, observer: Observer) -> Cluster:
        """Return the cluster as a round with this plan, and its faults, see it."""
        return Cluster(
            runtime=self.runtime,
            admin=self.admin,
            control=self.control,
            observer=observer,
            placement=Placement(brokers=of.brokers, absent=(), quorum=len(of.brokers)),
            replicas=of.replicas,
            clock=self.clock,
            settle_s=SETTLE_S,
            checks=[self.runtime.raise_if_died],
        )

    def observer_for(self, of: RoundPlan, folder: RunFolder) -> Observer:
        """Return the observer of a round, which is not started: a round is judged by its end."""
        return Observer(
            self.runtime,
            of.replicas,
            folder.observations_path,
            self.clock,
            period_s=TIMERS.observe_period_s,
            reader=self.control.reader,
        )


@contextmanager
def booted(setup: Setup, run_id: str, work_dir: Path, logs_dir: Path, clock: RealClock, seed: int) -> Iterator[Rig]:  # noqa: PLR0917
    """Boot a cluster, and end it. Raises `HarnessError` where it does not come up."""
    with ExitStack() as owned:
        run_clock = setup.ready.clock(clock)
        if isinstance(run_clock, VirtualClock):
            # Clients block each for itself.
            owned.enter_context(run_clock.taking_turns())
        spec = ClusterSpec(
            run_id=run_id,
            work_dir=work_dir,
            logs_dir=logs_dir,
            settings=setup.broker_settings,
            brokers=setup.shape.brokers,
            controllers=setup.shape.brokers,
            needs=frozenset[str]().union(*(fault.needs for fault in setup.faults.values())),
            clock=run_clock,
            seed=seed,
            jvm_flags=(setup.agent.flag(gate_options(GATE_OPTIONS, FAST.topic)),) if setup.agent else (),
        )
        if setup.runtime_name == LOCAL and spec.needs & ON_LINKS:
            # Another cluster of the same soak gets a network of its own.
            owned.callback(remove_network, run_id)
        runtime = owned.enter_context(closing(setup.ready.make(spec)))
        client = ClientSpec(
            run_id=run_id,
            bootstrap=bootstrap_servers(runtime),
            java=setup.java,
            classpath=setup.jars.classpath if setup.jars else "",
            work_dir=work_dir,
            log_path=logs_dir / "client.log",
        )
        logs = {broker: spec.log_path(broker) for broker in spec.brokers}
        system = setup.system
        admin = system.admin(runtime)
        rig = Rig(
            setup,
            runtime,
            admin,
            system.control(runtime, admin),
            run_clock,
            client,
            spec.log_path,
            ServerLogs(logs, skipped_markers.parse_line),
            ServerLogs(logs, gate_events.parse_line) if setup.agent else None,
        )
        runtime.start_cluster()
        _wait_up(rig)
        yield rig


def _wait_up(rig: Rig) -> None:
    def is_up() -> bool:
        rig.runtime.raise_if_died()
        try:
            return rig.control.registered() >= set(rig.setup.shape.brokers) and rig.admin.has_coordinator("any")
        except (OSError, HarnessError):
            return False  # nobody listens yet

    rig.clock.wait_until(is_up, BOOT_S, "the brokers to register, and a transaction coordinator")
