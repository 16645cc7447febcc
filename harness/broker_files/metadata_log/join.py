"""Join the copies of several nodes of a cluster into one metadata log.

Copies agree up to the end of the committed batches (KIP-595). Where two copies differ, one has a batch of a lower
epoch, from a controller that was deposed before a majority had the batch: a majority elected the controller of the
higher epoch, which had all committed batches. Different batches of one epoch are from different logs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np

from harness.broker_files.metadata_log.copy import Message, MetadataCopy, log_messages, read_copy, snapshot_messages
from harness.broker_files.metadata_log.history import ClusterMetadata, MetadataReplay, committed
from harness.broker_files.segments.batches import CorruptLogError
from harness.broker_files.segments.blocks import Batches

_FIRST_METADATA_OFFSET: Final = 1
"""A log that starts here has every metadata record: offset 0 has the election of the first controller."""


@dataclass(frozen=True, slots=True)
class JoinedLog:
    """The joined metadata; None if no copy is usable. ``notes``: what is left out and why, in sentences."""

    metadata: ClusterMetadata | None
    notes: tuple[str, ...]


def read_metadata_logs(folders: Mapping[int, Path], topics: Collection[str] | None = None) -> JoinedLog:
    """Read the copies of several brokers as one log, with the histories of these topics, or of all.

    The log ends like the longest copy with the highest epoch, and begins like the copy that begins first. Left out and
    noted are: a copy that cannot be read, a copy without a common offset with the log, and the end of a copy that a
    deposed controller wrote. If copies contradict each other, none is used.
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
            before = f"its metadata log ends before the log of broker {last} begins"
            notes.append(f"broker {broker}: {before}, and is left out")
            continue
        different = _first_difference(log.batches, copy.batches)
        if different is None:
            agreeing[broker] = copy
            continue
        mine, other = different
        at = int(other["base_offset"])
        if mine["base_offset"] != at or mine["leader_epoch"] <= other["leader_epoch"]:
            between = f"the metadata logs of brokers {last} and {broker} contradict each other at offset {at}"
            return JoinedLog(None, (*notes, f"{between}, and none is used: give copies of one cluster"))
        notes.append(
            f"broker {broker}: a deposed controller wrote its metadata log from offset {at} on (epoch "
            f"{other['leader_epoch']}, not {mine['leader_epoch']}), which is left out"
        )
        batches = copy.batches[copy.batches["base_offset"] < at]
        snapshots = {end_offset: path for end_offset, path in copy.snapshots.items() if end_offset <= at}
        agreeing[broker] = replace(copy, batches=batches, snapshots=snapshots)
    try:
        metadata = _replayed(log, tuple(agreeing.values()), topics, notes)
    except (CorruptLogError, OSError) as error:
        return JoinedLog(None, (*notes, f"no metadata log is used: {error}"))
    states = [state for history in metadata.histories.values() for state in history.states]
    confirmed_until = max((copy.end_offset for copy in agreeing.values()), default=log.end_offset)
    if any(state.offset >= confirmed_until for state in states):
        # A majority may not have had them.
        notes.append(
            f"changes of partitions from metadata offset {confirmed_until} on are in the metadata log of broker {last} "
            "alone: they may not be committed"
        )
    return JoinedLog(metadata, tuple(notes))


def _first_difference(log: Batches, other: Batches) -> tuple[np.void, np.void] | None:
    """Return the first batches that differ among the common offsets of two logs."""
    start = max(log["base_offset"][:1].max(initial=0), other["base_offset"][:1].max(initial=0))
    end = min(log["last_offset"][-1:].max(initial=-1), other["last_offset"][-1:].max(initial=-1))
    ours, theirs = (rows[(rows["base_offset"] >= start) & (rows["base_offset"] <= end)] for rows in (log, other))
    count = min(len(ours), len(theirs))
    different = np.flatnonzero(ours[:count] != theirs[:count])
    return (ours[different[0]], theirs[different[0]]) if len(different) else None


def _replayed(
    last: MetadataCopy, others: Sequence[MetadataCopy], topics: Collection[str] | None, notes: list[str]
) -> ClusterMetadata:
    """Replay the joined log, from the oldest snapshot after which no record is missing. Raises ``CorruptLogError``."""
    first = min((last, *others), key=lambda copy: copy.start_offset)
    snapshots = dict(chain.from_iterable(copy.snapshots.items() for copy in (last, *others)))
    start_offset, state = _beginning(first.start_offset, last.end_offset, snapshots, notes)
    parts = [log_messages(last, max(start_offset, last.start_offset), last.end_offset)]
    if start_offset < last.start_offset:
        parts.insert(0, log_messages(first, start_offset, last.start_offset))
    replayed = MetadataReplay(topics)
    for message in committed(chain(state, *parts)):
        replayed.apply(message)
    return ClusterMetadata(
        source=last.folder,
        histories=replayed.histories(),
        registrations={broker: tuple(sorted(offsets)) for broker, offsets in sorted(replayed.registrations.items())},
        topics=frozenset(replayed.existing),
        start_offset=start_offset,
        end_offset=last.end_offset,
        settings=replayed.settings,
    )


def _beginning(
    first_offset: int, last_offset: int, snapshots: Mapping[int, Path], notes: list[str]
) -> tuple[int, list[Message]]:
    """Return the offset between two offsets where replay begins, and the records of the snapshot at that offset."""
    if first_offset <= _FIRST_METADATA_OFFSET:
        return first_offset, []
    for end_offset, path in sorted(snapshots.items()):
        if first_offset <= end_offset <= last_offset:
            try:
                return end_offset, list(snapshot_messages(path, end_offset))
            except CorruptLogError as error:
                notes.append(f"a snapshot of the metadata log cannot be read, and is left out: {error}")
    notes.append(
        f"the metadata log begins at offset {first_offset}, and no snapshot has the state there: older partitions "
        "are left out"
    )
    return first_offset, []
