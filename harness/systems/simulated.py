"""Simulated brokers under test: they are asked directly, and answer as real ones do over the wire.

Topics and brokers take Kafka's settings. What there is no rule for is refused (`harness.models.cluster.settings`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from harness.clients import ClientLibrary
from harness.clients.simulated import SimulatedClient
from harness.errors import HarnessError, UsageError
from harness.kafka_api.metadata import PartitionState
from harness.kafka_api.redpanda_admin import COORDINATED_COMPACTION
from harness.schedules.scenario import ONE_COPY
from harness.schedules.timers import FREEZE
from harness.suggest import nearest
from harness.systems import System, kafka
from harness.systems.simulated_reader import SimulatedReader, SimulatedReading
from harness.targets import SIM_CLOUD_TOPICS, SIM_KAFKA, SIM_REDPANDA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.clients.reader import Reading
    from harness.kafka_api.address import Address
    from harness.kafka_api.admin import Admin
    from harness.kafka_api.messages import TopicPartition
    from harness.kafka_api.replica import ReplicaReader
    from harness.models.cluster.cluster import SimCluster
    from harness.models.cluster.transactions import Coordinator
    from harness.runtimes.base import Runtime
    from harness.runtimes.sim import SimRuntime
    from harness.schedules.timers import Timers

COORDINATOR: Final = ("__transaction_state", 0)
"""Its leadership moves on request; the transactions that it coordinates are never out of reach."""
CLEANER_BACKOFF = "log.cleaner.backoff.ms"
A_LONG_REST_MS: Final = 10**12

UNSUPPORTED_NEMESES: Final = frozenset(
    {"bridge", "controller-kill", "crash-in-cleaning", "disk-full", "one-way", "power-failure", "ring", "split"}
)
"""Single links, controllers, disks that fill, files of a pass and what of a log is synced are not modelled."""
NO_OLD_LOGS: Final = frozenset({"reassigned"})
"""Redpanda's folder of a replica has the revision of its assignment in its name, so a replica that is assigned again
begins empty. Brokers that share one copy have none of their own."""
VERSION_2: Final = {"librdkafka": False, "java": True}
"""By client: whether its transactions raise the epoch (KIP-890)."""

LOOKS_A_WINDOW, ROUNDS_A_WINDOW = 500, 100
"""Where windows last for days: replicas are looked at so often in one, and the filler writes so often."""
SETTLING_ROUNDS = 10
"""Some waits are for a few rounds of the filler."""


@dataclass(frozen=True)
class SimulatedAdmin:
    """What the runner and the nemeses ask of `harness.kafka_api.admin.Admin`."""

    _cluster: SimCluster
    _coordinator: Coordinator

    def create_topics(self, replicas: Mapping[TopicPartition, Sequence[int]], settings: Mapping[str, str]) -> None:
        """Create topics, each partition on its given replicas."""
        self._cluster.create(replicas, settings)

    def ending_transactions(self) -> list[str]:
        """Return the transactional ids whose markers are not all written yet."""
        return self._coordinator.ending()

    def has_coordinator(self, _transactional_id: str) -> bool:
        """Have a place for the coordinator, which is there from then on."""
        if COORDINATOR not in self._cluster.partitions:
            self._cluster.create({COORDINATOR: list(self._cluster.brokers)}, {})
        return True

    def topic_id(self, _topic: str) -> None:
        """Topics of a simulated cluster have names alone."""

    def delete_topic(self, topic: str, _topic_id: None = None) -> None:
        """Delete a topic, which is gone from every broker at once."""
        self._cluster.delete(topic)

    def delete_records(self, leader: Address, partition: TopicPartition, before: int) -> None:
        """Have a partition's leader delete the records below an offset. Raises `HarnessError` where it does not lead.

        ``leader``: as `harness.runtimes.sim.SimRuntime.address` has it, with the broker for a port.
        """
        one = self._cluster.partitions[partition]
        if one.leader_id != leader.port or not self._cluster.is_reachable(leader.port):
            raise HarnessError(f"records of {partition[0]}-{partition[1]} cannot be deleted: another broker leads")
        self._cluster.delete_records(one, before)

    def reassign(self, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Give partitions new replicas."""
        for tp, brokers in replicas.items():
            self._cluster.reassign(self._cluster.partitions[tp], brokers)

    def alter_topics(self, topics: Sequence[str], settings: Mapping[str, str | None]) -> None:
        """Set topics' settings, or take them back."""
        self._cluster.alter(topics, settings)

    def alter_brokers(self, settings: Mapping[str, str | None]) -> None:
        """Set settings of all brokers, or take them back."""
        self._cluster.alter_brokers(list(self._cluster.brokers), settings)


