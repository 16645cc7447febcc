"""The files of a broker: evidence in its log directory, and the end of its server log for error messages."""

import shutil
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePath

from harness.errors import HarnessError

LIVE_SUFFIXES = (".log", ".txnindex", ".snapshot")
SIDE_FILES = ("leader-epoch-checkpoint", "partition.metadata")
LOG_DIR_FILES = (
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "meta.properties",
)
"""Files next to the partitions' folders, which a broker may not have written yet."""

COPY_ATTEMPTS = 20
TAIL_LINES = 12
ERROR_WORDS = ("ERROR", "FATAL", "Exception")


def is_live(name: str) -> bool:
    """Return whether a file of a partition belongs to the log, and is not written or retired by a cleaner."""
    return PurePath(name).suffix in LIVE_SUFFIXES or name in SIDE_FILES


def copy_when_still(
    sizes: Callable[[], dict[str, int]], get: Callable[[str, Path], object], destination: Path, partition: str
) -> None:
    """Copy the files of a partition into an empty folder until their ``sizes`` are the same before and after.

    Files may vanish during a copy, as a cleaner swaps segments. Raises `HarnessError` if the files keep changing.
    """
    for _ in range(COPY_ATTEMPTS):
        shutil.rmtree(destination, ignore_errors=True)
        destination.mkdir(parents=True)
        with suppress(FileNotFoundError, tarfile.ReadError):
            before = sizes()
            for name in before:
                get(name, destination / name)
            if sizes() == before:
                return
    raise HarnessError(f"the files of {partition} changed during every copy")


def tail(log: str) -> str:
    """Return the last lines of a broker's log with errors, or its last lines without errors; indented."""
    lines = log.splitlines()
    errors = [line for line in lines if any(word in line for word in ERROR_WORDS)]
    return "\n".join(f"  {line}" for line in (errors or lines)[-TAIL_LINES:])
