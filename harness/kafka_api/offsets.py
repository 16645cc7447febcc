"""Offsets of one replica by ListOffsets (KIP-79), from the broker of the replica.

Only leaders answer consumers. Followers, too, answer a request of the debugging consumer (replica id -2), which has no
isolation: its latest offset is the replica's own log end offset (``KafkaApis.handleListOffsetRequest``,
``fetchOnlyFromLeader``; seen on 3.9.2 and 4.4.0). Redpanda's followers refuse the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.protocol.consumer import ListOffsetsRequest

from harness.kafka_api.fetch import CONSUMER_REPLICA_ID, DEBUG_REPLICA_ID, READ_UNCOMMITTED
from harness.kafka_api.messages import Request, error_name, partitions_in, per_topic, request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.kafka_api.messages import TopicPartition

EARLIEST, LATEST = -2, -1
NO_SUCH_OFFSET: Final = -1


def list_log_ends(partitions: Iterable[TopicPartition]) -> Request[dict[TopicPartition, int | str]]:
    """Return the log end offset of each of the broker's replicas, or an error's name."""
    return list_offsets(dict.fromkeys(partitions, LATEST), replica_id=DEBUG_REPLICA_ID)


def list_log_starts(partitions: Iterable[TopicPartition]) -> Request[dict[TopicPartition, int | str]]:
    """Return the log start offset of each of the broker's replicas, or an error's name."""
    return list_offsets(dict.fromkeys(partitions, EARLIEST), replica_id=DEBUG_REPLICA_ID)


def list_offsets(
    timestamps_ms: Mapping[TopicPartition, int], *, replica_id: int = CONSUMER_REPLICA_ID
) -> Request[dict[TopicPartition, int | str]]:
    """Return the first offset at or after each timestamp, -1 where there is none, or an error's name.

    ``timestamps_ms`` may be `EARLIEST` or `LATEST`, which is the high watermark for a consumer.
    """
    return request(
        ListOffsetsRequest,
        4,
        lambda answer: {
            tp: error_name(p.error_code) if p.error_code else p.offset for tp, p in partitions_in(answer.topics)
        },
        replica_id=replica_id,
        isolation_level=READ_UNCOMMITTED,
        topics=per_topic((tp, {"partition_index": tp[1], "timestamp": time}) for tp, time in timestamps_ms.items()),
    )