@dataclass(frozen=True)
class SimulatedControl:
    """Implements `harness.systems.Control`."""

    _cluster: SimCluster
    coordinator: TopicPartition = COORDINATOR

    def registered(self) -> set[int]:
        """Return the brokers that the controller counts in."""
        return {number for number, one in self._cluster.brokers.items() if one.is_registered}

    def active_controller(self) -> int | None:
        """Return nobody: controllers are not modelled."""
        return None

    def states(self, topics: Sequence[str]) -> dict[TopicPartition, PartitionState]:
        """Return every partition's leader, replicas and ISR."""
        return {
            tp: PartitionState(
                -1 if one.leader_id is None else one.leader_id,
                one.assigned,
                tuple(one.in_sync),
                one.replication.leader_epoch,
            )
            for tp, one in self._cluster.partitions.items()
            if tp[0] in topics
        }

    def lead(self, orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Reassign replicas; their order makes the preferred leader."""
        for tp, order in orders.items():
            self._cluster.reassign(self._cluster.partitions[tp], order)

    def leads(self, orders: Mapping[TopicPartition, Sequence[int]]) -> bool:
        """Ask for the preferred leader where it does not lead yet."""
        for tp, order in orders.items():
            self._cluster.lead(self._cluster.partitions[tp], order[0])
        return all(self._cluster.partitions[tp].leader_id == order[0] for tp, order in orders.items())

    def freeze(self, topics: Sequence[str]) -> None:
        """Give the topics settings under which no cleaner pass begins."""
        self._cluster.alter(topics, FREEZE)

    def is_frozen(self, topics: Sequence[str]) -> bool:
        """Whether they have them, which every broker knows at once."""
        return all(FREEZE.items() <= self._cluster.topics[topic].items() for topic in topics)

    def thaw(self, topics: Sequence[str], settings: Mapping[str, str]) -> None:
        """Give the topics their own settings again."""
        self._cluster.alter(topics, {name: settings.get(name) for name in FREEZE})

    def rest(self, brokers: Sequence[int], for_ms: int = A_LONG_REST_MS) -> None:
        """Give each broker's cleaner a long backoff of its own."""
        self._cluster.alter_brokers(brokers, {CLEANER_BACKOFF: str(for_ms)})

    def is_resting(self, brokers: Sequence[int], for_ms: int = A_LONG_REST_MS) -> bool:
        """Look at each broker's settings."""
        return all(self._cluster.brokers[one].own.get(CLEANER_BACKOFF) == str(for_ms) for one in brokers)

    def wake(self, brokers: Sequence[int]) -> None:
        """Take the backoff back."""
        self._cluster.alter_brokers(brokers, {CLEANER_BACKOFF: None})

    def reader(self, broker: int) -> ReplicaReader:
        """Return what reads the broker's replicas."""
        return SimulatedReader(self._cluster, broker)

    def compaction(self, partition: TopicPartition) -> dict[int, dict[str, int | None]]:
        """Return MCCO, MTRO, MXFO and MXRO of each replica, where replicas compact together."""
        one = self._cluster.partitions[partition]
        if one.protocol is None:
            return {}
        found: dict[int, dict[str, int | None]] = {}
        for broker, known in one.protocol.views.items():
            replica = one.replica(broker)
            own = self._cluster.rules.compactor.system.own(replica)
            found[broker] = {
                "cleanly_compacted": own.tombstones,
                "tombstones_removable": known.bounds.tombstones,
                "transactions_free": own.markers,
                "transactions_removable": known.bounds.markers,
                "cleaner_offset": replica.cleaned_to or 0,
            }
        return found

    def identities(self) -> dict[int, str]:
        """Return nothing: ``meta.properties`` carries the log directory's id."""
        return {}

    def file_logs(self, _folder: Path, *, is_up: bool) -> None:
        """Leave files as they are, ``is_up`` or not: they are in Kafka's form."""

    def coordination(self) -> dict[str, bool]:
        """Return what its rules make of replicas: whether they compact together, whether there is one copy."""
        rules = self._cluster.rules
        found = {COORDINATED_COMPACTION: rules.coordinated, ONE_COPY: rules.shared}
        return {name: is_there for name, is_there in found.items() if is_there}


def _timers(timers: Timers) -> Timers:
    """Return timers with which long windows take few steps: nobody looks or writes more often than it makes sense.

    Quotas are exact here, so little has to be copied for it to take long.
    """
    if not timers.is_resumable:
        return timers
    filler_s = timers.window_s / ROUNDS_A_WINDOW
    return replace(
        timers,
        filler_period_s=max(timers.filler_period_s, filler_s),
        observe_period_s=max(timers.observe_period_s, timers.window_s / LOOKS_A_WINDOW),
        settle_s=max(timers.settle_s, filler_s * SETTLING_ROUNDS),
        copy_bytes_per_s=1,
    )


def _client(runtime: Runtime, name: str) -> ClientLibrary:
    if name not in VERSION_2:
        raise UsageError(nearest("client", name, list(VERSION_2)))
    sim = cast("SimRuntime", runtime)
    return ClientLibrary(SimulatedClient(sim.cluster, sim.coordinator, VERSION_2[name]).opened)


def _consumer(runtime: Runtime, leader: int, partitions: Sequence[TopicPartition]) -> Reading:
    reader = SimulatedReader(cast("SimRuntime", runtime).cluster, leader)
    return SimulatedReading(reader, {tp: [] for tp in partitions})


def _admin(runtime: Runtime) -> Admin:
    sim = cast("SimRuntime", runtime)
    return cast("Admin", SimulatedAdmin(sim.cluster, sim.coordinator))


def _system(name: str, proof: tuple[str, ...] = (), more_unsupported: frozenset[str] = frozenset()) -> System:
    return System(
        name=name,
        settings=kafka.settings,
        control=lambda runtime, _admin: SimulatedControl(cast("SimRuntime", runtime).cluster),
        admin=_admin,
        consumer=_consumer,
        client=_client,
        has_own_clients=True,
        timers=_timers,
        unsupported_nemeses=UNSUPPORTED_NEMESES | more_unsupported,
        proof=proof,
    )


SYSTEMS: Final = {
    SIM_KAFKA: _system("simulated Kafka"),
    SIM_REDPANDA: _system("simulated Redpanda", (COORDINATED_COMPACTION,), NO_OLD_LOGS),
    SIM_CLOUD_TOPICS: _system("simulated Cloud Topics", (ONE_COPY,), NO_OLD_LOGS),
}
