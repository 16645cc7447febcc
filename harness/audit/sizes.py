"""Sizes of replicas on disk (DescribeLogDirs, KIP-113). A user needs Describe on the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.admin import DescribeLogDirsRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.brokers.protocol.replica import Caller, TopicPartition


def replica_sizes(broker: Caller, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the bytes of segments of each of this broker's replicas that the broker reports. Raises OSError."""
    Topic = DescribeLogDirsRequest.DescribableLogDirTopic  # noqa: N806
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    wanted = [Topic(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
    answer = broker.call(DescribeLogDirsRequest[1](topics=wanted))
    return {
        (topic.name, p.partition_index): p.partition_size
        for directory in answer.results
        if not directory.error_code
        for topic in directory.topics
        for p in topic.partitions
        if not p.is_future_key
    }
