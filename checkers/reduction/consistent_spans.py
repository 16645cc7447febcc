"""The fast path: the partitions of copies of any size in which no checker can find anything.

All files are read once, and checksums are computed. A partition is consistent if every log ends at the same offset, if
no log has an unreplicated tail, if no transaction is open, and if its spans are consistent: every log ends each
transaction with the first marker that any replica shows after it, in the log or in a ``.txnindex``, an aborted
transaction has an index entry and a committed transaction has none, the index entries of replicas agree, no producer
continues in a higher epoch before a marker, and a marker ends every transaction that is open in the newest snapshot.
Then no transaction can be misjudged, and only records must be compared, unless the data batches are the same. A
consistent partition is cleared if it has the same batches, or the same final state of every key (`candidate_keys`), on
every replica. The checkers judge every other partition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.schemas import FLAG, INT, LONG, TEXT, table
from checkers.evidence.tables import PARTITION, PLACE, REPLICA_PLACE, RunPartition, place_of
from checkers.reduction import packed_spans as span
from checkers.reduction.candidate_keys import NOT_COMMITTED, beliefs_by_file, candidate_keys
from checkers.reduction.segments import Array, Flags, Longs, differs_from_previous, replica_segments

if TYPE_CHECKING:
    from harness.broker_files.copies.copies import Copies

NOWHERE: Final = -1
Facts: TypeAlias = dict[tuple[str, str, int, int], dict[str, int | None]]
"""The offsets in checkpoints (`copies.replica_facts`), by `REPLICA_PLACE`."""

CONTRADICTION: Final = "the logs, or their indexes, contradict each other"

CONSISTENT = table(
    run=TEXT, topic=TEXT, partition=INT, same=FLAG, log_end=LONG, records=LONG, segment=INT, beliefs=t.BinaryType()
)  # fmt: skip
"""A row for each consistent partition; ``same``: the data batches are the same on every replica. ``records``: of all
replicas. A row for each file with beliefs that its chunks do not give: ``segment`` and ``beliefs``."""


def next_marked(groups: Longs, marks: Flags) -> Longs:
    """Return for each row the index of its group's next marked row, itself included, else -1."""
    nowhere = len(groups)
    places = np.where(marks, np.arange(nowhere), nowhere)
    following = np.minimum.accumulate(places[::-1])[::-1]
    return np.where(np.append(groups, np.int64(-2))[following] == groups, following, NOWHERE)


def first_after(producers: Longs, places: Longs, marks: tuple[Longs, Longs]) -> Longs:
    """Return for each of ``places`` the offset of its producer's first marker after it, else -1."""
    owners, at = np.concatenate([producers, marks[0]]), np.concatenate([places, marks[1]])
    is_mark = np.arange(len(owners)) >= len(producers)
    order = np.lexsort((at, owners))
    first_mark = np.empty(len(owners), np.int64)
    first_mark[order] = np.append(at[order], NOWHERE)[next_marked(owners[order], is_mark[order])]
    return first_mark[: len(producers)]


