"""Partitions whose transactions agree on all replicas, by their producer spans.

A partition is consistent if every log ends at the same offset, if no log has an unreplicated tail, if every log ends
each transaction with the first marker that any replica shows after it, if no ``.txnindex`` and no newest producer
snapshot contradicts its log, and if no transaction is open. Then no transaction can be misjudged, and only records
must be compared, unless the data batches are the same. The checkers judge every other partition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.copies import SIDE_READERS_OF_COPIES
from checkers.evidence.schemas import FLAG, INT, LONG, TEXT, table
from checkers.evidence.tables import PARTITION, PLACE
from checkers.reduction.scan import BEFORE
from checkers.replay.batch_outcomes import ABORTED, COMMITTED
from harness.broker_files.segments.batches import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt
    from pyspark.sql import DataFrame

    from checkers.evidence.tables import Place
    from harness.broker_files.copies.copies import Copies

    Longs = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

NOWHERE: Final = -1

BELIEFS = t.ArrayType(table(producer_id=LONG, base_offset=LONG, belief=TEXT, misjudged=FLAG))
"""A replica's beliefs about the transactional producer spans of one segment."""

PARTITION_ROWS = table(
    run=TEXT, topic=TEXT, partition=INT, consistent=FLAG, same=FLAG, log_end=LONG, segment=INT, beliefs=BELIEFS
)
"""A row for each partition. For a consistent partition whose batches differ also ``segment`` and ``beliefs`` of each
segment with batches."""


def consistent_partitions(spans: DataFrame, copies: Mapping[Place, Copies]) -> DataFrame:
    """Return `PARTITION_ROWS` of every partition. ``copies``: its replicas, by partition."""
    schema = to_arrow_schema(PARTITION_ROWS)

    def check(here: pa.Table) -> pa.Table:
        place: Place = tuple(here.column(name)[0].as_py() for name in PLACE)
        result = _consistent_partition(here, copies[place])
        if result is None:
            return pa.Table.from_pylist([_row(place, consistent=False, same=False)], schema=schema)
        segments = [] if result.same else here.column("segment").unique().to_pylist()
        rows = [_row(place, consistent=True, same=result.same, log_end=result.log_end)]
        rows += (_row(place, segment=segment, beliefs=result.beliefs.get(segment, [])) for segment in segments)
        return pa.Table.from_pylist(rows, schema=schema)

    return spans.groupBy(*PARTITION).applyInArrow(check, PARTITION_ROWS)


@dataclass(frozen=True)
class _Log:
    """The producer spans of one replica, ordered by producer and offset, without emptied control batches."""

    producer: Longs
    base: Longs
    epoch: Longs
    is_marker: Flags
    transactional: Flags
    segment: Longs
    end: int
    decided_at: Longs
    """The offset of the producer's next marker, else -1."""
    committed: Flags
    """True where the producer's next marker is a COMMIT."""

    @property
    def is_data(self) -> Flags:
        """True for each span of transactional data."""
        return self.transactional & ~self.is_marker


def _row(place: Place, **columns: Any) -> dict[str, Any]:
    return {**dict(zip(PLACE, place, strict=True)), **columns}


@dataclass(frozen=True)
class _ConsistentPartition:
    """``same``: the data batches are the same on every replica. ``beliefs``: `BELIEFS` by segment."""

    same: bool
    log_end: int
    beliefs: dict[int, list[dict[str, Any]]]


def _consistent_partition(here: pa.Table, copies: Copies) -> _ConsistentPartition | None:
    """Return the partition if it is consistent, else None."""
    columns = {name: here.column(name) for name in here.column_names}
    owners = columns["broker"].to_numpy()
    brokers = {copy.broker for copy in copies.replicas}
    if columns["problem"].null_count < len(here) or set(owners.tolist()) != brokers:
        return None
    try:
        side_files = {copy.broker: _SideFiles.read(replace(copies, replicas=(copy,))) for copy in copies.replicas}
    except (CorruptLogError, OSError):
        return None
    if _has_unreplicated_tail(columns, [start for files in side_files.values() for start in files.epochs]):
        return None
    logs = {broker: _log(columns, np.flatnonzero(owners == broker)) for broker in brokers}
    ends = {log.end for log in logs.values()}
    if len(ends) > 1 or any(map(_is_overtaken, logs.values())):
        return None
    marks = _marks(logs, side_files)
    if _spans_differ(side_files.values()) or any(
        _contradicts(logs[broker], side_files[broker], marks) for broker in brokers
    ):
        return None
    same = len({_digest(columns, owners == broker) for broker in brokers}) == 1
    return _ConsistentPartition(same, ends.pop(), {} if same else _beliefs(logs.values()))


