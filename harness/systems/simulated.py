"""Simulated brokers under test: requests to them are calls, with the answers that real brokers would send."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import starmap
from typing import Any, Final, cast

from harness.broker_files.segments.batches import iter_batches
from harness.clients import OpenLibrary
from harness.clients.reader import Reading, delivered_record
from harness.clients.simulated import SimulatedClient
from harness.errors import HarnessError
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.admin import Admin
from harness.kafka_api.fetch import DEBUG_REPLICA_ID, ReplicaEnds, ReplicaReader, ReplicaState
from harness.kafka_api.metadata import PartitionState
from harness.kafka_api.redpanda_admin import COORDINATED_COMPACTION
from harness.kafka_api.transactions import OpenTransaction, OpenTransactions
from harness.models.cluster.cluster import SimCluster
from harness.models.cluster.transactions import TransactionCoordinator
from harness.models.log.batch import encoded
from harness.models.log.delivery import batches_up_to, delivered, listed_aborts
from harness.models.log.replica import Replica
from harness.runtimes.base import Runtime
from harness.runtimes.sim import SimRuntime
from harness.schedules.timers import Timers
from harness.suggest import known_name
from harness.systems import System
from harness.systems.kafka import TRANSACTION_STATE, KafkaControl, kafka_settings
from harness.targets import SIM_KAFKA, SIM_REDPANDA

REST_MS: Final = 10**12
NO_REPLICA: Final = "NotLeaderForPartitionError"
"""The error of a broker without a replica of the partition."""

UNSUPPORTED_NEMESES: Final = frozenset(
    {"bridge", "controller-kill", "crash-in-cleaning", "disk-full", "one-way", "power-failure", "ring", "split"}
)
"""Single links, controllers, full disks, files of a cleaner pass and unsynced data are not modelled."""
NO_OLD_LOGS: Final = frozenset({"reassigned"})
"""The name of Redpanda's folder of a replica has the revision of its assignment, so that a replica that is assigned
again begins empty."""
VERSION_2: Final = {"librdkafka": False, "java": True}
"""By client: whether its transactions raise the epoch (KIP-890)."""

LOOKS_A_WINDOW, ROUNDS_A_WINDOW, SETTLING_ROUNDS = 500, 100, 10
"""The number of observations, and of rounds of the filler, in a window of days; some waits are for a few rounds."""


class SimulatedAdmin:
    """Implements the methods of `harness.kafka_api.admin.Admin` that a run needs; changes take effect immediately."""

    def __init__(self, cluster: SimCluster, coordinator: TransactionCoordinator) -> None:
        self._cluster = cluster
        self.create_topics, self.alter_topics = cluster.create, cluster.alter
        self.ending_transactions = coordinator.ending
        # Controllers are not modelled, and topics have only names.
        self.active_controller, self.topic_id = lambda: None, lambda _topic: None
        self.delete_topic = lambda topic, _topic_id=None: cluster.delete(topic)
        self.alter_brokers = partial(cluster.alter_brokers, list(cluster.brokers))
        self.alter_broker = lambda broker, _address, settings: cluster.alter_brokers([broker], settings)
        self.topic_settings = lambda _address, topics: {topic: dict(cluster.topics[topic].own) for topic in topics}
        self.broker_settings = lambda broker, _address: dict(cluster.brokers[broker].settings.own)

    def brokers(self) -> set[int]:
        """Return the registered brokers."""
        return {number for number, broker in self._cluster.brokers.items() if broker.is_registered}

    def partitions(self, topics: Sequence[str], at: Address | None = None) -> dict[TopicPartition, PartitionState]:
        """Return every partition's leader, replicas and ISR; all brokers have the same metadata."""
        del at
        states = {}
        for tp, it in self._cluster.partitions.items():
            if tp[0] in topics:
                leader = -1 if it.leader_id is None else it.leader_id
                states[tp] = PartitionState(leader, it.assigned, tuple(it.in_sync), it.replication.leader_epoch)
        return states

    def has_coordinator(self, _transactional_id: str) -> bool:
        """Create the coordinator's partition, whose leader can be moved; transactions do not depend on it."""
        if TRANSACTION_STATE not in self._cluster.partitions:
            self._cluster.create({TRANSACTION_STATE: list(self._cluster.brokers)}, {})
        return True

    def delete_records(self, leader: Address, partition: TopicPartition, before: int) -> None:
        """Delete the records below an offset. Raises `HarnessError` if the broker, by its port, is not the leader."""
        model = self._cluster.partitions[partition]
        if model.leader_id != leader.port or not self._cluster.is_reachable(leader.port):
            raise HarnessError(f"records of {partition[0]}-{partition[1]} cannot be deleted: another broker leads")
        self._cluster.delete_records(model, before)

    def reassign(self, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Give partitions new replicas."""
        for tp, brokers in replicas.items():
            self._cluster.reassign(self._cluster.partitions[tp], brokers)

    def elect_preferred(self, partitions: Sequence[TopicPartition]) -> None:
        """Elect preferred leaders that are in sync."""
        for partition in map(self._cluster.partitions.__getitem__, partitions):
            self._cluster.lead(partition, partition.assigned[0])


@dataclass(frozen=True)
class SimulatedReader:
    """Implements `harness.kafka_api.fetch.ReplicaReader`."""

    cluster: SimCluster
    broker: int
    _answers: dict[tuple[TopicPartition, int], tuple[int, ReplicaState]] = field(default_factory=dict)

    def read(
        self, partitions: Iterable[TopicPartition], *, replica_id: int = DEBUG_REPLICA_ID
    ) -> dict[TopicPartition, ReplicaState | str]:
        """Return each replica; a consumer reads up to the last stable offset."""
        self._raise_if_down()
        return {tp: self._state(tp, replica_id) for tp in partitions}

    def ends(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, ReplicaEnds | str]:
        """Return the ends of each replica."""
        return {
            tp: ReplicaEnds(replica.log_end, replica.high_watermark, replica.last_stable_offset)
            if (replica := self.served(tp))
            else NO_REPLICA
            for tp in positions
        }

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OpenTransactions]:
        """Return the open transactions of each replica."""
        self._raise_if_down()
        replicas = {tp: replica for tp in partitions if (replica := self.served(tp))}
        return {tp: tuple(starmap(OpenTransaction, r.open_transactions)) for tp, r in replicas.items()}

    def close(self) -> None:
        """Do nothing."""

    def _raise_if_down(self) -> None:
        if not self.cluster.is_reachable(self.broker):
            raise ConnectionError(f"broker {self.broker} does not answer")

    def served(self, tp: TopicPartition) -> Replica | None:
        """Return the replica that the broker serves for a partition, or None. Raises OSError if the broker is down."""
        self._raise_if_down()
        return self.cluster.partitions[tp].replication.replicas.get(self.broker)

    def _state(self, tp: TopicPartition, replica_id: int) -> ReplicaState | str:
        replica, version = self.served(tp), self.cluster.partitions[tp].versions.get(self.broker, 0)
        if replica is None:
            return NO_REPLICA
        answer = self._answers.get((tp, replica_id))
        if answer is None or answer[0] != version:
            answer = version, self._read(replica, is_consumer=replica_id != DEBUG_REPLICA_ID)
            self._answers[tp, replica_id] = answer
        return answer[1]

    @staticmethod
    def _read(replica: Replica, *, is_consumer: bool) -> ReplicaState:
        batches = batches_up_to(replica, replica.last_stable_offset if is_consumer else replica.log_end)
        records = b"".join(map(encoded, batches))
        return ReplicaState(
            log_start=replica.log_start,
            high_watermark=replica.high_watermark,
            last_stable_offset=replica.last_stable_offset,
            aborted=listed_aborts(replica) if is_consumer else (),
            records=records,
            batches=tuple(iter_batches(records, source="a simulated log", verify_crc=False)),
        )


@dataclass
class SimulatedReading:
    """Implements `harness.clients.reader.Reading`; every read is complete immediately."""

    reader: SimulatedReader
    delivered: dict[TopicPartition, list[dict[str, Any]]]
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    def is_at_end(self) -> bool:
        """Read everything up to the last stable offset."""
        for tp in self.delivered:
            if (replica := self.reader.served(tp)) is not None:
                records = delivered(replica)
                self.delivered[tp] = [delivered_record(r.offset, r.key or b"", r.value) for r in records]
                offsets = (batch.last_offset + 1 for batch in batches_up_to(replica, replica.last_stable_offset))
                self.ends[tp] = max(offsets, default=replica.log_start)
        return len(self.ends) == len(self.delivered)

    def close(self) -> None:
        """Do nothing."""


class SimulatedControl(KafkaControl):
    """The requests to a simulated cluster that are not part of Kafka's protocol."""

    runtime: SimRuntime

    def reader(self, broker: int) -> ReplicaReader:
        """Return a reader of the broker's replicas."""
        return SimulatedReader(self.runtime.cluster, broker)

    def compaction(self, partition: TopicPartition) -> dict[int, dict[str, int | None]]:
        """Return MCCO, MTRO, MXFO and MXRO of each replica, if replicas coordinate their compaction."""
        model, system = self.runtime.cluster.partitions[partition], self.runtime.cluster.rules.system
        progress: dict[int, dict[str, int | None]] = {}
        for broker, view in model.protocol.views.items() if model.protocol else ():
            limits = system.progress(model.replica(broker))
            progress[broker] = {
                "cleanly_compacted": limits.tombstones,
                "tombstones_removable": view.bounds.tombstones,
                "transactions_free": limits.markers,
                "transactions_removable": view.bounds.markers,
                "cleaner_offset": model.replica(broker).cleaned_to or 0,
            }
        return progress

    def coordination(self) -> dict[str, bool]:
        """Return whether the cluster's rules have coordinated compaction."""
        return {COORDINATED_COMPACTION: True} if self.runtime.cluster.rules.coordinated else {}


def _timers(timers: Timers) -> Timers:
    """Return timers with a limited number of observations and writes in long windows; quotas are exact here."""
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


def _client(runtime: Runtime, name: str) -> OpenLibrary:
    sim = cast("SimRuntime", runtime)
    return SimulatedClient(sim.cluster, sim.coordinator, VERSION_2[known_name("client", name, VERSION_2)]).opened


def _consumer(runtime: Runtime, leader: int, partitions: Sequence[TopicPartition]) -> Reading:
    reader = SimulatedReader(cast("SimRuntime", runtime).cluster, leader)
    return SimulatedReading(reader, {tp: [] for tp in partitions})


def _admin(runtime: Runtime) -> Admin:
    sim = cast("SimRuntime", runtime)
    return cast("Admin", SimulatedAdmin(sim.cluster, sim.coordinator))


def _system(name: str, proof: tuple[str, ...] = (), more_unsupported: frozenset[str] = frozenset()) -> System:
    return System(
        name=name,
        settings=kafka_settings,
        control=lambda runtime, admin: SimulatedControl(runtime, admin, REST_MS),
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
}
