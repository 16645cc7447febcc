"""Which of a broker's files are evidence, and copies of files that a cleaner may swap meanwhile."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING

from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIVE_SUFFIXES = (".log", ".txnindex", ".snapshot")
SIDE_FILES = ("leader-epoch-checkpoint", "partition.metadata")
LOG_DIR_FILES = (
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "log-start-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "meta.properties",
)
"""Beside the partitions' folders; one that is not written yet is left out."""

COPY_ATTEMPTS = 20


def is_live(name: str) -> bool:
    """Whether a file of a partition belongs to the log now; not what a cleaner is writing or has retired."""
    return PurePath(name).suffix in LIVE_SUFFIXES or name in SIDE_FILES


def copy_when_still(copy: Callable[[], bool], destination: Path, what: str) -> None:
    """Copy into an empty folder until ``copy`` says that the files held still, ``what`` being their partition.

    A cleaner that swaps segments makes files vanish under a copy, which is then made again. Raises `HarnessError` when
    they never hold still.
    """
    for _ in range(COPY_ATTEMPTS):
        shutil.rmtree(destination, ignore_errors=True)
        destination.mkdir(parents=True)
        with suppress(FileNotFoundError):
            if copy():
                return
    raise HarnessError(f"the files of {what} never held still for a copy")
