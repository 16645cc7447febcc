"""Which brokers there are, which of them go away, and where each partition's replicas live."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError

FIRST_ABSENT = 2
FEWEST_BROKERS, MOST_BROKERS = 3, 7
MOST_PARTITIONS = 100
"""Of a topic: with every scenario's topic, some thousand replicas on brokers with a heap of 256 MB."""


@dataclass(frozen=True)
class Placement:
    """A cluster's shape. ``absent`` brokers go down together; ``quorum``: how many are controllers, too."""

    brokers: tuple[int, ...] = (1, 2, 3)
    absent: tuple[int, ...] = (2,)
    replication_factor: int = 3
    partitions: int = 1
    quorum: int = 1
    has_odd_replicas: bool = False

    @property
    def staying(self) -> tuple[int, ...]:
        """The brokers that stay up, in order."""
        return tuple(broker for broker in self.brokers if broker not in self.absent)

    @property
    def controllers(self) -> tuple[int, ...]:
        """The KRaft quorum, of brokers that stay: one, as an election in mid-outage would be a second fault."""
        return self.staying[: self.quorum]

    def replicas(self, partition: int, *, control: bool = False) -> tuple[int, ...]:
        """Return a partition's brokers: staying ones, led in turn, then absent ones, but for a control."""
        first = partition % len(self.staying)
        staying = self.staying[first:] + self.staying[:first]
        if control:
            count = min(self.replication_factor, len(staying))
            return staying[: count - 1 if self.has_odd_replicas and count % 2 == 0 else count]
        return staying[: self.replication_factor - len(self.absent)] + self.absent


def led_by(broker: int, replicas: Sequence[int]) -> tuple[int, ...]:
    """Return the replicas in the order that makes the broker their preferred leader."""
    return (broker, *(replica for replica in replicas if replica != broker))


def place(*, brokers: int, replication_factor: int, partitions: int, absent: int, **more: Any) -> Placement:
    """Return a placement by its numbers, with ``more`` fields. Raises `UsageError` for numbers that do not fit."""
    if not FEWEST_BROKERS <= brokers <= MOST_BROKERS:
        raise UsageError(f"--brokers {brokers}: give {FEWEST_BROKERS} to {MOST_BROKERS}")
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise UsageError(f"--partitions {partitions}: give 1 to {MOST_PARTITIONS}")
    if not 2 <= replication_factor <= brokers:  # noqa: PLR2004  (somebody stays, somebody leaves)
        raise UsageError(f"--replication-factor {replication_factor}: give 2 to {brokers}, the number of brokers")
    if not 1 <= absent < replication_factor:
        raise UsageError(
            f"--absent {absent}: give 1 to {replication_factor - 1}; of the {replication_factor} replicas"
            " (--replication-factor) at least one has to stay"
        )
    absent_brokers = tuple(range(FIRST_ABSENT, FIRST_ABSENT + absent))
    return Placement(tuple(range(1, brokers + 1)), absent_brokers, replication_factor, partitions, **more)
