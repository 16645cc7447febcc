"""Names of errors in answers, without an import of kafka-python, which is slow."""

from typing import Final

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
