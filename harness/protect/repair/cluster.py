"""What a repair needs of a cluster: small protocols, which a simulated cluster of the tests implements, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from harness.protect.repair.state import ObservedPartition, Partition, PartitionRepair


class TakenOverError(HarnessError):
    """Another repair works on the cluster by now."""


class RepairCluster(Protocol):
    """Observes partitions and changes their assignments. Every method raises `HarnessError` or OSError."""

    def observe(self, entries: Collection[PartitionRepair]) -> Mapping[Partition, ObservedPartition | str]:
        """Return what each partition looks like now; a sentence where brokers do not agree or do not answer."""
        ...

    def reassign(self, partition: Partition, replicas: Sequence[int]) -> None:
        """Assign these replicas (KIP-455). It takes the place of a reassignment that is under way."""
        ...

    def elect_preferred(self, partition: Partition) -> None:
        """Have the first replica lead (KIP-460). If it cannot lead yet, that is no error."""
        ...


class Journal(Protocol):
    """The durable progress of repairs: what `store` wrote is there after any crash. Methods raise as above."""

    def entries(self) -> dict[Partition, PartitionRepair]:
        """Return the progress of every partition whose repair began and is not finished."""
        ...

    def store(self, entry: PartitionRepair) -> None:
        """Store progress in place of what was stored of the same partition."""
        ...

    def remove(self, partition: Partition) -> None:
        """Forget a partition."""
        ...


class Holds(Protocol):
    """Pauses compaction of topics. What was found is durable before anything changes. Methods raise as above."""

    def held(self) -> frozenset[str]:
        """Return the topics that repairs hold, also those of a repair that was killed."""
        ...

    def hold(self, topics: Collection[str]) -> None:
        """Pause compaction; the settings reach the brokers some time later (`Seen.is_held`)."""
        ...

    def release(self, topics: Collection[str]) -> None:
        """Put back what was found. A value that somebody changed meanwhile is left alone."""
        ...


class Throttle(Protocol):
    """Limits how fast replicas are copied, and puts back what was found. Methods raise as above."""

    def limit(self, entries: Collection[PartitionRepair]) -> None:
        """Limit the copies of these partitions; what was found is durable before anything changes."""
        ...

    def lift(self) -> None:
        """Put back what was found, also by a repair that was killed. Raises where something could not be put back."""
        ...