@dataclass(frozen=True)
class SortedSpans:
    """Spans by broker, producer and offset. ``groups``: a number for each producer of each broker, in this order.

    ``is_data``: transactional data. ``decider``: the index of the next marker of the producer in the same log, else -1.
    ``is_undecided``: data without such a marker. ``is_aborted``: the decider is an ABORT.
    """

    spans: Array
    groups: Longs
    is_data: Flags
    is_marker: Flags
    is_index: Flags
    decider: Longs
    is_undecided: Flags
    is_aborted: Flags

    @classmethod
    def of(cls, spans: Array) -> Self:
        """Sort spans (`packed_spans.SPAN`)."""
        spans = spans[np.lexsort((spans["kind"], spans["at"], spans["producer"], spans["broker"]))]
        groups: Longs = np.cumsum(differs_from_previous(spans["broker"], spans["producer"]), dtype=np.int64)
        kinds = spans["kind"]
        is_data, is_marker = kinds == span.DATA, np.isin(kinds, (span.COMMITS, span.ABORTS))
        decider = next_marked(groups, is_marker)
        is_decided = decider != NOWHERE
        is_aborted = is_decided & (kinds[decider] == span.ABORTS)
        return cls(spans, groups, is_data, is_marker, kinds == span.INDEX, decider, is_data & ~is_decided, is_aborted)

    def _is_unanswered(self) -> Flags:
        """Return the open transactions of a snapshot that no marker of the log ends."""
        is_unanswered: Flags = (self.spans["kind"] == span.OPEN) & (self.decider == NOWHERE)
        return is_unanswered

    @property
    def has_open(self) -> bool:
        """True if a transaction is open at the end of these spans."""
        return bool((self.is_undecided | self._is_unanswered()).any())

    @property
    def contradicting(self) -> Longs:
        """The producers whose logs or index entries contradict each other; more spans cannot change that."""
        rows = self._overtaken(), self._with_other_entries(), self._with_earlier_marker(), self._with_wrong_index()
        return np.unique(self.spans["producer"][np.concatenate(rows)])

    def _overtaken(self) -> Longs:
        """Return data that are followed by data of a higher producer epoch before a marker."""
        rows = np.flatnonzero(self.is_data | self.is_marker)
        is_data, groups, epochs = self.is_data[rows], self.groups[rows], self.spans["epoch"][rows]
        is_overtaken = is_data[:-1] & is_data[1:]
        is_overtaken &= (groups[:-1] == groups[1:]) & (epochs[1:] > epochs[:-1])
        return rows[:-1][is_overtaken]

    def _with_other_entries(self) -> Longs:
        """Return index entries of an aborted transaction whose ranges on replicas differ (see `side_files`)."""
        rows = np.flatnonzero(self.is_index)
        entries = self.spans[rows]
        order = np.lexsort((entries["since"], entries["at"], entries["producer"]))
        entries = entries[order]
        same = ~differs_from_previous(entries["producer"], entries["at"])
        return rows[order[same & differs_from_previous(entries["since"])]]

    def _with_earlier_marker(self) -> Longs:
        """Return data, and index entries, after whose start any replica shows an earlier marker of the producer."""
        data, entries = np.flatnonzero(self.is_data), np.flatnonzero(self.is_index)
        rows, marks = np.concatenate([data, entries]), self.spans[self.is_marker | self.is_index]
        starts = np.concatenate([self.spans["at"][data], self.spans["since"][entries]])
        decided_at = np.append(self.spans["at"], NOWHERE)[self.decider[data]]
        ends = np.concatenate([decided_at, self.spans["at"][entries]])
        first = first_after(self.spans["producer"][rows], starts, (marks["producer"], marks["at"]))
        return rows[np.flatnonzero(first != ends)]

    def _with_wrong_index(self) -> Longs:
        """Return data of an aborted transaction that no index entry covers, or of a committed one that has an entry."""
        rows = np.flatnonzero(self.is_data & ~self.is_undecided)
        deciders = self.decider[rows]
        # The entry of a marker follows the marker.
        entries = np.minimum(deciders + 1, len(self.spans) - 1)
        has_entry = self.is_index[entries] & (self.groups[entries] == self.groups[rows])
        has_entry &= self.spans["at"][entries] == self.spans["at"][deciders]
        has_entry &= self.spans["since"][entries] <= self.spans["at"][rows]
        return rows[np.flatnonzero(has_entry == (self.spans["kind"][deciders] == span.COMMITS))]

    def beliefs(self, which: Flags) -> list[dict[str, Any]]:
        """Return a row for each file: the beliefs about some decided data, of `candidate_keys.BELIEF`."""
        spans, flags = self.spans[which], np.where(self.is_aborted[which], NOT_COMMITTED, 0)
        return beliefs_by_file(spans["segment"], spans["producer"], spans["at"], flags)

    def _ends(self, rows: Longs) -> tuple[Longs, Longs]:
        """Return the first and the last of these rows of each log and producer."""
        begins = differs_from_previous(self.groups[rows])
        return rows[begins], rows[np.append(begins[1:], True)[: len(rows)]]

    def unsettled(self) -> Flags:
        """Return the spans of logs about which the spans of other chunks may matter, or whose producers contradict.

        Of each log and producer: undecided data, the first transaction with its marker, the last marker, the marker
        after an open transaction of a snapshot or answer, and control batches that end no transaction. All other
        transactions begin and end in this chunk, as every replica shows.
        """
        keep: Flags = np.isin(self.spans["producer"], self.contradicting) | self.is_undecided
        first, last = self._ends(np.flatnonzero(self.is_marker))
        is_first = np.zeros_like(keep)
        is_first[first] = keep[last] = True
        # A marker is its own decider, and data without one are kept in any case.
        keep |= is_first[self.decider]
        after_open = self.decider[self.spans["kind"] == span.OPEN]
        keep[after_open[after_open != NOWHERE]] = True
        return (keep & (self.is_data | self.is_marker)) | np.isin(self.spans["kind"], (span.EMPTIED, span.OTHER))

    def beyond_chunk(self) -> Array:
        """Return the spans that matter together with other chunks; `contradicting` of them is sound.

        Of each log and producer: the first span, the first and the last marker and index entry (an entry that begins in
        an earlier chunk is the first one, or contradicts), undecided data (of each file and epoch the first), and
        unanswered transactions.
        """
        keep = self._is_unanswered()
        keep[self._ends(np.flatnonzero(self.is_data | self.is_marker))[0]] = True
        for is_kind in (self.is_marker, self.is_index):
            first, last = self._ends(np.flatnonzero(is_kind))
            keep[first] = keep[last] = True
        undecided = np.flatnonzero(self.is_undecided)
        columns = self.groups, self.spans["segment"], self.spans["epoch"]
        keep[undecided[differs_from_previous(*(column[undecided] for column in columns))]] = True
        # The entry of a marker stays with the marker.
        keep[1:] |= keep[:-1] & ~differs_from_previous(self.spans["at"])[1:]
        return self.spans[keep]


