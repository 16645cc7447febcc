"""Players of schedules: each declares the operations that it supports, and rejects all others before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.schedules.operations.faults import Heal, Inject

if TYPE_CHECKING:
    from harness.schedules.operations.operation import Operation
    from harness.schedules.schedule import Schedule


@dataclass(frozen=True)
class SchedulePlayer:
    """A command, or a model, that plays schedules. ``faults``: the faults that it supports; None for any fault."""

    name: str
    operations: frozenset[type]
    faults: frozenset[str] | None = None

    def supports(self, operation: Operation) -> bool:
        """Return whether the player can perform an operation."""
        has_fault = not isinstance(operation, Inject | Heal) or self.faults is None or operation.fault in self.faults
        return type(operation) in self.operations and has_fault


def unsupported(schedule: Schedule, player: SchedulePlayer) -> str | None:
    """Return the first step that a player does not support, and why; None if it supports the whole schedule."""
    for number, operation in enumerate(schedule.operations, 1):
        if not player.supports(operation):
            is_fault = type(operation) in player.operations
            names = (player.faults or ()) if is_fault else [cls.__name__ for cls in player.operations]
            kinds = "the faults" if is_fault else "the operations"
            return (
                f"step {number}, '{operation}', is not supported by {player.name}, which supports {kinds} "
                f"{', '.join(sorted(names))}"
            )
    return None
