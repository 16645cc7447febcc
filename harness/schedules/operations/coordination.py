"""Steps of compaction that replicas or compactors coordinate; models alone perform them."""

from __future__ import annotations

from harness.schedules.operations.environment import ENVIRONMENT
from harness.schedules.operations.operation import operation


@operation("{broker} reports")
class SendReport:
    """A replica reports its offsets to the leader."""

    broker: int
    process: str = ENVIRONMENT


@operation("message {number} arrives")
class MessageArrives:
    """One of the messages in flight arrives, by its number from 1 (`harness.models.world.coordination.in_order`)."""

    number: int
    process: str = ENVIRONMENT


@operation("message {number} is lost")
class MessageIsLost:
    """One of the messages in flight is lost."""

    number: int
    process: str = ENVIRONMENT


@operation("messages arrive")
class MessagesArrive:
    """All messages arrive, and the messages that are sent in turn arrive, too."""

    process: str = ENVIRONMENT


@operation("bounds {tombstones}/{markers} arrive")
class BoundsArrive:
    """All replicas report, and receive the bounds of removal."""

    tombstones: int
    markers: int
    process: str = ENVIRONMENT


@operation("compactor {compactor} makes a pass")
class CompactorPass:
    """A compactor reads the log, and prepares its updates."""

    compactor: int
    process: str = ENVIRONMENT


@operation("compactor {compactor} {act}")
class CompactorCommit:
    """A compactor commits its next update: all in one, objects (offsets ``first`` to ``end``), or bookkeeping."""

    compactor: int
    first: int = -1
    end: int = -1
    records_clean: bool = False
    process: str = ENVIRONMENT

    @property
    def act(self) -> str:
        """The description of the update."""
        if self.records_clean:
            return "records what is clean"
        return "commits" if self.end < 0 else f"replaces offsets {self.first} to {self.end}"


@operation("compactor {compactor} crashes")
class CompactorCrash:
    """A compactor loses the updates that it has not committed."""

    compactor: int
    process: str = ENVIRONMENT
