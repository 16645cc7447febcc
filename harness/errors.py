"""Errors and the exit codes that they end a command with.

Exit codes follow Jepsen: 0 clean, 1 anomaly, 2 unknown, 254 for a problem before the first
broker starts, 255 where the harness or the boot failed and there is nothing to judge. An
interrupt is 130, as in shells.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

EXIT_CLEAN, EXIT_ANOMALY, EXIT_UNKNOWN, EXIT_USAGE, EXIT_FAILED = 0, 1, 2, 254, 255
EXIT_INTERRUPTED = 130


class HarnessError(Exception):
    """An error in one clear sentence for the user: the problem, its place, and the remedy."""

    exit_code = EXIT_FAILED


class UsageError(HarnessError):
    """A problem before the first broker starts: arguments, Java, jars, ports, folders."""

    exit_code = EXIT_USAGE


class BootError(HarnessError):
    """The cluster did not come up; the message carries the broker's last log lines."""


class WaitTimeoutError(HarnessError):
    """A bounded wait ended before its condition held.

    ``waited_s``: for how long. ``replica``: broker, topic and partition that the condition was still false for, if the
    wait names them.
    """

    def __init__(self, message: str, waited_s: float = 0.0) -> None:
        super().__init__(message)
        self.waited_s = waited_s
        self.replica: tuple[int, str, int] | None = None


class TimeLimitError(HarnessError):
    """The whole run's ``--time-limit`` is used up."""


class InterruptError(HarnessError):
    """Ctrl-C or SIGTERM; the message names the files that remain."""

    exit_code = EXIT_INTERRUPTED


@contextmanager
def raised_as(kind: Callable[[str], Exception], description: str, *caught: type[Exception]) -> Iterator[None]:
    """Turn ``caught`` errors of the block into an error of one ``kind``, whose message begins with ``description``."""
    try:
        yield
    except caught as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise kind(f"{description}: {reason}") from error


@contextmanager
def interruptible(remaining: Callable[[], str]) -> Iterator[None]:
    """Turn an interrupt of the block into `InterruptError`; ``remaining`` returns the end of its message."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptError(f"interrupted; {remaining()}") from error
