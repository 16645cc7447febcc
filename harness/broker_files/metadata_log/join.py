"""One metadata log from the copies of several nodes of a cluster.

Copies agree as far as the quorum has committed them (KIP-595). Where two copies differ, one has a batch of a lower
epoch. The batch is from a controller that was deposed before a majority had it: the controller of the higher epoch was
elected by a majority, and had all batches that were committed until then. Two batches of one epoch are never different:
such copies are not of one log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from harness.broker_files.metadata_log.copy import MetadataCopy, log_messages, read_copy, snapshot_messages
from harness.broker_files.metadata_log.history import ClusterMetadata, replay
from harness.broker_files.segments.batches import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.broker_files.metadata_log.copy import Message, Snapshot
    from harness.broker_files.segments.columns import Batches


@dataclass(frozen=True, slots=True)
class JoinedLog:
    """The joined metadata; None where no copy is usable. ``notes``: what was left out and why, in sentences."""

    metadata: ClusterMetadata | None
    notes: tuple[str, ...]


def read_metadata_logs(folders: Mapping[int, Path], topics: Collection[str] | None = None) -> JoinedLog:
    """Read the copies of several brokers as one log, with the histories of these topics, or of all.

    The log ends as the copy with the highest epoch, and among those as the longest, and begins as the copy that reaches
    back furthest. Left out and noted are: a copy that cannot be read, a copy without an offset in common with the log,
    and the end of a copy that a deposed controller wrote. Where copies contradict each other, none is used.
    """
    notes: list[str] = []
    copies: dict[int, MetadataCopy] = {}
    for broker, folder in folders.items():
        try:
            copies[broker] = read_copy(folder)
        except (CorruptLogError, OSError) as error:
            notes.append(f"broker {broker}: its metadata log cannot be read, and is left out: {error}")
    if not copies:
        return JoinedLog(None, tuple(notes))
    last = max(copies, key=lambda broker: (copies[broker].last_epoch, copies[broker].end_offset, -broker))
    log, agreeing = copies.pop(last), {}
    for broker, copy in copies.items():
        if copy.end_offset <= log.start_offset:
            notes.append(f"broker {broker}: its metadata log ends before that of broker {last} begins, and is left out")
            continue
        different = _first_difference(log.batches, copy.batches)
        if different is None:
            agreeing[broker] = copy
            continue
        mine, other = different
        at = int(other["base_offset"])
        if mine["base_offset"] != at or mine["leader_epoch"] <= other["leader_epoch"]:
            notes.append(
                f"the metadata logs of brokers {last} and {broker} contradict each other at offset {at}, and none is "
                "used: give copies of one cluster"
            )
            return JoinedLog(None, tuple(notes))
        notes.append(
            f"broker {broker}: its metadata log from offset {at} on is what a deposed controller wrote (epoch "
            f"{other['leader_epoch']}, not {mine['leader_epoch']}), and is left out"
        )
        agreeing[broker] = _until(copy, at)
    try:
        metadata = _replayed(log, tuple(agreeing.values()), topics, notes)
    except (CorruptLogError, OSError) as error:
        return JoinedLog(None, (*notes, f"no metadata log is used: {error}"))
    if agreeing:
        notes += _unconfirmed(metadata, last, max(copy.end_offset for copy in agreeing.values()))
    return JoinedLog(metadata, tuple(notes))


def _first_difference(log: Batches, other: Batches) -> tuple[np.void, np.void] | None:
    """Return the first batch that differs from the other log's, among common offsets, and the other log's batch."""
    start = max(log["base_offset"][:1].max(initial=0), other["base_offset"][:1].max(initial=0))
    end = min(log["last_offset"][-1:].max(initial=-1), other["last_offset"][-1:].max(initial=-1))
    ours, theirs = (rows[(rows["base_offset"] >= start) & (rows["base_offset"] <= end)] for rows in (log, other))
    count = min(len(ours), len(theirs))
    different = np.flatnonzero(ours[:count] != theirs[:count])
    return (ours[different[0]], theirs[different[0]]) if len(different) else None


def _until(copy: MetadataCopy, end_offset: int) -> MetadataCopy:
    kept = copy.batches[copy.batches["base_offset"] < end_offset]
    snapshots = tuple(snapshot for snapshot in copy.snapshots if snapshot.end_offset <= end_offset)
    return replace(copy, batches=kept, snapshots=snapshots)


def _replayed(
    last: MetadataCopy, others: Sequence[MetadataCopy], topics: Collection[str] | None, notes: list[str]
) -> ClusterMetadata:
    """Replay the log that ends as one copy, and begins as the one that reaches back furthest.

    It begins with the oldest snapshot from which on no record is missing. Adds to the notes which snapshots cannot be
    read. Raises ``CorruptLogError`` for a record that cannot be read.
    """
    first = min((last, *others), key=lambda copy: copy.start_offset)
    snapshots = chain.from_iterable(copy.snapshots for copy in (last, *others))
    start_offset, state = _beginning(first.start_offset, last.end_offset, snapshots, notes)
    parts = [log_messages(last, max(start_offset, last.start_offset), last.end_offset)]
    if start_offset < last.start_offset:
        parts.insert(0, log_messages(first, start_offset, last.start_offset))
    replayed = replay(chain(state, *parts), topics)
    return ClusterMetadata(
        source=last.folder,
        histories=replayed.histories(),
        registrations={broker: tuple(sorted(offsets)) for broker, offsets in sorted(replayed.registrations.items())},
        topics=frozenset(replayed.existing),
        start_offset=start_offset,
        end_offset=last.end_offset,
        cleanup_policies=replayed.cleanup_policies,
    )


def _beginning(
    first_offset: int, last_offset: int, snapshots: Iterable[Snapshot], notes: list[str]
) -> tuple[int, list[Message]]:
    """Return where to begin between two offsets, and the records of the snapshot of that state."""
    if first_offset == 0:
        return 0, []
    usable = {snapshot.end_offset: snapshot for snapshot in snapshots}
    for end_offset, snapshot in sorted(usable.items()):
        if not first_offset <= end_offset <= last_offset:
            continue
        try:
            return end_offset, list(snapshot_messages(snapshot))
        except CorruptLogError as error:
            notes.append(f"a snapshot of the metadata log cannot be read, and is left out: {error}")
    notes.append(
        f"the metadata log begins at offset {first_offset}, and no snapshot has the state there: what it shows "
        "of partitions that are older is left out"
    )
    return first_offset, []


def _unconfirmed(metadata: ClusterMetadata, broker: int, confirmed_until: int) -> list[str]:
    """Note changes of partitions that are in one copy alone: a majority may not have had them."""
    states = (state for history in metadata.histories.values() for state in history.states)
    if all(state.offset < confirmed_until for state in states):
        return []
    changes = f"changes of partitions from metadata offset {confirmed_until} on"
    return [f"{changes} are in the metadata log of broker {broker} alone: they may not be committed"]
