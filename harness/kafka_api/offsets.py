"""Offsets of one replica by ListOffsets (KIP-79), from the broker of the replica.

Only leaders answer consumers. Followers, too, answer a request of the debugging consumer (replica id -2), which has no
isolation: its latest offset is the replica's own log end offset (``KafkaApis.handleListOffsetRequest``,
``fetchOnlyFromLeader``; seen on 3.9.2 and 4.4.0). Redpanda's followers refuse the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.consumer import ListOffsetsRequest

from harness.kafka_api.replica import CONSUMER_REPLICA_ID, DEBUG_REPLICA_ID, READ_UNCOMMITTED
from harness.kafka_api.wire import error_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.kafka_api.replica import Caller, TopicPartition

EARLIEST, LATEST = -2, -1
NO_SUCH_OFFSET = -1


def log_ends(broker: Caller, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | str]:
    """Return the log end offset of each of the broker's replicas; an error is given by its name. Raises OSError."""
    return list_offsets(broker, dict.fromkeys(partitions, LATEST), replica_id=DEBUG_REPLICA_ID)


def log_starts(broker: Caller, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | str]:
    """Return the log start offset of each of the broker's replicas; an error is given by its name. Raises OSError."""
    return list_offsets(broker, dict.fromkeys(partitions, EARLIEST), replica_id=DEBUG_REPLICA_ID)


def list_offsets(
    broker: Caller, timestamps_ms: dict[TopicPartition, int], *, replica_id: int = CONSUMER_REPLICA_ID
) -> dict[TopicPartition, int | str]:
    """Return the first offset at or after each timestamp, -1 where there is none; an error is given by its name.

    ``timestamps_ms`` may be `EARLIEST` or `LATEST`, which is the high watermark for a consumer. Raises OSError.
    """
    Topic = ListOffsetsRequest.ListOffsetsTopic  # noqa: N806
    topics = [
        Topic(name=topic, partitions=[Topic.ListOffsetsPartition(partition_index=partition, timestamp=timestamp_ms)])
        for (topic, partition), timestamp_ms in timestamps_ms.items()
    ]
    request = ListOffsetsRequest[4](replica_id=replica_id, isolation_level=READ_UNCOMMITTED, topics=topics)
    return {
        (topic.name, p.partition_index): error_name(p.error_code) if p.error_code else p.offset
        for topic in broker.call(request).topics
        for p in topic.partitions
    }
