"""The window of a run: it is open once every critical record is removed from the replicas that stay."""

from collections.abc import Callable, Collection, Iterator

from harness.cluster.cluster import Cluster
from harness.kafka_api import TopicPartition
from workloads.payload import Payload


def wait_removed(
    cluster: Cluster,
    payloads: Collection[Payload],
    window_s: float,
    is_held: Callable[[int, TopicPartition], bool] | None = None,
) -> None:
    """Wait until all critical records are removed from every replica that is up and cleaned in time.

    ``is_held``: whether a broker says that it keeps its cleaner from a partition; then nothing has to be gone from
    there, unless every replica of the partition stayed. Raises `WaitTimeoutError`.
    """
    exposed = set(cluster.exposed)

    def is_done() -> bool:
        return all(
            offset is not None
            and all(
                cluster.observed.is_removed(broker, partition, offset)
                or (is_held is not None and partition in exposed and is_held(broker, partition))
                for broker in cluster.cleaning(partition)
            )
            for partition, offset in _critical(cluster, payloads)
        )

    cluster.wait(is_done, "the critical tombstones and markers to be removed", window_s)


def is_kept(cluster: Cluster, payloads: Collection[Payload]) -> bool:
    """Return whether everything that an absent broker could miss is on every replica that is up."""
    return all(
        offset is not None
        and not any(cluster.observed.is_removed(broker, partition, offset) for broker in cluster.present(partition))
        for partition, offset in _critical(cluster, payloads)
        if partition in cluster.exposed
    )


def _critical(cluster: Cluster, payloads: Collection[Payload]) -> Iterator[tuple[TopicPartition, int | None]]:
    """Yield where each critical record is; None for one that was never seen on any replica."""
    for payload in payloads:
        for partition in payload.partitions:
            for kind in payload.scenario.critical:
                yield partition, payload.critical_offset(kind, partition, cluster.observed)
