"""The brokers' own copies of the metadata log, copied together with the replicas that an audit compares."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from harness.brokers.segments.metadata_join import JoinedLog, read_metadata_logs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from harness.brokers.segments.metadata_log import ClusterMetadata

CLUSTER_METADATA: Final = "__cluster_metadata"
_TOPIC_ID = re.compile(r"^topic_id: *(\S+)", re.MULTILINE)


def find_metadata(logs: Mapping[int, Path], replicas: Iterable[tuple[int, str, Path]]) -> JoinedLog:
    """Read the metadata logs, by broker, for replicas: broker, topic, and the partition's folder.

    A topic has no history where the ``partition.metadata`` of a replica is missing or has another topic id (KIP-516):
    a topic that was created after another of the same name was deleted. Raises ``OSError``.
    """
    replicas = list(replicas)
    joined = read_metadata_logs(logs, {topic for _, topic, _ in replicas})
    if joined.metadata is None:
        return joined
    ids = {topic: history.topic_id for (topic, _), history in joined.metadata.histories.items()}
    notes: dict[str, str] = {}
    for broker, topic, folder in replicas:
        topic_id = _topic_id(folder)
        if topic in ids and topic_id != ids[topic]:
            has = f"is of topic id {topic_id}" if topic_id else "has no topic id"
            notes[topic] = (
                f"{folder.name} of broker {broker} {has}, the metadata log has topic id {ids[topic]}: the "
                f"history of {topic} is left out"
            )
    return JoinedLog(_without(joined.metadata, notes.keys()), (*joined.notes, *notes.values()))


def _without(metadata: ClusterMetadata, topics: Iterable[str]) -> ClusterMetadata:
    left_out = frozenset(topics)
    kept = {place: history for place, history in metadata.histories.items() if place[0] not in left_out}
    return replace(metadata, histories=kept)


def _topic_id(folder: Path) -> str | None:
    path = folder / "partition.metadata"
    match = _TOPIC_ID.search(path.read_text(errors="replace")) if path.exists() else None
    return match[1] if match else None
