"""The fast path: the partitions of copies of any size in which no checker can find anything.

All files are read once, and checksums are computed. A partition is consistent if every log ends at the same offset, if
no log has an unreplicated tail, if every log ends each transaction with the first marker that any replica shows after
it, if no ``.txnindex`` and no newest producer snapshot contradicts its log, and if no transaction is open. Then no
transaction can be misjudged, and only records must be compared, unless the data batches are the same. A consistent
partition is cleared if it has the same batches, or the same final state of every key (`candidate_keys`), on every
replica. The checkers judge every other partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.copies import SIDE_READERS_OF_COPIES
from checkers.evidence.schemas import FLAG, INT, LONG, TEXT, table
from checkers.evidence.tables import PARTITION, PLACE, REPLICA_PLACE, RunPartition, place_of
from checkers.reduction.candidate_keys import candidate_keys
from checkers.reduction.segments import BEFORE, differs_from_previous, producer_spans, replica_segments
from checkers.replay.batch_outcomes import ABORTED, COMMITTED
from harness.broker_files.segments.batches import CorruptLogError

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import SparkSession

    from harness.broker_files.copies.copies import Copies

    Longs = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]
    Columns = dict[str, npt.NDArray[Any]]

Facts: TypeAlias = "dict[tuple[str, str, int, int], dict[str, int | None]]"
"""The offsets in checkpoints (`copies.replica_facts`), by `REPLICA_PLACE`."""

NOWHERE: Final = -1
_TEXTS = {"run", "topic", "problem"}
_BROKER_AT = 3
"""The index of the broker in the columns that the path of a side file gives."""

BELIEFS = t.ArrayType(table(producer_id=LONG, base_offset=LONG, belief=TEXT, misjudged=FLAG))
"""A replica's beliefs about the transactional producer spans of one segment."""

PARTITION_ROWS = table(run=TEXT, topic=TEXT, partition=INT, same=FLAG, log_end=LONG, segment=INT, beliefs=BELIEFS)
"""A row for each consistent partition; ``same``: the data batches are the same on every replica. If they differ also a
row for each segment with batches: ``segment`` and ``beliefs``."""


def cleared_partitions(
    spark: SparkSession, copies: Sequence[Copies], facts: Facts, tasks: int
) -> tuple[set[RunPartition], list[dict[str, Any]]]:
    """Return the partitions that are cleared, and their replicas, as in `judged.Judged`.

    ``tasks``: the number of Spark tasks that compare.
    """
    if not copies:
        return set(), []
    segments = replica_segments(copies, facts)
    replicas = _by_place(copies)
    schema = to_arrow_schema(PARTITION_ROWS)

    def check(spans: pa.Table) -> pa.Table:
        place: RunPartition = tuple(spans.column(name)[0].as_py() for name in PLACE)
        rows = _partition_rows(spans, replicas[place])
        return pa.Table.from_pylist([{**dict(zip(PLACE, place, strict=True)), **row} for row in rows], schema=schema)

    spans = producer_spans(spark, segments).repartition(tasks, *PARTITION)
    partitions = spans.groupBy(*PARTITION).applyInArrow(check, PARTITION_ROWS).localCheckpoint(eager=False)
    consistent = {place_of(row): row for row in partitions.where("same IS NOT NULL").drop("beliefs").collect()}
    ends = {place: row["log_end"] for place, row in consistent.items()}
    bounds = _bounds(ends, facts)
    differing = {place for place, row in consistent.items() if not row["same"]}
    if differing:
        bounded = [
            replace(segment, bound=bounds[segment.place], shortest=ends[segment.place])
            if segment.place in differing
            else segment
            for segment in segments
        ]
        beliefs = partitions.where("segment IS NOT NULL").select("segment", "beliefs")
        keys = candidate_keys(beliefs, bounded, differing, tasks)
        differing = {place_of(row) for row in keys.select(*PARTITION).distinct().collect()}
    places = set(consistent) - differing
    return places, [
        {
            **dict(zip(REPLICA_PLACE, replica, strict=True)), **fields, "bound": bounds[replica[:3]],
            "log_end": ends[replica[:3]], "stable_end": ends[replica[:3]], "whole_beyond": True,
        }
        for replica, fields in facts.items()
        if replica[:3] in places
    ]  # fmt: skip


def _by_place(copies: Sequence[Copies]) -> dict[RunPartition, Copies]:
    """Return the replicas of each partition."""
    places: dict[RunPartition, Copies] = {}
    for cluster in copies:
        for copy in cluster.replicas:
            partition = places.setdefault((cluster.run_id, *copy.place), replace(cluster, replicas=()))
            places[cluster.run_id, *copy.place] = replace(partition, replicas=(*partition.replicas, copy))
    return places


