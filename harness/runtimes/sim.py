"""Simulated brokers: no process, no port, no disk but for what a run copies, and a clock of their own."""

from __future__ import annotations

import uuid
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from harness.errors import HarnessError
from harness.kafka_api.address import Address
from harness.models.clock import VirtualClock
from harness.models.cluster.cleaning import REDPANDA
from harness.models.cluster.cluster import ClusterRules, SimCluster
from harness.models.cluster.files import write_checkpoint, write_replica
from harness.models.cluster.transactions import Coordinator
from harness.models.log.version_rules import rules_of
from harness.runtimes.base import Ready
from harness.targets import SIM_CLOUD_TOPICS, SIM_KAFKA, SIM_REDPANDA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.host.clock import Clock, RealClock
    from harness.runtimes.base import ClusterSpec, Wanted
    from harness.targets import Target

RULES: Final[Mapping[str, ClusterRules]] = {
    SIM_KAFKA: ClusterRules(),
    SIM_REDPANDA: ClusterRules(compactor=REDPANDA, coordinated=True),
    SIM_CLOUD_TOPICS: ClusterRules(shared=True),
}
"""By system."""


def rules_for(target: Target) -> ClusterRules:
    """Return by what a simulated target's brokers go: of Kafka, as its version does."""
    rules = RULES[target.system]
    return replace(rules, version=rules_of(target.version)) if target.system == SIM_KAFKA else rules


def prepare(wanted: Wanted) -> Ready:
    """Be ready for a simulated target."""
    return Ready(
        facts={"name": "sim", "clock": "virtual"},
        make=lambda spec: SimRuntime(spec, rules_for(wanted.target)),
        is_resumable=False,
        clock=virtual_clock,
    )


def virtual_clock(real: RealClock) -> Clock:
    """Return the clock of a run; the limit on the whole run is one of wall-clock time."""
    return VirtualClock(real.check_limit)


class SimRuntime:
    """Implements `harness.runtimes.base.Runtime`."""

    def __init__(self, spec: ClusterSpec, rules: ClusterRules) -> None:
        """Make the brokers. Raises `HarnessError` for a setting that they have no rule for."""
        if not isinstance(spec.clock, VirtualClock):
            raise TypeError("simulated brokers need a clock of their own")
        self.brokers: Sequence[int] = spec.brokers
        self.abilities = (self,)
        self.cluster = SimCluster(spec.clock, Random(f"cluster {spec.seed}"), spec.brokers, spec.settings, rules)  # noqa: S311
        self.coordinator = Coordinator(self.cluster)
        self._seed = spec.seed

    def start_cluster(self) -> None:
        """Start every broker."""
        for broker in self.brokers:
            self.cluster.start(broker)

    def start_again(self, _brokers: Sequence[int]) -> None:
        """Raise `HarnessError`: nothing is left of brokers whose process has ended."""
        raise HarnessError("a simulated cluster is gone with its run; run it anew with the same --seed")

    def start(self, broker: int) -> None:
        """Start a broker on the data that it left."""
        self.cluster.start(broker)

    def stop(self, broker: int) -> None:
        """Have a broker shut down."""
        self.cluster.stop(broker)

    def kill(self, broker: int) -> None:
        """End a broker at once."""
        self.cluster.kill(broker)

    def pause(self, broker: int) -> None:
        """Freeze a broker."""
        self.cluster.pause(broker, is_paused=True)

    def resume(self, broker: int) -> None:
        """Let it go on."""
        self.cluster.pause(broker, is_paused=False)

    def cut(self, broker: int) -> None:
        """Isolate a broker."""
        self.cluster.cut(broker)

    def heal(self, broker: int) -> None:
        """Connect it again."""
        self.cluster.heal(broker)

    def lose(self, broker: int, fraction: float) -> None:
        """Lose this fraction of a broker's messages."""
        self.cluster.network.lost[broker] = fraction

    def delay(self, broker: int, delay_ms: int) -> None:
        """Hold up what a broker sends."""
        self.cluster.network.delays_s[broker] = delay_ms / 1000

    def clear_links(self) -> None:
        """Take that back."""
        self.cluster.network.clear()

    def skew(self, broker: int, offset_s: int) -> None:
        """Put a broker's clock ahead."""
        self.cluster.brokers[broker].skew_ms = offset_s * 1000

    def is_up(self, broker: int) -> bool:
        """Whether the broker answers and is counted in, or will be soon."""
        return self.cluster.is_reachable(broker)

    def address(self, broker: int) -> Address:
        """Return a place that nobody can connect to."""
        return Address("simulated", broker)

    def raise_if_died(self) -> None:
        """No simulated broker ends by itself."""

    def copy_partition(self, broker: int, topic: str, partition: int, destination: Path) -> None:
        """Write what the broker has of a partition, in Kafka's form; where there is one copy, what it serves."""
        destination.mkdir(parents=True, exist_ok=True)
        held = self.cluster.partitions[topic, partition]
        if broker in held.replication.replicas:
            replica = self.cluster.served(held, broker) if self.is_up(broker) else held.replica(broker)
            write_replica(destination, replica)

    def copy_checkpoints(self, broker: int, destination: Path) -> None:
        """Write the checkpoints and ``meta.properties`` of the broker's log directory."""
        destination.mkdir(parents=True, exist_ok=True)
        held = {tp: one.replica(broker) for tp, one in self.cluster.partitions.items() if broker in one.assigned}
        for name, offsets in (
            ("replication-offset-checkpoint", {tp: one.high_watermark for tp, one in held.items()}),
            ("log-start-offset-checkpoint", {tp: one.log_start for tp, one in held.items() if one.log_start}),
            (
                "cleaner-offset-checkpoint",
                {tp: one.cleaned_to for tp, one in held.items() if one.cleaned_to is not None},
            ),
        ):
            write_checkpoint(destination / name, offsets)
        directory = uuid.uuid5(uuid.NAMESPACE_OID, f"{self._seed}/{broker}")
        (destination / "meta.properties").write_text(f"version=1\nnode.id={broker}\ndirectory.id={directory}\n")

    def close(self, *, keep: bool = False) -> None:
        """Nothing is left to end."""
        del keep
