"""Spooled replicas as `Copies`: the checkers read the same form, whether replicas were copied from disk or read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.brokers.copies.copies import Copies, ReplicaCopy
from harness.brokers.segments.folder import live_segments
from harness.run_folder.store import AFTER_REJOIN, COORDINATOR

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.audit.coordinators import TransactionDescriptions
    from harness.audit.spool import SpoolResult
    from harness.run_folder.store import RunFolder


def copies_of(folder: RunFolder, run_id: str, read: SpoolResult, transaction_files: Mapping[int, Path]) -> Copies:
    """Return the replicas that were read into a folder; ``transaction_files``: as `store_transactions` returns them."""
    replicas = []
    for broker, (topic, partition) in sorted(read.readings):
        folder_of_replica = folder.fetched_snapshot(broker, AFTER_REJOIN) / f"{topic}-{partition}"
        replicas.append(
            ReplicaCopy(broker, topic, partition, folder_of_replica, tuple(live_segments(folder_of_replica).segments))
        )
    return Copies(run_id, tuple(replicas), words=transaction_files, served=True)


def store_transactions(folder: RunFolder, descriptions: TransactionDescriptions) -> dict[int, Path]:
    """Write each coordinator's transactions next to the replicas of its broker; return the files by broker.

    ``{"transactions": [[transactional id, producer id, state]]}``.
    """
    by_coordinator: dict[int, list[tuple[str, int, str]]] = {}
    for described in descriptions.by_producer.values():
        by_coordinator.setdefault(described.coordinator, []).append(
            (described.transactional_id, described.producer_id, described.state)
        )
    paths = {}
    for broker, transactions in by_coordinator.items():
        paths[broker] = folder.fetched_snapshot(broker, AFTER_REJOIN) / COORDINATOR
        paths[broker].parent.mkdir(parents=True, exist_ok=True)
        paths[broker].write_text(json.dumps({"transactions": transactions}) + "\n")
    return paths
