"""The window: it is open once those who are there have removed what an absent broker has yet to see."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.brokers.protocol.replica import TopicPartition
    from harness.cluster.cluster import Cluster
    from workloads.payload import Payload


def wait_removed(cluster: Cluster, payloads: Sequence[Payload], window_s: float) -> None:
    """Wait until all that is critical is gone from every replica that is there and cleaned in time.

    Raises `WaitTimeoutError`.
    """

    def is_open() -> bool:
        return all(
            offset is not None
            and all(cluster.observer.is_removed(broker, partition, offset) for broker in cluster.cleaning(partition))
            for partition, offset in _critical(cluster, payloads)
        )

    cluster.wait(is_open, "the critical tombstones and markers to be removed", window_s)


def is_kept(cluster: Cluster, payloads: Sequence[Payload]) -> bool:
    """Whether all that an absent broker could miss is on every replica that is there."""
    return all(
        offset is not None
        and not any(cluster.observer.is_removed(broker, partition, offset) for broker in cluster.present(partition))
        for partition, offset in _critical(cluster, payloads)
        if partition in cluster.exposed
    )


def _critical(cluster: Cluster, payloads: Sequence[Payload]) -> Iterator[tuple[TopicPartition, int | None]]:
    """Yield where each critical record is; None for one that was never seen on any replica."""
    for payload in payloads:
        for partition in payload.partitions:
            for kind in payload.scenario.critical:
                yield partition, payload.critical_offset(kind, partition, cluster.observer)
