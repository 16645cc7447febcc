"""The systems under test, in one table: what differs between Kafka, Redpanda and simulated clusters.

Topic settings, how cleaning is seen, which client and which reader. Versions are in `harness.targets`; where brokers
run is in `harness.runtimes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from harness.clients import find_client
from harness.clients.reader import LibrdkafkaReading
from harness.kafka_api.admin import Admin
from harness.runtimes.base import live_addresses
from harness.schedules.timers import DAY_MS
from harness.targets import KAFKA, REDPANDA, SIMULATED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from harness.clients import ClientLibrary
    from harness.clients.reader import Reading
    from harness.kafka_api.messages import TopicPartition
    from harness.kafka_api.metadata import PartitionState
    from harness.kafka_api.replica import ReplicaReader
    from harness.runtimes.base import Runtime
    from harness.schedules.placement import Placement
    from harness.schedules.timers import Timers
    from harness.targets import Target


class Control(Protocol):
    """What the harness asks of a cluster and does to it in other ways on each system.

    What takes effect only later is asked for once, and then looked at until it holds.
    """

    @property
    def coordinator(self) -> TopicPartition:
        """The partition whose leader coordinates every transaction of a run."""
        ...

    def registered(self) -> set[int]:
        """Return the brokers that are part of the cluster now. Raises `HarnessError` while no broker answers."""
        ...

    def active_controller(self) -> int | None:
        """Return who leads the controllers; None while nobody does. Raises `HarnessError` while no broker answers."""
        ...

    def states(self, topics: Sequence[str]) -> dict[TopicPartition, PartitionState]:
        """Return every partition's leader, replicas, and which of them count as in sync."""
        ...

    def lead(self, orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Ask that partitions have these replicas, the first of which is to lead."""
        ...

    def leads(self, orders: Mapping[TopicPartition, Sequence[int]]) -> bool:
        """Whether each of them leads, and every broker knows; asks again for those that do not."""
        ...

    def freeze(self, topics: Sequence[str]) -> None:
        """Ask that no compaction begins any more."""
        ...

    def is_frozen(self, topics: Sequence[str]) -> bool:
        """Whether every broker that can be reached knows."""
        ...

    def thaw(self, topics: Sequence[str], settings: Mapping[str, str]) -> None:
        """Take that back; ``settings`` are the topics' own."""
        ...

    def rest(self, brokers: Sequence[int], for_ms: int = DAY_MS) -> None:
        """Ask that these brokers compact nothing for so long, wherever they can be reached meanwhile."""
        ...

    def is_resting(self, brokers: Sequence[int], for_ms: int = DAY_MS) -> bool:
        """Whether they know."""
        ...

    def wake(self, brokers: Sequence[int]) -> None:
        """Take that back."""
        ...

    def reader(self, broker: int) -> ReplicaReader:
        """Return what reads this broker's replicas; whoever asks closes it. Raises OSError."""
        ...

    def compaction(self, partition: TopicPartition) -> dict[int, dict[str, int | None]]:
        """Return what each replica says of its compaction, by broker; nothing where a system has no such words."""
        ...

    def identities(self) -> dict[int, str]:
        """Return what distinguishes a broker's data from those of an earlier cluster, by broker, where no file does."""
        ...

    def file_logs(self, folder: Path, *, is_up: bool) -> None:
        """Make evidence of a partition's files that were just copied, of a broker that is up or not."""
        ...

    def coordination(self) -> dict[str, bool]:
        """Return what is needed for replicas to compact together, and whether it is there."""
        ...


def _admin(runtime: Runtime) -> Admin:
    return Admin(lambda: live_addresses(runtime))


def _consumer(runtime: Runtime, leader: int, partitions: Sequence[TopicPartition]) -> Reading:
    return LibrdkafkaReading(runtime.address(leader), partitions)


@dataclass(frozen=True)
class System:
    """How a system is set up, and what it can be put through.

    ``settings``: topic and broker settings of a target on some timers, with those that a nemesis asks of Kafka's
    brokers. ``admin`` and ``control`` ask its brokers; ``consumer`` begins to read partitions as a read_committed
    consumer of the broker that leads them, and ``client`` is what workloads write with, by its name; it needs nothing
    from outside where the system ``has_own_clients``. ``timers``: how it takes those asked for. ``why_unfit`` says why
    a placement cannot be; ``unsupported_nemeses``: those that it cannot be put through. ``proof``: what
    `Control.coordination` has to show before a run can be clean. ``has_odd_replicas``: of each partition.
    ``least_window_s``: how long removal has to be given, whatever the timers say.
    """

    name: str
    settings: Callable[[Target, Timers, Mapping[str, str]], tuple[dict[str, str], dict[str, str]]]
    control: Callable[[Runtime, Admin], Control]
    admin: Callable[[Runtime], Admin] = _admin
    consumer: Callable[[Runtime, int, Sequence[TopicPartition]], Reading] = _consumer
    client: Callable[[Runtime, str], ClientLibrary] = lambda _, name: find_client(name)
    has_own_clients: bool = False
    timers: Callable[[Timers], Timers] = lambda timers: timers
    why_unfit: Callable[[Placement], str | None] = lambda _: None
    unsupported_nemeses: frozenset[str] = frozenset()
    proof: tuple[str, ...] = ()
    has_odd_replicas: bool = False
    least_window_s: float = 0.0


_MODULES = {KAFKA: "kafka", REDPANDA: "redpanda", **dict.fromkeys(SIMULATED, "simulated")}
"""Each has ``SYSTEMS``, and is imported only where it is needed: models and HTTP clients take a while."""


def find_system(name: str) -> System:
    """Return the system of a target by `Target.system`."""
    systems: Mapping[str, System] = import_module(f"{__name__}.{_MODULES[name]}").SYSTEMS
    return systems[name]
