"""What a broker answers for a group that it does not coordinate; read without kafka-python, which is slow to import."""

from __future__ import annotations

from typing import Final

NO_COORDINATOR_YET: Final = frozenset(
    {"CoordinatorLoadInProgressError", "NotCoordinatorError", "CoordinatorNotAvailableError"}
)
"""What a broker answers that has just become the leader, or does not know yet that it is."""
