"""Requests about consumer groups, sent straight to the broker that coordinates them.

A coordinator is the leader of the group's partition of ``__consumer_offsets``. Commits are those of a consumer that
manages its partitions itself: no member id, generation -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest

from harness.errors import HarnessError
from harness.kafka_api.coordinators import NO_COORDINATOR_YET
from harness.kafka_api.wire import error_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka.protocol.api_message import ApiMessage

    from harness.kafka_api.replica import Caller, TopicPartition

NO_GENERATION, NO_MEMBER, NO_EPOCH = -1, "", -1
NO_OFFSET: Final = -1
VERSION: Final = 7
"""Of both requests: OffsetFetch asks for stable offsets from here on (KIP-447)."""
LAST_WITH_RETENTION: Final = 4
"""Of OffsetCommit: from version 5 on a commit has no retention of its own (KIP-211)."""


@dataclass(frozen=True)
class CommittedOffsets:
    """A coordinator's answer about a group: offsets by partition, and the name of what went wrong, or None.

    A partition without a committed offset is left out. A partition with a pending transaction has no offset where
    stable offsets are asked for: ``error`` is ``UnstableOffsetCommitError`` then.
    """

    offsets: Mapping[TopicPartition, int]
    error: str | None = None


def commit_request(
    group: str, offsets: Mapping[TopicPartition, int], metadata: str = "", retention_ms: int | None = None
) -> ApiMessage:
    """Return the request by which a group without members commits offsets; see `commit_offsets`."""
    Topic = OffsetCommitRequest.OffsetCommitRequestTopic  # noqa: N806
    topics = [
        Topic(
            name=topic,
            partitions=[
                Topic.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=NO_EPOCH,
                    committed_metadata=metadata,
                )
            ],
        )
        for (topic, partition), offset in offsets.items()
    ]
    member = {"group_id": group, "generation_id_or_member_epoch": NO_GENERATION, "member_id": NO_MEMBER}
    if retention_ms is None:
        return OffsetCommitRequest[VERSION](**member, group_instance_id=None, topics=topics)
    return OffsetCommitRequest[LAST_WITH_RETENTION](**member, retention_time_ms=retention_ms, topics=topics)


def commit_offsets(
    coordinator: Caller,
    group: str,
    offsets: Mapping[TopicPartition, int],
    metadata: str = "",
    retention_ms: int | None = None,
) -> None:
    """Commit offsets of a group without members. Raises `HarnessError` where the coordinator refuses.

    ``retention_ms``: after so long the coordinator's next check deletes the offsets; None for the brokers'
    ``offsets.retention.minutes``. Raises OSError where the broker goes away, or does not coordinate the group yet.
    """
    answer = coordinator.call(commit_request(group, offsets, metadata, retention_ms))
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code:
                name = error_name(partition.error_code)
                if name in NO_COORDINATOR_YET:
                    raise ConnectionError(f"group {group} has no coordinator yet: {name}")
                raise HarnessError(f"offsets of group {group} cannot be committed: {name}")


def fetch_offsets(
    coordinator: Caller, group: str, partitions: Sequence[TopicPartition], *, require_stable: bool
) -> CommittedOffsets:
    """Return the offsets that a group would continue at. Raises OSError."""
    Topic = OffsetFetchRequest.OffsetFetchRequestTopic  # noqa: N806
    numbers: dict[str, list[int]] = {}
    for topic, partition in partitions:
        numbers.setdefault(topic, []).append(partition)
    answer = coordinator.call(
        OffsetFetchRequest[VERSION](
            group_id=group,
            topics=[Topic(name=topic, partition_indexes=indexes) for topic, indexes in numbers.items()],
            require_stable=require_stable,
        )
    )
    codes = [answer.error_code, *(p.error_code for topic in answer.topics for p in topic.partitions)]
    return CommittedOffsets(
        {
            (topic.name, p.partition_index): p.committed_offset
            for topic in answer.topics
            for p in topic.partitions
            if not p.error_code and p.committed_offset != NO_OFFSET
        },
        next((error_name(code) for code in codes if code), None),
    )