def _beliefs(logs: Iterable[_Log]) -> dict[int, list[dict[str, Any]]]:
    beliefs: dict[int, list[dict[str, Any]]] = {}
    for log in logs:
        for row in np.flatnonzero(log.is_data).tolist():
            beliefs.setdefault(int(log.segment[row]), []).append(
                {
                    "producer_id": int(log.producer[row]),
                    "base_offset": int(log.base[row]),
                    "belief": COMMITTED if log.committed[row] else ABORTED,
                    "misjudged": False,
                }
            )
    return beliefs


def _has_unreplicated_tail(columns: dict[str, Any], epoch_starts: Sequence[tuple[int, int]]) -> bool:
    """Return whether any replica has a lower leader epoch than another one at the same offset (`unreplicated_tails`).

    ``epoch_starts``: leader epochs and their start offsets.
    """
    began = np.array(epoch_starts, np.int64).reshape(-1, 2)
    starts = np.concatenate([columns["base_offset"].to_numpy(), began[:, 1]])
    epochs = np.concatenate([columns["leader_epoch"].to_numpy(), began[:, 0]])
    # A span may reach the start of a newer epoch: the end of the span counts.
    ends = np.concatenate([columns["end_offset"].to_numpy(), began[:, 1]])
    order = np.lexsort((epochs, starts))
    newest = np.maximum.accumulate(epochs[order])
    at = np.searchsorted(starts[order], ends, "right") - 1
    return bool((newest[at] > epochs)[: len(columns["base_offset"])].any())


def _log(columns: dict[str, Any], mine: npt.NDArray[np.intp]) -> _Log:
    producers, bases = columns["producer_id"].to_numpy()[mine], columns["base_offset"].to_numpy()[mine]
    markers = np.array(columns["marker"].to_pylist(), object)[mine]
    control = columns["control"].to_numpy(zero_copy_only=False)[mine]
    ends = columns["end_offset"].to_numpy()[mine]
    decides = (markers == "commit") | (markers == "abort")
    rows = np.flatnonzero(~control | decides)
    rows = rows[np.lexsort((bases[rows], producers[rows]))]
    producers, bases, decides = producers[rows], bases[rows], decides[rows]
    transactional = columns["transactional"].to_numpy(zero_copy_only=False)[mine][rows]
    following = _next(producers, decides)
    return _Log(
        producer=producers,
        base=bases,
        epoch=columns["producer_epoch"].to_numpy()[mine][rows],
        is_marker=decides,
        transactional=transactional,
        segment=columns["segment"].to_numpy()[mine][rows],
        end=int(ends.max()) + 1,
        decided_at=np.append(bases, NOWHERE)[following],
        committed=np.append(markers[rows] == "commit", False)[following],
    )


def _next(producers: Longs, marks: Flags) -> Longs:
    """Return for each row the index of its producer's next marked row, itself included, else -1."""
    nowhere = len(producers)
    places = np.where(marks, np.arange(nowhere), nowhere)
    following = np.minimum.accumulate(places[::-1])[::-1]
    is_same = np.append(producers, np.int64(-2))[following] == producers
    return np.where(is_same, following, -1)


def _is_overtaken(log: _Log) -> bool:
    """Return whether data of a producer are followed by data of a higher producer epoch before a marker."""
    # Adjacent data spans have the same producer: a producer's last span is a marker, else the log is inconsistent.
    follows = log.is_data[:-1] & log.is_data[1:]
    return bool((follows & (log.epoch[1:] > log.epoch[:-1])).any())


