"""Operations of brokers and clocks by themselves: simulated clusters perform them, real clusters are waited for."""

from __future__ import annotations

from harness.schedules.operations.operation import operation

ENVIRONMENT = "environment"
"""The process of all that happens by itself."""


@operation("{names} clean{s}{and_keep}")
class CleanerPass:
    """A pass of each broker's cleaner. ``keeps``: batches that get their delete horizon are kept until time passes."""

    brokers: tuple[int, ...]
    keeps: bool = False
    process: str = ENVIRONMENT

    @property
    def names(self) -> str:
        """The brokers."""
        return ", ".join(map(str, self.brokers))

    @property
    def s(self) -> str:
        """The ending of the verb."""
        return "s" * (len(self.brokers) == 1)

    @property
    def and_keep(self) -> str:
        """The addition for batches that are kept."""
        return f" and keep{self.s}" * self.keeps


@operation("{amount} passes")
class TimePasses:
    """Time passes: ``hours``, or longer than every retention."""

    hours: int = 0
    process: str = ENVIRONMENT

    @property
    def amount(self) -> str:
        """The description of the time."""
        return {0: "time", 1: "an hour"}.get(self.hours, f"a time of {self.hours} hours")


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
