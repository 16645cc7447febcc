"""Which of a broker's files are evidence."""

from __future__ import annotations

from pathlib import PurePath

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
"""A cleaner that swaps segments makes files vanish under a copy, which is then made again."""


def is_live(name: str) -> bool:
    """Whether a file of a partition belongs to the log now; not what a cleaner is writing or has retired."""
    return PurePath(name).suffix in LIVE_SUFFIXES or name in SIDE_FILES
