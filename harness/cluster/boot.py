"""Boot the cluster under test: `equip` finds the runtime, the jars and the gate before anything starts."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from harness.clients import ClientSpec
from harness.cluster.cluster import Cluster
from harness.errors import HarnessError, UsageError
from harness.host.clock import RealClock
from harness.host.java import Java
from harness.protect.gate.build import Agent, build_agent, gate_options, verify_agent
from harness.runtimes import find_runtime
from harness.runtimes.base import ClusterSpec, PreparedRuntime, Runtime, RuntimeRequest, bootstrap_servers
from harness.systems import System, find_system
from harness.targets import KAFKA, WITH_JARS, Target
from harness.targets.jars import JarSet, jars_for

log = logging.getLogger("harness")


@dataclass(frozen=True)
class Equipment:
    """The runtime of a target's brokers, ready before anything starts; ``jars``: on this host, ``agent``: the gate."""

    target: Target
    java: Java
    runtime_name: str
    ready: PreparedRuntime
    jars: JarSet | None = None
    agent: Agent | None = None

    @property
    def system(self) -> System:
        """The system of the target."""
        return find_system(self.target)

    def gate_flags(self, options: str | None, topic_settings: Mapping[str, str]) -> tuple[str, ...]:
        """Return the JVM flags of brokers with the gate; none without a gate."""
        return (self.agent.flag(gate_options(options, topic_settings)),) if self.agent else ()


def equip(request: RuntimeRequest, runtime: str, *, has_jvm_clients: bool = True, gate: str | None = None) -> Equipment:
    """Return the equipment of a target's brokers; ``gate``: options of a gate, or None. Raises `UsageError`."""
    ready = find_runtime(runtime)(request)
    jars, newest = ready.jars, list(WITH_JARS.values())[-1]
    if jars is None and has_jvm_clients:
        jars = jars_for(request.target if request.target.system == KAFKA else newest, on_progress=request.on_progress)
    equipment = Equipment(request.target, request.java, runtime, ready, jars)
    if gate is None:
        return equipment
    if jars is None:
        raise UsageError(f"--gate is for brokers of this host, and {request.target.name} has none")
    agent = build_agent(request.java, request.on_progress)
    verification = verify_agent(request.java, agent.jar, jars.classpath, gate)
    if not verification.fits:
        raise UsageError(f"--gate: {verification.reason}")
    return replace(equipment, agent=agent)


def client_spec(equipment: Equipment, spec: ClusterSpec, runtime: Runtime, log_path: Path) -> ClientSpec:
    """Return the parameters of client libraries. ``log_path``: of the library."""
    return ClientSpec(
        run_id=spec.run_id,
        bootstrap=bootstrap_servers(runtime),
        java=equipment.java,
        classpath=equipment.jars.client_classpath if equipment.jars else "",
        work_dir=spec.work_dir,
        log_path=log_path,
        security=spec.security,
    )


@contextmanager
def cluster_on(equipment: Equipment, spec: ClusterSpec, *, settle_s: float, keep: bool = False) -> Iterator[Cluster]:
    """Make a cluster without starting its brokers, which end after the block, unless the user is to ``keep`` them."""
    runtime = equipment.ready.make(spec)
    try:
        admin = equipment.system.admin(runtime)
        control, clock = equipment.system.control(runtime, admin), spec.clock or RealClock()
        yield Cluster(runtime, admin, control, clock, settle_s, checks=[runtime.raise_if_died])
    finally:
        try:
            runtime.close(keep=keep)
        except (HarnessError, OSError) as error:
            log.warning("the brokers did not end as they should: %s", error)


@contextmanager
def booted_cluster(equipment: Equipment, spec: ClusterSpec, *, settle_s: float) -> Iterator[Cluster]:
    """Boot a cluster, whose brokers end with the block. Raises `HarnessError` if a broker does not come up."""
    with cluster_on(equipment, spec, settle_s=settle_s) as cluster:
        cluster.runtime.start_cluster()
        cluster.wait_registered()
        yield cluster
