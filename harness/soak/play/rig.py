"""The cluster of a soak: its equipment, its boot, and the view of it that a round and its faults have."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.broker_files.side_files.server_logs import ServerLogs
from harness.clients import ClientSpec
from harness.cluster.boot import Equipment, booted_cluster, client_spec, equip
from harness.cluster.cluster import Cluster
from harness.errors import UsageError
from harness.host.clock import RealClock
from harness.host.java import find_java
from harness.judge.progress import Progress
from harness.models.clock import VirtualClock
from harness.models.cluster.settings import TOPIC as SIMULATED_SETTINGS
from harness.protect.gate import events as gate_events
from harness.runtimes import AUTO, LOCAL, choose, find_runtime
from harness.runtimes.base import ClusterSpec, RuntimeRequest
from harness.schedules.scenario import STREAMS
from harness.schedules.timers import FAST
from harness.soak.causes import skipped_marker
from harness.soak.draw import plan
from harness.soak.draw.plan import Shape
from harness.systems import find_system
from harness.targets import KAFKA, SIM_KAFKA, SIMULATED, Target, find_target
from harness.targets.jars import jars_of
from harness.targets.settings import BROKER, raise_if_unfit
from nemesis.fault import Fault

SETTLE_S: Final = 60.0
BROKER_SETTINGS: Final = {
    **FAST.broker,
    # Kafka's default. On a busy machine replicas leave the ISR otherwise for as long as a broker gets no processor, and
    # brokers that are down leave it anyway, as the controller fences them.
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
"""With a metadata image older than a topic's ``delete.retention.ms``, a cleaner does not know which replicas have the
records that it removes; on a busy machine an image may be seconds late. So the bound of gates is below each
retention of a round (`harness.soak.draw.plan.SETTINGS`), and unchanged images are younger than the bound. By default
they are up to 500 ms old.
"""
TIMERS: Final = replace(FAST, broker=BROKER_SETTINGS, settle_s=SETTLE_S)
NOT_SIMULATED: Final = {
    "group offsets": "group coordinators are not part of the simulated cluster",
    "idempotent producers": "simulated producers are idempotent in transactions alone",
}
"""What rounds on simulated brokers leave out, with the reason."""


@dataclass(frozen=True)
class Setup:
    """All that a soak takes. ``left_out``: what rounds do not draw, and why. ``needs``: abilities that faults need.

    ``streams_classpath``: of clients that also join groups of Kafka Streams.
    """

    equipment: Equipment
    shape: Shape
    faults: Mapping[str, Fault]
    left_out: Mapping[str, str]
    broker_settings: Mapping[str, str]
    needs: frozenset[str]
    streams_classpath: str = ""

    @property
    def target(self) -> Target:
        """The brokers under test."""
        return self.equipment.target


def find_setup(target_name: str, shape: Shape, progress: Progress, *, gate: bool = False, runtime: str = AUTO) -> Setup:
    """Find the equipment of a soak. Raises `UsageError` for anything that is missing or unfit."""
    target = find_target(target_name)
    if target.system not in {KAFKA, SIM_KAFKA}:
        raise UsageError(f"--target {target_name}: soak is for Kafka and sim-kafka")
    if gate and target.system in SIMULATED:
        raise UsageError(f"--gate is for brokers of this host, and {target_name} has none")
    system, request = find_system(target), RuntimeRequest(target, find_java(), progress.jars)
    runtime_name, _ = choose(LOCAL if gate and runtime == AUTO else runtime, request)

    def why_lacking(needs: frozenset[str]) -> str | None:
        try:
            find_runtime(runtime_name)(replace(request, needs=needs))
        except UsageError as error:
            return str(error)
        return None

    faults, left_out = plan.available(system.unsupported_nemeses, why_lacking)
    lacks = NOT_SIMULATED if system.has_own_clients else {}
    supported = frozenset(SIMULATED_SETTINGS if system.has_own_clients else plan.SETTINGS) & plan.SETTINGS.keys()
    unknown = {f"topic setting {name}": "not modelled" for name in plan.SETTINGS.keys() - supported}
    settings_of_real_brokers = {} if system.has_own_clients else {**REQUEST_SETTINGS, **IMAGE_SETTINGS}
    of_faults = {name: value for fault in faults.values() for name, value in fault.broker_settings.items()}
    raise_if_unfit(target, {BROKER: shape.broker_settings})
    overriding = {**settings_of_real_brokers, **of_faults, **shape.broker_settings}
    _, broker_settings = system.settings(target, TIMERS, overriding)
    needs = frozenset[str]().union(*(fault.needs for fault in faults.values()))
    is_real, options = not system.has_own_clients, GATE_OPTIONS if gate else None
    protocols = target.group_protocols_with(shape.broker_settings)
    equipment = equip(replace(request, needs=needs), runtime_name, has_jvm_clients=is_real, gate=options)
    of_target = replace(shape, settings=supported, is_real=is_real, group_protocols=protocols)
    not_drawn = dict(sorted({**left_out, **lacks, **unknown}.items()))
    streams = jars_of(STREAMS, target, progress.jars).client_classpath if STREAMS in protocols else ""
    return Setup(equipment, of_target, faults, not_drawn, broker_settings, needs, streams)


@dataclass(frozen=True)
class Rig:
    """A running cluster. ``client``: how libraries reach it. ``gates``, ``skipped``: events in logs of its brokers."""

    setup: Setup
    cluster: Cluster
    spec: ClusterSpec
    client: ClientSpec
    skipped: ServerLogs
    gates: ServerLogs | None = None


@contextmanager
def booted(setup: Setup, run_id: str, work_dir: Path, logs_dir: Path, clock: RealClock, seed: int) -> Iterator[Rig]:  # noqa: PLR0917
    """Boot a cluster, and end it. Raises `HarnessError` where it does not come up."""
    equipment, run_clock = setup.equipment, setup.equipment.ready.clock(clock)
    spec = ClusterSpec(
        run_id=run_id,
        work_dir=work_dir,
        logs_dir=logs_dir,
        settings=setup.broker_settings,
        brokers=plan.BROKERS,
        controllers=plan.BROKERS,
        needs=setup.needs,
        clock=run_clock,
        seed=seed,
        jvm_flags=equipment.gate_flags(GATE_OPTIONS, FAST.topic),
    )
    # Clients of simulated brokers block each for itself.
    turns = run_clock.taking_turns() if isinstance(run_clock, VirtualClock) else nullcontext()
    with turns, booted_cluster(equipment, spec, settle_s=SETTLE_S) as cluster:
        cluster.wait_coordinator()
        logs = {broker: spec.log_path(broker) for broker in spec.brokers}
        client = client_spec(equipment, spec, cluster.runtime, logs_dir / "client.log")
        client = replace(client, classpath=setup.streams_classpath or client.classpath)
        gates = ServerLogs(logs, gate_events.parse_line) if equipment.agent else None
        yield Rig(setup, cluster, spec, client, ServerLogs(logs, skipped_marker.parse_line), gates)
