"""Partitions that leave no doubt: one look at the stretches of each, instead of all that doubtful ones take.

Plain is a partition where every log ends at the same offset, is of one lineage, and gives every transaction the first
marker that any replica shows after it; where no ``.txnindex`` and no newest producer snapshot says otherwise, and
nothing is open. Then no transaction can be misjudged, and what is left to compare is records. Where the batches of data
are the same too, they are the same records, and nothing at all is left.

This finds nothing. What it lets go has nothing to be found by beliefs; whatever is not plain, for whatever reason, is
judged by the checkers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.copies import SIDE_READERS_OF_COPIES
from checkers.evidence.schemas import FLAG, INT, LONG, TEXT
from checkers.evidence.tables import PARTITION
from checkers.reduction.scan import BEFORE
from checkers.replay.batch_outcomes import ABORTED, COMMITTED
from harness.brokers.segments.batches import CorruptLogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt
    from pyspark.sql import DataFrame

    from checkers.evidence.tables import Place
    from harness.brokers.copies.copies import Copies

    Longs = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

NOWHERE: Final = -1

BELIEFS = t.ArrayType(
    t.StructType(
        [
            t.StructField("producer_id", LONG),
            t.StructField("base_offset", LONG),
            t.StructField("belief", TEXT),
            t.StructField("misjudged", FLAG),
        ]
    )
)
"""What a replica believes of the transactional stretches of one segment."""

LOOKS = t.StructType(
    [
        t.StructField(name, type_)
        for name, type_ in {
            "run": TEXT, "topic": TEXT, "partition": INT, "plain": FLAG, "same": FLAG, "log_end": LONG,
            "segment": INT, "told": BELIEFS,
        }.items()
    ]
)  # fmt: skip
"""A row for each partition, and of plain ones one for each segment too, with ``segment`` and ``told``."""


def look(stretches: DataFrame, copies: Mapping[Place, Copies], segments: Mapping[Place, Sequence[int]]) -> DataFrame:
    """Return `LOOKS` of every partition. ``copies``: its replicas; ``segments``: those of its files; both by place."""
    schema = to_arrow_schema(LOOKS)

    def see(here: pa.Table) -> pa.Table:
        place: Place = tuple(here.column(name)[0].as_py() for name in PARTITION)
        found = _look(here, copies[place])
        if found is None:
            return pa.Table.from_pylist([_row(place, plain=False, same=False)], schema=schema)
        told = {} if found.same else {segment: found.told.get(segment, []) for segment in segments[place]}
        rows = [_row(place, plain=True, same=found.same, log_end=found.log_end)]
        rows += (_row(place, segment=segment, told=beliefs) for segment, beliefs in told.items())
        return pa.Table.from_pylist(rows, schema=schema)

    return stretches.groupBy(*PARTITION).applyInArrow(see, LOOKS)


@dataclass(frozen=True)
class _Log:
    """The stretches of one replica, by producer and offset; what compaction has left of markers is not among them."""

    producer: Longs
    base: Longs
    epoch: Longs
    is_marker: Flags
    transactional: Flags
    segment: Longs
    end: int
    decided_at: Longs
    """Where the next marker of the producer is; -1 where there is none."""
    committed: Flags
    """Whether that is a COMMIT."""

    @property
    def is_data(self) -> Flags:
        """Which stretches are of transactions' data."""
        return self.transactional & ~self.is_marker


def _row(place: Place, **columns: Any) -> dict[str, Any]:
    return {**dict(zip(PARTITION, place, strict=True)), **columns}


@dataclass(frozen=True)
class _Plain:
    """What a plain partition is; ``told``: `BELIEFS` by segment."""

    same: bool
    log_end: int
    told: dict[int, list[dict[str, Any]]]


