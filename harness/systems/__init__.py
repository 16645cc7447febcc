"""The systems under test in one table: the differences between Kafka, Redpanda and simulated clusters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol

from harness.clients import OpenLibrary, find_client
from harness.clients.reader import LibrdkafkaReading, Reading
from harness.kafka_api import TopicPartition
from harness.kafka_api.admin import Admin
from harness.kafka_api.fetch import ReplicaReader
from harness.kafka_api.metadata import PartitionState
from harness.runtimes.base import Runtime, live_addresses
from harness.schedules.placement import Placement
from harness.schedules.timers import Timers
from harness.targets import KAFKA, REDPANDA, SIMULATED, Target

SystemSettings = tuple[dict[str, str], dict[str, str]]
"""Settings of topics, and of brokers."""


class Control(Protocol):
    """The requests of a run that differ between systems. Changes may take effect later; `is_…` asks whether they have.

    Methods raise `HarnessError` while no broker answers, and OSError where a certain broker has to answer.
    """

    @property
    def coordinator(self) -> TopicPartition:
        """The partition whose leader coordinates every transaction of a run."""

    def registered(self) -> set[int]:
        """Return the brokers that are part of the cluster now."""

    def active_controller(self) -> int | None:
        """Return the leader of the controllers; None while there is none."""

    def states(self, topics: Sequence[str]) -> dict[TopicPartition, PartitionState]:
        """Return every partition's leader, replicas and ISR."""

    def lead(self, orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Request these replicas for partitions; the first is to be the leader."""

    def leads(self, orders: Mapping[TopicPartition, Sequence[int]]) -> bool:
        """Return whether each first replica is the leader on every live broker; request the other elections again."""

    def freeze(self, topics: Sequence[str]) -> None:
        """Request that no compaction of the topics begins."""

    def is_frozen(self, topics: Sequence[str]) -> bool:
        """Return whether every live broker has applied `freeze`."""

    def thaw(self, topics: Sequence[str], settings: Mapping[str, str]) -> None:
        """Undo `freeze`; ``settings``: of the topics."""

    def rest(self, brokers: Sequence[int], for_ms: int | None = None) -> None:
        """Request that these brokers compact nothing for this time (None: during the run), even if disconnected."""

    def is_resting(self, brokers: Sequence[int], for_ms: int | None = None) -> bool:
        """Return whether the brokers have applied `rest`."""

    def wake(self, brokers: Sequence[int]) -> None:
        """Undo `rest`."""

    def reader(self, broker: int) -> ReplicaReader:
        """Return a reader of the broker's replicas, which the caller closes."""

    def compaction(self, partition: TopicPartition) -> dict[int, dict[str, int | None]]:
        """Return the compaction progress that replicas report, by broker; empty if the system reports none."""

    def identities(self) -> dict[int, str]:
        """Return the ids of the brokers' data directories by broker; empty if a file has them."""

    def file_logs(self, folder: Path, *, is_up: bool) -> None:
        """Convert the copied files of a partition to Kafka's format; ``is_up``: whether the broker is up."""

    def coordination(self) -> dict[str, bool]:
        """Return the requirements of coordinated compaction, and whether each is met."""


@dataclass(frozen=True)
class System:
    """The set-up of a system, and its limits.

    ``settings``: returns the settings of a target for some timers and the broker settings that a nemesis needs.
    ``consumer``: starts a read_committed consumer of partitions on their leader. ``client``: returns the function that
    opens the client library with a name; it needs no jars if the system ``has_own_clients``. ``why_unfit``: returns the
    reason why a placement is impossible. ``proof``: the requirements in `Control.coordination` of a clean run.
    ``has_odd_replicas``: replication factors must be odd. ``least_window_s``: the minimum time for a removal.
    """

    name: str
    settings: Callable[[Target, Timers, Mapping[str, str]], SystemSettings]
    control: Callable[[Runtime, Admin], Control]
    admin: Callable[[Runtime], Admin] = lambda runtime: Admin(lambda: live_addresses(runtime))
    consumer: Callable[[Runtime, int, Sequence[TopicPartition]], Reading] = lambda runtime, leader, partitions: (
        LibrdkafkaReading(runtime.address(leader), partitions)
    )
    client: Callable[[Runtime, str], OpenLibrary] = lambda _, name: find_client(name)
    has_own_clients: bool = False
    timers: Callable[[Timers], Timers] = lambda timers: timers
    why_unfit: Callable[[Placement], str | None] = lambda _: None
    unsupported_nemeses: frozenset[str] = frozenset()
    proof: tuple[str, ...] = ()
    has_odd_replicas: bool = False
    least_window_s: float = 0.0


_MODULES = {KAFKA: "kafka", REDPANDA: "redpanda", **dict.fromkeys(SIMULATED, "simulated")}
"""Modules with ``SYSTEMS``, imported only if they are needed: the import of models and HTTP clients takes time."""


def find_system(target: Target) -> System:
    """Return the system of a target by `Target.system`, or the system that its file describes."""
    if target.own is not None:
        system: System = import_module(f"{__name__}.own").system_of(target.own)
        return system
    systems: Mapping[str, System] = import_module(f"{__name__}.{_MODULES[target.system]}").SYSTEMS
    return systems[target.system]
