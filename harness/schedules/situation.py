"""What happened so far, as generators know it: folded over the operations that were drawn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from harness.schedules.operations.clients import Die, End, SendOffset, Write
from harness.schedules.operations.faults import Heal, Inject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.schedules.schedule import Step


@dataclass(frozen=True)
class OpenTransaction:
    """An open transaction: how many records it has, and when it began."""

    records: int
    since_s: float


@dataclass(frozen=True)
class Situation:
    """``open``: the open transaction of each client that has one.

    ``faults``: the faults that are active, as (name, broker), with the time at which each began. ``writers``: clients
    whose records are in transactions.
    """

    writers: frozenset[str] = frozenset()
    open: Mapping[str, OpenTransaction] = field(default_factory=lambda: MappingProxyType({}))
    faults: Mapping[tuple[str, int], float] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, step: Step) -> Situation:
        """Return the situation once a step was taken."""
        match step.operation:
            case Write(process=process) | SendOffset(process=process) if process in self.writers:
                before = self.open.get(process, OpenTransaction(0, step.at_s))
                return replace(self, open={**self.open, process: replace(before, records=before.records + 1)})
            case End(process=process) | Die(process=process):
                return replace(self, open={name: one for name, one in self.open.items() if name != process})
            case Inject(fault=fault, broker=broker):
                return replace(self, faults={**self.faults, (fault, broker): step.at_s})
            case Heal(fault=fault, broker=broker):
                return replace(self, faults={one: s for one, s in self.faults.items() if one != (fault, broker)})
        return self

    def records_of(self, process: str) -> int:
        """Return how many records a client has in its open transaction."""
        return self.open[process].records if process in self.open else 0