def _look(here: pa.Table, copies: Copies) -> _Plain | None:
    """Return what a partition is, None where it is not plain."""
    columns = {name: here.column(name) for name in here.column_names}
    owners = columns["broker"].to_numpy()
    brokers = {copy.broker for copy in copies.replicas}
    if columns["problem"].null_count < len(here) or set(owners.tolist()) != brokers:
        return None
    try:
        notes = {copy.broker: _Notes.read(replace(copies, replicas=(copy,))) for copy in copies.replicas}
    except (CorruptLogError, OSError):
        return None
    if _has_stale_tail(columns, [start for note in notes.values() for start in note.epochs]):
        return None
    logs = {broker: _log(columns, np.flatnonzero(owners == broker)) for broker in brokers}
    ends = {log.end for log in logs.values()}
    if len(ends) > 1 or any(map(_is_overtaken, logs.values())):
        return None
    marks = _marks(logs, notes)
    if _spans_differ(notes.values()) or any(_is_doubtful(logs[broker], notes[broker], marks) for broker in brokers):
        return None
    same = len({_digest(columns, owners == broker) for broker in brokers}) == 1
    return _Plain(same, ends.pop(), {} if same else _told(logs.values()))


def _told(logs: Iterable[_Log]) -> dict[int, list[dict[str, Any]]]:
    told: dict[int, list[dict[str, Any]]] = {}
    for log in logs:
        for row in np.flatnonzero(log.is_data).tolist():
            told.setdefault(int(log.segment[row]), []).append(
                {
                    "producer_id": int(log.producer[row]),
                    "base_offset": int(log.base[row]),
                    "belief": COMMITTED if log.committed[row] else ABORTED,
                    "misjudged": False,
                }
            )
    return told


def _has_stale_tail(columns: dict[str, Any], known: Sequence[tuple[int, int]]) -> bool:
    """Whether any replica has a lower leader epoch where another has a higher one already (see `unreplicated_tails`).

    ``written``: leader epochs and where they began.
    """
    began = np.array(known, np.int64).reshape(-1, 2)
    starts = np.concatenate([columns["base_offset"].to_numpy(), began[:, 1]])
    epochs = np.concatenate([columns["leader_epoch"].to_numpy(), began[:, 0]])
    # A stretch may go on to where a newer epoch begins: its own end counts.
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
    kept = np.flatnonzero(~control | decides)
    kept = kept[np.lexsort((bases[kept], producers[kept]))]
    producers, bases, decides = producers[kept], bases[kept], decides[kept]
    transactional = columns["transactional"].to_numpy(zero_copy_only=False)[mine][kept]
    following = _next(producers, decides)
    return _Log(
        producer=producers,
        base=bases,
        epoch=columns["producer_epoch"].to_numpy()[mine][kept],
        is_marker=decides,
        transactional=transactional,
        segment=columns["segment"].to_numpy()[mine][kept],
        end=int(ends.max()) + 1,
        decided_at=np.append(bases, NOWHERE)[following],
        committed=np.append(markers[kept] == "commit", False)[following],
    )


def _next(producers: Longs, marks: Flags) -> Longs:
    """Return for each row the index of the next marked one of its producer, itself counting; -1 where there is none."""
    nowhere = len(producers)
    places = np.where(marks, np.arange(nowhere), nowhere)
    following = np.minimum.accumulate(places[::-1])[::-1]
    is_same = np.append(producers, np.int64(-2))[following] == producers
    return np.where(is_same, following, -1)


def _is_overtaken(log: _Log) -> bool:
    """Whether data of a higher epoch follow others of their producer before a marker."""
    # Of one producer: the last of each is a marker, or else it is open, and in doubt.
    follows = log.is_data[:-1] & log.is_data[1:]
    return bool((follows & (log.epoch[1:] > log.epoch[:-1])).any())