def _bounds(ends: Mapping[RunPartition, int], facts: Facts) -> dict[RunPartition, int]:
    """Return the bound of each partition: its log end, or the highest high watermark if that is lower."""
    highest: dict[RunPartition, int] = {}
    for replica, fields in facts.items():
        if (offset := fields["high_watermark"]) is not None:
            highest[replica[:3]] = max(offset, highest.get(replica[:3], 0))
    return {place: min(end, highest.get(place, end)) for place, end in ends.items()}


def _partition_rows(spans: pa.Table, copies: Copies) -> list[dict[str, Any]]:
    """Return the other columns of `PARTITION_ROWS` for a partition, no row if it is not consistent."""
    columns: Columns = {name: spans.column(name).to_numpy() for name in spans.column_names if name not in _TEXTS}
    brokers = {copy.broker for copy in copies.replicas}
    if spans.column("problem").null_count < len(spans) or set(columns["broker"].tolist()) != brokers:
        return []
    try:
        files = _SideFiles.read(copies)
    except (CorruptLogError, OSError):
        return []
    of_broker = [columns["broker"] == broker for broker in sorted(brokers)]
    ends = {int(columns["end_offset"][mine].max()) + 1 for mine in of_broker}
    if len(ends) > 1 or _has_unreplicated_tail(columns, files.epochs):
        return []
    logs = _Logs.of(columns)
    if logs.is_overtaken or files.differ or _contradict(logs, files):
        return []
    compared = ~columns["control"] & (columns["region"] != BEFORE)
    same = len({int(np.bitwise_xor.reduce(columns["digest"][mine & compared], initial=0)) for mine in of_broker}) == 1
    rows: list[dict[str, Any]] = [{"same": same, "log_end": ends.pop()}]
    if not same:
        beliefs = logs.beliefs()
        segments = np.unique(columns["segment"]).tolist()
        rows += ({"segment": segment, "beliefs": beliefs.get(segment, [])} for segment in segments)
    return rows


def _has_unreplicated_tail(columns: Columns, epoch_starts: Sequence[tuple[int, int]]) -> bool:
    """Return whether any replica has a lower leader epoch than another replica at the same offset.

    ``epoch_starts``: leader epochs and their start offsets. See `unreplicated_tails`.
    """
    began = np.array(epoch_starts, np.int64).reshape(-1, 2)
    starts = np.concatenate([columns["base_offset"], began[:, 1]])
    epochs = np.concatenate([columns["leader_epoch"], began[:, 0]])
    # A span may reach the start of a newer epoch: the end of the span counts.
    ends = np.concatenate([columns["end_offset"], began[:, 1]])
    order = np.lexsort((epochs, starts))
    newest = np.maximum.accumulate(epochs[order])
    at = np.searchsorted(starts[order], ends, "right") - 1
    return bool((newest[at] > epochs)[: len(columns["base_offset"])].any())


@dataclass(frozen=True)
class _Logs:
    """The producer spans of all replicas, by broker, producer and offset; emptied control batches are left out."""

    broker: Longs
    producer: Longs
    base: Longs
    epoch: Longs
    segment: Longs
    is_marker: Flags
    is_data: Flags
    """True for each span of transactional data."""
    decided_at: Longs
    """The offset of the producer's next marker in this log, else -1."""
    committed: Flags
    """True where the producer's next marker in this log is a COMMIT."""

    @classmethod
    def of(cls, columns: Columns) -> _Logs:
        """Return the spans of a partition."""
        is_commit = columns["marker"] == "commit"
        is_marker = is_commit | (columns["marker"] == "abort")
        rows = np.flatnonzero(~columns["control"] | is_marker)
        order = np.lexsort((columns["base_offset"][rows], columns["producer_id"][rows], columns["broker"][rows]))
        rows = rows[order]
        broker, producer, base = (columns[name][rows] for name in ("broker", "producer_id", "base_offset"))
        is_marker = is_marker[rows]
        following = _next(np.cumsum(differs_from_previous(broker, producer)), is_marker)
        return cls(
            broker=broker,
            producer=producer,
            base=base,
            epoch=columns["producer_epoch"][rows],
            segment=columns["segment"][rows],
            is_marker=is_marker,
            is_data=columns["transactional"][rows] & ~is_marker,
            decided_at=np.append(base, NOWHERE)[following],
            committed=np.append(is_commit[rows], False)[following],
        )

    @property
    def is_overtaken(self) -> bool:
        """True if data of a producer are followed by data of a higher producer epoch before a marker."""
        # Adjacent data spans have the same producer: a producer's last span is a marker, else the log is inconsistent.
        follows = self.is_data[:-1] & self.is_data[1:]
        return bool((follows & (self.epoch[1:] > self.epoch[:-1])).any())

    def beliefs(self) -> dict[int, list[dict[str, Any]]]:
        """Return `BELIEFS` by segment."""
        beliefs: dict[int, list[dict[str, Any]]] = {}
        for row in np.flatnonzero(self.is_data).tolist():
            belief = {
                "producer_id": int(self.producer[row]),
                "base_offset": int(self.base[row]),
                "belief": COMMITTED if self.committed[row] else ABORTED,
                "misjudged": False,
            }
            beliefs.setdefault(int(self.segment[row]), []).append(belief)
        return beliefs


