"""Kafka's wire protocol, where client libraries do not reach.

Requests to one broker at a time: Fetch as a consumer or follower, transactions, offsets, cluster state, Redpanda's
admin API. Clients that write are in `harness.clients`.
"""

from typing import Final

TopicPartition = tuple[str, int]

# Names of errors in answers, without an import of kafka-python, which is slow.
NO_SUCH_TOPIC: Final = "UnknownTopicOrPartitionError"
NO_TOPIC_ACCESS: Final = "TopicAuthorizationFailedError"
NO_COORDINATOR_YET: Final = frozenset(
    {"CoordinatorLoadInProgressError", "NotCoordinatorError", "CoordinatorNotAvailableError"}
)
"""Answers of a broker that has just become the leader, or is about to learn of its leadership."""
OUT_OF_RANGE: Final = "OffsetOutOfRangeError"
"""The answer below the log start offset, and beyond the log end."""
UNSTABLE_OFFSET: Final = "UnstableOffsetCommitError"
"""A transaction with an offset of this partition is open, and stable offsets were asked for."""


def partition_named(name: str) -> TopicPartition:
    """Return the partition whose folders have this name. Raises ValueError for another name."""
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)