@dataclass(frozen=True)
class _Notes:
    """What one broker noted beside its log.

    Aborted transactions; producers of those that its newest snapshot, of offset ``as_of``, holds open; ``epochs``:
    leader epochs and where each began.
    """

    producer: Longs
    first: Longs
    last: Longs
    open_producers: frozenset[int]
    as_of: int
    epochs: tuple[tuple[int, int], ...]

    @classmethod
    def read(cls, copies: Copies) -> _Notes:
        """Read the files beside one replica. Raises ``CorruptLogError`` and ``OSError``."""
        producers, firsts, lasts = np.array(_rows("aborts", copies), np.int64).reshape(-1, 3).T
        snapshots = _rows("producers", copies)
        as_of = max((at for at, *_ in snapshots), default=-1)
        opened = (producer for at, producer, _, _, first in snapshots if at == as_of and first is not None)
        return cls(producers, firsts, lasts, frozenset(opened), as_of, tuple(_rows("epochs", copies)))


def _rows(table: str, copies: Copies) -> list[tuple[Any, ...]]:
    reader = SIDE_READERS_OF_COPIES[table]
    return [row for _, path in reader.files(copies) for row in reader.rows(path)]


def _marks(logs: Mapping[int, _Log], notes: Mapping[int, _Notes]) -> tuple[Longs, Longs]:
    """Return producer and offset of every marker that any replica shows, in its log or its ``.txnindex``."""
    producers = [log.producer[log.is_marker] for log in logs.values()] + [note.producer for note in notes.values()]
    places = [log.base[log.is_marker] for log in logs.values()] + [note.last for note in notes.values()]
    return np.concatenate(producers), np.concatenate(places)


def _spans_differ(notes: Iterable[_Notes]) -> bool:
    """Whether two replicas take one ABORT for the end of different stretches (see `txnindex_disagreement`)."""
    first_of: dict[tuple[int, int], int] = {}
    for note in notes:
        for producer, first, last in zip(note.producer.tolist(), note.first.tolist(), note.last.tolist(), strict=True):
            if first_of.setdefault((producer, last), first) != first:
                return True
    return False


def _first_after(producers: Longs, places: Longs, marks: tuple[Longs, Longs]) -> Longs:
    """Return for each place the offset of its producer's first mark after it; -1 where there is none."""
    count = len(producers)
    owners, at = np.concatenate([producers, marks[0]]), np.concatenate([places, marks[1]])
    is_mark = np.arange(len(owners)) >= count
    order = np.lexsort((at, owners))
    found = np.empty(len(owners), np.int64)
    found[order] = np.append(at[order], NOWHERE)[_next(owners[order], is_mark[order])]
    return found[:count]


def _is_doubtful(log: _Log, notes: _Notes, marks: tuple[Longs, Longs]) -> bool:
    data = log.is_data
    producers, bases, decided_at = log.producer[data], log.base[data], log.decided_at[data]
    if (_first_after(producers, bases, marks) != decided_at).any():
        return True
    if (_first_after(notes.producer, notes.first, marks) != notes.last).any():
        return True
    entry_of = dict(
        zip(zip(notes.producer.tolist(), notes.last.tolist(), strict=True), notes.first.tolist(), strict=True)
    )
    stretches = (column.tolist() for column in (producers, bases, decided_at, log.committed[data]))
    # One that is open is neither committed nor among the aborted ones.
    for producer, base, at, committed in zip(*stretches, strict=True):
        if (entry_of.get((producer, at), base + 1) <= base) == committed:
            return True
    # Nothing is open: who has written since has ended it.
    ended = log.producer[log.base >= notes.as_of]
    return not notes.open_producers <= set(ended.tolist())


def _digest(columns: dict[str, Any], mine: Flags) -> int:
    """Return what the data of a log come to, from the log start on: markers were compared by what they decide."""
    data = ~columns["control"].to_numpy(zero_copy_only=False)
    compared = mine & data & (columns["region"].to_numpy() != BEFORE)
    return int(np.bitwise_xor.reduce(columns["digest"].to_numpy()[compared], initial=0))