def _next(groups: Longs, marks: Flags) -> Longs:
    """Return for each row the index of its group's next marked row, itself included, else -1."""
    nowhere = len(groups)
    places = np.where(marks, np.arange(nowhere), nowhere)
    following = np.minimum.accumulate(places[::-1])[::-1]
    is_same = np.append(groups, np.int64(-2))[following] == groups
    return np.where(is_same, following, -1)


@dataclass(frozen=True)
class _SideFiles:
    """The side files of all replicas of a partition.

    ``aborts``: broker, producer, first and last offset of each aborted transaction. ``epochs``: leader epochs and their
    start offsets. ``snapshots``: by broker, the offset of its newest producer snapshot, and the producers with an open
    transaction in that snapshot.
    """

    aborts: list[tuple[int, int, int, int]]
    epochs: list[tuple[int, int]]
    snapshots: dict[int, tuple[int, set[int]]]

    @classmethod
    def read(cls, copies: Copies) -> _SideFiles:
        """Read the side files. Raises ``CorruptLogError`` and ``OSError``."""
        aborts, epochs, producers = (
            [
                (head[_BROKER_AT], *row)
                for head, path in SIDE_READERS_OF_COPIES[name].files(copies)
                for row in SIDE_READERS_OF_COPIES[name].rows(path)
            ]
            for name in ("aborts", "epochs", "producers")
        )
        snapshots: dict[int, tuple[int, set[int]]] = {}
        for broker, as_of, producer, _, _, first in sorted(producers, key=lambda row: row[1]):
            if as_of > snapshots.get(broker, (-1,))[0]:
                snapshots[broker] = as_of, set()
            if first is not None:
                snapshots[broker][1].add(producer)
        return cls(aborts, [(epoch, start) for _, epoch, start in epochs], snapshots)

    @property
    def differ(self) -> bool:
        """True if the ranges of an aborted transaction differ between replicas (see `txnindex_disagreement`)."""
        ranges = {(producer, first, last) for _, producer, first, last in self.aborts}
        return len({(producer, last) for producer, _, last in ranges}) < len(ranges)


def first_after(producers: Longs, places: Longs, marks: tuple[Longs, Longs]) -> Longs:
    """Return for each of ``places`` the offset of its producer's first marker after it, else -1."""
    count = len(producers)
    owners, at = np.concatenate([producers, marks[0]]), np.concatenate([places, marks[1]])
    is_mark = np.arange(len(owners)) >= count
    order = np.lexsort((at, owners))
    first_mark = np.empty(len(owners), np.int64)
    first_mark[order] = np.append(at[order], NOWHERE)[_next(owners[order], is_mark[order])]
    return first_mark[:count]


def _contradict(logs: _Logs, files: _SideFiles) -> bool:
    """Return whether any log contradicts its side files, or the markers of any replica."""
    brokers, producers, bases = logs.broker[logs.is_data], logs.producer[logs.is_data], logs.base[logs.is_data]
    decided_at = logs.decided_at[logs.is_data]
    _, index_producers, firsts, lasts = np.array(files.aborts, np.int64).reshape(-1, 4).T
    # The markers that any replica shows, in its log or its .txnindex.
    marks = (
        np.concatenate([logs.producer[logs.is_marker], index_producers]),
        np.concatenate([logs.base[logs.is_marker], lasts]),
    )
    if (first_after(producers, bases, marks) != decided_at).any():
        return True
    if (first_after(index_producers, firsts, marks) != lasts).any():
        return True
    entry_of = {(broker, producer, last): first for broker, producer, first, last in files.aborts}
    spans = (column.tolist() for column in (brokers, producers, bases, decided_at, logs.committed[logs.is_data]))
    # An open transaction is neither committed nor in the index, and counts as a contradiction.
    for broker, producer, base, at, committed in zip(*spans, strict=True):
        if (entry_of.get((broker, producer, at), base + 1) <= base) == committed:
            return True
    # No transaction is open in a log: every producer with a later span has ended its transaction.
    return any(
        not opened <= set(logs.producer[(logs.broker == broker) & (logs.base >= as_of)].tolist())
        for broker, (as_of, opened) in files.snapshots.items()
    )