def cleared_partitions(
    spark: SparkSession, copies: Sequence["Copies"], facts: Facts, tasks: int
) -> tuple[set[RunPartition], list[dict[str, Any]]]:
    """Return the cleared partitions, and their replicas as in `Judged`. ``tasks``: of Spark, that compare."""
    if not copies:
        return set(), []
    segments = replica_segments(copies, facts)
    brokers: dict[RunPartition, set[int]] = {}
    for segment in segments:
        brokers.setdefault(segment.place, set()).add(segment.broker)
    packed_schema, schema = to_arrow_schema(span.PACKED_SPANS), to_arrow_schema(CONSISTENT)

    def check_chunk(rows: pa.Table) -> pa.Table:
        if rows.column("chunk")[0].as_py() == span.FILE:
            return rows
        head = {name: rows.column(name)[0].as_py() for name in (*PLACE, "chunk")}
        return pa.Table.from_pylist([{**head, **row} for row in _chunk_rows(rows)], schema=packed_schema)

    def check_partition(rows: pa.Table) -> pa.Table:
        place: RunPartition = tuple(rows.column(name)[0].as_py() for name in PLACE)
        head = dict(zip(PLACE, place, strict=True))
        return pa.Table.from_pylist([{**head, **row} for row in _partition_rows(rows, brokers[place])], schema)

    chunks = span.packed_spans(spark, segments).repartition(tasks, *PARTITION, "chunk").groupBy(*PARTITION, "chunk")
    checked = chunks.applyInArrow(check_chunk, span.PACKED_SPANS).localCheckpoint(eager=False)
    by_partition = checked.where("beliefs IS NULL").repartition(tasks, *PARTITION).groupBy(*PARTITION)
    partitions = by_partition.applyInArrow(check_partition, CONSISTENT).localCheckpoint(eager=False)
    consistent = {place_of(row): row for row in partitions.where("same IS NOT NULL").drop("beliefs").collect()}
    ends = {place: row["log_end"] for place, row in consistent.items()}
    bounds = _bounds(ends, facts)
    differing = {place for place, row in consistent.items() if not row["same"]}
    if differing:
        bounded = [
            replace(segment, bound=bounds[place], shortest=ends[place]) if (place := segment.place) in ends else segment
            for segment in segments
        ]
        records = {place: consistent[place]["records"] for place in differing}
        beliefs = checked.select("segment", "beliefs").unionAll(partitions.select("segment", "beliefs"))
        keys = candidate_keys(beliefs.where("beliefs IS NOT NULL"), bounded, records, tasks)
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


def _bounds(ends: Mapping[RunPartition, int], facts: Facts) -> dict[RunPartition, int]:
    """Return the bound of each partition: its log end, or the highest high watermark if that is lower."""
    highest: dict[RunPartition, int] = {}
    for replica, fields in facts.items():
        if (offset := fields["high_watermark"]) is not None:
            highest[replica[:3]] = max(offset, highest.get(replica[:3], 0))
    return {place: min(end, highest.get(place, end)) for place, end in ends.items()}


def _chunk_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the spans of a chunk that matter beyond it, and its decided beliefs; or that it contradicts itself."""
    spans = SortedSpans.of(span.arrays(rows.column("spans"), span.SPAN))
    if spans.contradicting.size:
        return [{"problem": CONTRADICTION}]
    return [{"spans": spans.beyond_chunk().tobytes()}, *spans.beliefs(spans.is_data & ~spans.is_undecided)]


def _partition_rows(rows: pa.Table, brokers: set[int]) -> list[dict[str, Any]]:
    """Return the other columns of `CONSISTENT` for a partition, no row if it is not consistent."""
    if rows.column("problem").null_count < len(rows):
        return []
    files = [row for row in rows.drop_columns(["spans"]).to_pylist() if row["chunk"] == span.FILE]
    log_end, *others = {
        max((row["log_end"] or 0 for row in files if row["broker"] == broker), default=0) for broker in brokers
    }
    if others or not log_end or _has_unreplicated_tail(files):
        return []
    spans = SortedSpans.of(span.arrays(rows.column("spans"), span.SPAN))
    if spans.contradicting.size or spans.has_open:
        return []
    digests = dict.fromkeys(brokers, 0)
    for row in files:
        digests[row["broker"]] ^= row["digest"]
    records = sum(row["records"] for row in files)
    return [
        {"same": len(set(digests.values())) == 1, "log_end": log_end, "records": records},
        *spans.beliefs(spans.is_data),
    ]


def _has_unreplicated_tail(files: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether any replica has a leader epoch after the start of a later one. See `unreplicated_tails`."""
    epochs = np.concatenate([np.frombuffer(row["epochs"], span.EPOCH) for row in files])
    epochs = epochs[np.argsort(epochs["epoch"], kind="stable")]
    # The lowest start of any later epoch.
    starts = np.minimum.accumulate(epochs["start"][::-1])[::-1]
    later = np.searchsorted(epochs["epoch"], epochs["epoch"], "right")
    return bool((epochs["end"] >= np.append(starts, np.iinfo(np.int64).max)[later]).any())
