"""Saved folders: before a person's decision destroys a copy, every replica of the partition is saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.judge.finding import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.protect.repair.state import Partition


def missing_folders(saved: Path, replicas: Mapping[Partition, Sequence[int]]) -> list[str]:
    """Return the folders ``BROKER/TOPIC-PARTITION`` that are missing below ``saved``, or have no segment."""
    wanted = [saved / str(broker) / name_of(tp) for tp, brokers in sorted(replicas.items()) for broker in brokers]
    return [str(folder) for folder in wanted if not any(folder.glob("*.log"))]


def check_saved(saved: Path | None, is_stated: bool, replicas: Mapping[Partition, Sequence[int]]) -> None:  # noqa: FBT001
    """Raise `UsageError` unless every replica of these partitions is saved, or a person states it (``is_stated``)."""
    if not replicas or is_stated:
        return
    if saved is None:
        raise UsageError(
            "--right decides what the evidence does not: save the folder of the partition of every replica first, and "
            "give --saved-folders DIR (with BROKER/TOPIC-PARTITION in it) or --saved-elsewhere"
        )
    if missing := missing_folders(saved, replicas):
        raise UsageError(f"--saved-folders {saved}: {missing[0]} has no segment; save every replica first")
