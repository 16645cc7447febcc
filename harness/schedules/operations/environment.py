"""Operations of brokers and clocks by themselves: simulated clusters perform them, real clusters are waited for.

Models alone perform the last ones: steps of coordinated compaction.
"""

from typing import Any

from harness.schedules.operations.operation import operation

ENVIRONMENT = "environment"
"""The process of all that happens by itself."""


def _cleaner_pass(cleaning: Any) -> str:
    s = "s" * (len(cleaning.brokers) == 1)
    return f"{', '.join(map(str, cleaning.brokers))} clean{s}{f' and keep{s}' * cleaning.keeps}"


@operation(_cleaner_pass)
class CleanerPass:
    """A pass of each broker's cleaner. ``keeps``: batches that get their delete horizon are kept until time passes."""

    brokers: tuple[int, ...]
    keeps: bool = False
    process: str = ENVIRONMENT


@operation("time passes")
class TimePasses:
    """Time passes, longer than every retention."""

    process: str = ENVIRONMENT


@operation("rest")
class Rest:
    """Nothing happens."""

    process: str = ENVIRONMENT


@operation("producers expire")
class ProducersExpire:
    """Brokers forget all producers without an open transaction."""

    process: str = ENVIRONMENT


@operation("{broker} copies a batch")
class CopyBatch:
    """A replica that is behind copies one batch."""

    broker: int
    process: str = ENVIRONMENT


@operation("{broker} joins")
class JoinIsr:
    """A replica that was added has caught up."""

    broker: int
    process: str = ENVIRONMENT


@operation("{broker} falls out of the ISR")
class LeaveIsr:
    """A replica that lags leaves the ISR, and continues to copy."""

    broker: int
    process: str = ENVIRONMENT


@operation("{broker} reports")
class SendReport:
    """A replica reports its offsets to the leader."""

    broker: int
    process: str = ENVIRONMENT


@operation("message {number} arrives")
class MessageArrives:
    """One of the messages in flight arrives, by its number from 1 (`harness.models.world.coordination`)."""

    number: int
    process: str = ENVIRONMENT


@operation("bounds {tombstones}/{markers} arrive")
class BoundsArrive:
    """All replicas report, and receive the bounds of removal."""

    tombstones: int
    markers: int
    process: str = ENVIRONMENT