@dataclass(frozen=True)
class _SideFiles:
    """The side files of one replica.

    ``producer``, ``first``, ``last``: its aborted transactions. ``open_producers``: producers with an open transaction
    in its newest producer snapshot, at offset ``as_of``. ``epochs``: leader epochs and their start offsets.
    """

    producer: Longs
    first: Longs
    last: Longs
    open_producers: frozenset[int]
    as_of: int
    epochs: tuple[tuple[int, int], ...]

    @property
    def aborted(self) -> list[tuple[int, int, int]]:
        """Producer, first and last offset of each aborted transaction."""
        return list(zip(self.producer.tolist(), self.first.tolist(), self.last.tolist(), strict=True))

    @classmethod
    def read(cls, copies: Copies) -> _SideFiles:
        """Read the side files of one replica. Raises ``CorruptLogError`` and ``OSError``."""
        producers, firsts, lasts = np.array(_rows("aborts", copies), np.int64).reshape(-1, 3).T
        snapshots = _rows("producers", copies)
        as_of = max((at for at, *_ in snapshots), default=-1)
        opened = (producer for at, producer, _, _, first in snapshots if at == as_of and first is not None)
        return cls(producers, firsts, lasts, frozenset(opened), as_of, tuple(_rows("epochs", copies)))


def _rows(table: str, copies: Copies) -> list[tuple[Any, ...]]:
    reader = SIDE_READERS_OF_COPIES[table]
    return [row for _, path in reader.files(copies) for row in reader.rows(path)]


def _marks(logs: Mapping[int, _Log], side_files: Mapping[int, _SideFiles]) -> tuple[Longs, Longs]:
    """Return producer and offset of every marker that any replica shows, in its log or its ``.txnindex``."""
    producers = [log.producer[log.is_marker] for log in logs.values()] + [
        files.producer for files in side_files.values()
    ]
    places = [log.base[log.is_marker] for log in logs.values()] + [files.last for files in side_files.values()]
    return np.concatenate(producers), np.concatenate(places)


def _spans_differ(side_files: Iterable[_SideFiles]) -> bool:
    """Return whether the ranges of an aborted transaction differ between replicas (see `txnindex_disagreement`)."""
    first_of: dict[tuple[int, int], int] = {}
    for files in side_files:
        for producer, first, last in files.aborted:
            if first_of.setdefault((producer, last), first) != first:
                return True
    return False


def first_after(producers: Longs, places: Longs, marks: tuple[Longs, Longs]) -> Longs:
    """Return for each of ``places`` the offset of its producer's first marker after it, else -1."""
    count = len(producers)
    owners, at = np.concatenate([producers, marks[0]]), np.concatenate([places, marks[1]])
    is_mark = np.arange(len(owners)) >= count
    order = np.lexsort((at, owners))
    first_mark = np.empty(len(owners), np.int64)
    first_mark[order] = np.append(at[order], NOWHERE)[_next(owners[order], is_mark[order])]
    return first_mark[:count]


def _contradicts(log: _Log, side_files: _SideFiles, marks: tuple[Longs, Longs]) -> bool:
    """Return whether a log contradicts its side files, or the markers of any replica."""
    data = log.is_data
    producers, bases, decided_at = log.producer[data], log.base[data], log.decided_at[data]
    if (first_after(producers, bases, marks) != decided_at).any():
        return True
    if (first_after(side_files.producer, side_files.first, marks) != side_files.last).any():
        return True
    entry_of = {(producer, last): first for producer, first, last in side_files.aborted}
    spans = (column.tolist() for column in (producers, bases, decided_at, log.committed[data]))
    # An open transaction is neither committed nor in the index, and counts as a contradiction.
    for producer, base, at, committed in zip(*spans, strict=True):
        if (entry_of.get((producer, at), base + 1) <= base) == committed:
            return True
    # No transaction is open in the log: every producer with a later span has ended its transaction.
    ended = log.producer[log.base >= side_files.as_of]
    return not side_files.open_producers <= set(ended.tolist())


def _digest(columns: dict[str, Any], mine: Flags) -> int:
    """Return a digest of the data batches from the log start on; markers are compared by their outcomes."""
    data = ~columns["control"].to_numpy(zero_copy_only=False)
    compared = mine & data & (columns["region"].to_numpy() != BEFORE)
    return int(np.bitwise_xor.reduce(columns["digest"].to_numpy()[compared], initial=0))
