"""Simulated brokers: without processes and ports, with a virtual clock, and on disk only for a run's copies."""

import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

from harness.errors import HarnessError
from harness.kafka_api.address import Address
from harness.models.clock import VirtualClock
from harness.models.cluster.broker import write_checkpoint, write_replica
from harness.models.cluster.cluster import ClusterRules, SimCluster
from harness.models.cluster.transactions import TransactionCoordinator
from harness.models.log.systems import REDPANDA
from harness.models.log.version_rules import rules_of
from harness.runtimes.base import ClusterSpec, PreparedRuntime, RuntimeRequest
from harness.targets import SIM_REDPANDA, Target


def rules_for(target: Target) -> ClusterRules:
    """Return the rules of a simulated target's brokers; of Kafka by version."""
    if target.system == SIM_REDPANDA:
        return ClusterRules(system=REDPANDA, coordinated=True)
    return ClusterRules(version=rules_of(target.version))


def prepare(request: RuntimeRequest) -> PreparedRuntime:
    """Prepare a simulated target, without requirements."""
    return PreparedRuntime(
        facts={"name": "sim", "clock": "virtual"},
        make=lambda spec: SimRuntime(spec, rules_for(request.target)),
        is_resumable=False,
        # The time limit of a run is wall-clock time.
        clock=lambda real: VirtualClock(real.check_limit),
    )


class SimRuntime:
    """Implements `harness.runtimes.base.Runtime`."""

    def __init__(self, spec: ClusterSpec, rules: ClusterRules) -> None:
        if not isinstance(spec.clock, VirtualClock):
            raise TypeError("simulated brokers need a virtual clock")
        self.brokers: Sequence[int] = spec.brokers
        self.abilities = (self,)
        self.cluster = SimCluster(spec.clock, Random(f"cluster {spec.seed}"), spec.brokers, spec.settings, rules)  # noqa: S311
        self.coordinator = TransactionCoordinator(self.cluster)
        self._seed = spec.seed
        self.start, self.stop, self.kill = self.cluster.start, self.cluster.stop, self.cluster.kill
        self.cut, self.heal, self.is_up = self.cluster.cut, self.cluster.heal, self.cluster.is_reachable
        self.clear_links = self.cluster.network.clear
        self.pause, self.resume = (partial(self.cluster.pause, is_paused=is_paused) for is_paused in (True, False))

    def start_cluster(self) -> None:
        """Start every broker."""
        for broker in self.brokers:
            self.cluster.start(broker)

    def start_again(self, _brokers: Sequence[int]) -> None:
        """Raise `HarnessError`: simulated brokers do not outlive their process."""
        raise HarnessError("a simulated cluster ends with its run; start a new run with the same --seed")

    def lose(self, broker: int, fraction: float) -> None:
        """Lose this fraction of a broker's messages."""
        self.cluster.network.lost[broker] = fraction

    def delay(self, broker: int, delay_ms: int) -> None:
        """Delay all messages of a broker."""
        self.cluster.network.delays_s[broker] = delay_ms / 1000

    def skew(self, broker: int, offset_s: int) -> None:
        """Set a broker's clock ahead."""
        self.cluster.brokers[broker].skew_ms = offset_s * 1000

    def address(self, broker: int) -> Address:
        """Return a placeholder, to which no client can connect."""
        return Address("simulated", broker)

    def raise_if_died(self) -> None:
        """Do nothing: no simulated broker ends by itself."""

    def copy_partition(self, broker: int, topic: str, partition: int, destination: Path) -> None:
        """Write the broker's copy of a partition in Kafka's format."""
        destination.mkdir(parents=True, exist_ok=True)
        model = self.cluster.partitions[topic, partition]
        if broker in model.replication.replicas:
            write_replica(destination, model.replica(broker))

    def copy_checkpoints(self, broker: int, destination: Path) -> None:
        """Write the checkpoints and ``meta.properties`` of the broker's log directory."""
        destination.mkdir(parents=True, exist_ok=True)
        partitions = self.cluster.partitions.items()
        replicas = {tp: partition.replica(broker) for tp, partition in partitions if broker in partition.assigned}
        checkpoints = {
            "replication-offset": {tp: replica.high_watermark for tp, replica in replicas.items()},
            "log-start-offset": {tp: replica.log_start for tp, replica in replicas.items() if replica.log_start},
            "cleaner-offset": {tp: r.cleaned_to for tp, r in replicas.items() if r.cleaned_to is not None},
        }
        for name, offsets in checkpoints.items():
            write_checkpoint(destination / f"{name}-checkpoint", offsets)
        directory = uuid.uuid5(uuid.NAMESPACE_OID, f"{self._seed}/{broker}")
        (destination / "meta.properties").write_text(f"version=1\nnode.id={broker}\ndirectory.id={directory}\n")

    def close(self, *, keep: bool = False) -> None:
        """Do nothing: simulated brokers end with their process."""
        del keep
