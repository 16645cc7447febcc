"""Everything that can go wrong, and the exit code it ends with.

Exit codes follow Jepsen: 0 clean, 1 anomaly, 2 unknown, 254 for what is found wrong before the first
broker starts, 255 where the harness or the boot failed and there is nothing to judge.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXIT_CLEAN = 0
EXIT_ANOMALY = 1
EXIT_UNKNOWN = 2
EXIT_USAGE = 254
EXIT_FAILED = 255


class HarnessError(Exception):
    """One clear sentence for the user: what is wrong, where, and what to do about it."""

    exit_code = EXIT_FAILED


class UsageError(HarnessError):
    """Found wrong before the first broker starts: arguments, Java, jars, ports, folders."""

    exit_code = EXIT_USAGE


class BootError(HarnessError):
    """The cluster did not come up; the message carries the broker's last log lines."""


class WaitTimeoutError(HarnessError):
    """A bounded wait ended before its condition held."""


class TimeLimitError(HarnessError):
    """The whole run's ``--time-limit`` is used up."""


class InterruptError(HarnessError):
    """Ctrl-C or SIGTERM; the message says what is kept and where."""


@contextmanager
def interruptible(kept: Callable[[], str]) -> Iterator[None]:
    """Have an interrupt of the block say what is ``kept`` of it, and where. Raises `InterruptError` for one."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptError(f"interrupted; {kept()}") from error
