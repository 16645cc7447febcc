"""Names of errors in answers, as kafka-python has them; read without kafka-python, which is slow to import."""

from __future__ import annotations

from typing import Final

NO_SUCH_TOPIC: Final = "UnknownTopicOrPartitionError"
NO_TOPIC_ACCESS: Final = "TopicAuthorizationFailedError"
NO_COORDINATOR_YET: Final = frozenset(
    {"CoordinatorLoadInProgressError", "NotCoordinatorError", "CoordinatorNotAvailableError"}
)
"""What a broker answers that has just become the leader, or does not know yet that it is."""
OUT_OF_RANGE: Final = "OffsetOutOfRangeError"
"""The answer below the log start offset, and beyond the log end."""
UNSTABLE_OFFSET: Final = "UnstableOffsetCommitError"
"""A transaction with an offset of this partition is open, and stable offsets were asked for."""
