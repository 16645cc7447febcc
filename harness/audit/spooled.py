"""A spool as copies of replicas: what the checkers read is the same, whoever brought it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from harness.brokers.copies.copies import Copies, ReplicaCopy
from harness.brokers.segments.folder import live_segments
from harness.run_folder.store import AFTER_REJOIN, COORDINATOR

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.audit.coordinators import Words
    from harness.audit.spool import Spooled
    from harness.run_folder.store import RunFolder


def copies_of(folder: RunFolder, run_id: str, read: Spooled, words: Mapping[int, Path]) -> Copies:
    """Return the replicas that were read into a folder; ``words``: as `store_words` returns them."""
    replicas = []
    for broker, (topic, partition) in sorted(read.readings):
        where = folder.fetched_snapshot(broker, AFTER_REJOIN) / f"{topic}-{partition}"
        replicas.append(ReplicaCopy(broker, topic, partition, where, tuple(live_segments(where).segments)))
    return Copies(run_id, tuple(replicas), words=words, served=True)


def store_words(folder: RunFolder, words: Words) -> dict[int, Path]:
    """Write what coordinators say beside the replicas of each; return the files by broker.

    ``{"transactions": [[transactional id, producer id, state]]}``.
    """
    told: dict[int, list[tuple[str, int, str]]] = {}
    for word in words.told.values():
        told.setdefault(word.coordinator, []).append((word.transactional_id, word.producer_id, word.state))
    paths = {}
    for broker, transactions in told.items():
        paths[broker] = folder.fetched_snapshot(broker, AFTER_REJOIN) / COORDINATOR
        paths[broker].parent.mkdir(parents=True, exist_ok=True)
        paths[broker].write_text(json.dumps({"transactions": transactions}) + "\n")
    return paths
