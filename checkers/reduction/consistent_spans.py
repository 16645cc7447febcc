"""Decides whether packed spans of a partition's replicas are consistent, and which of them matter beyond their chunk.

Spans are consistent if every log ends each transaction with the first marker that any replica shows after it, in the
log or in a ``.txnindex``, if an aborted transaction has an index entry and a committed transaction has none, if the
index entries of replicas agree, if no producer continues in a higher epoch before a marker, and if every producer with
an open transaction in the newest snapshot continues in the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from checkers.reduction.candidate_keys import NOT_COMMITTED, beliefs_by_file
from checkers.reduction.packed_spans import ABORTS, CHUNK_OFFSETS, COMMITS, DATA, EMPTIED, INDEX, OPEN, OTHER
from checkers.reduction.segments import differs_from_previous

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]
    Longs = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

NOWHERE: Final = -1


def next_marked(groups: Longs, marks: Flags) -> Longs:
    """Return for each row the index of its group's next marked row, itself included, else -1."""
    nowhere = len(groups)
    places = np.where(marks, np.arange(nowhere), nowhere)
    following = np.minimum.accumulate(places[::-1])[::-1]
    is_same = np.append(groups, np.int64(-2))[following] == groups
    return np.where(is_same, following, NOWHERE)


def first_after(producers: Longs, places: Longs, marks: tuple[Longs, Longs]) -> Longs:
    """Return for each of ``places`` the offset of its producer's first marker after it, else -1."""
    count = len(producers)
    owners, at = np.concatenate([producers, marks[0]]), np.concatenate([places, marks[1]])
    is_mark = np.arange(len(owners)) >= count
    order = np.lexsort((at, owners))
    first_mark = np.empty(len(owners), np.int64)
    first_mark[order] = np.append(at[order], NOWHERE)[next_marked(owners[order], is_mark[order])]
    return first_mark[:count]


@dataclass(frozen=True)
class SortedSpans:
    """Spans by broker, producer and offset. ``groups``: a number for each producer of each broker, in this order."""

    spans: Array
    groups: Longs

    @classmethod
    def of(cls, spans: Array) -> SortedSpans:
        """Sort spans (`packed_spans.SPAN`)."""
        order = np.lexsort((spans["kind"], spans["at"], spans["producer"], spans["broker"]))
        ordered = spans[order]
        return cls(ordered, np.cumsum(differs_from_previous(ordered["broker"], ordered["producer"])))

    @cached_property
    def is_data(self) -> Flags:
        """Transactional data."""
        return self._is(DATA)

    @cached_property
    def is_marker(self) -> Flags:
        """Markers."""
        return self._is(COMMITS, ABORTS)

    @cached_property
    def is_index(self) -> Flags:
        """Entries of a ``.txnindex``."""
        return self._is(INDEX)

    def _is(self, *kinds: int) -> Flags:
        is_kind: Flags = np.isin(self.spans["kind"], kinds)
        return is_kind

    @cached_property
    def decider(self) -> Longs:
        """The index of the next marker of the producer in the same log, else -1."""
        return next_marked(self.groups, self.is_marker)

    @cached_property
    def decided_at(self) -> Longs:
        """The offset of that marker, else -1."""
        offsets: Longs = np.append(self.spans["at"], NOWHERE)[self.decider]
        return offsets

    @cached_property
    def is_undecided(self) -> Flags:
        """Data without a later marker in the same log."""
        undecided: Flags = self.is_data & (self.decider == NOWHERE)
        return undecided

    @cached_property
    def _is_unanswered(self) -> Flags:
        """Open transactions of a snapshot whose producer does not continue in the log."""
        unanswered: Flags = self._is(OPEN) & (next_marked(self.groups, self.is_data | self.is_marker) == NOWHERE)
        return unanswered

    @property
    def has_open(self) -> bool:
        """True if a transaction is open at the end of these spans."""
        return bool((self.is_undecided | self._is_unanswered).any())

    @property
    def contradicting(self) -> Longs:
        """The producers whose logs or index entries contradict each other; more spans cannot change that."""
        producers = self._overtaken, self._with_other_entries, self._with_earlier_marker, self._with_wrong_index
        return np.unique(np.concatenate(producers))

    @property
    def _overtaken(self) -> Longs:
        """Producers with data that are followed by data of a higher producer epoch before a marker."""
        rows = np.flatnonzero(self.is_data | self.is_marker)
        is_data, groups, epochs = self.is_data[rows], self.groups[rows], self.spans["epoch"][rows]
        follows = is_data[:-1] & is_data[1:] & (groups[:-1] == groups[1:])
        return self._producers(rows[:-1][follows & (epochs[1:] > epochs[:-1])])

    @property
    def _with_other_entries(self) -> Longs:
        """Producers of whose aborted transaction replicas have different ranges (see `txnindex_disagreement`)."""
        rows = np.flatnonzero(self.is_index)
        entries = self.spans[rows]
        order = np.lexsort((entries["since"], entries["at"], entries["producer"]))
        entries = entries[order]
        same = ~differs_from_previous(entries["producer"], entries["at"])
        return self._producers(rows[order[same & differs_from_previous(entries["since"])]])

    @property
    def _with_earlier_marker(self) -> Longs:
        """Producers of which any replica shows an earlier marker after data, or inside the range of an index entry."""
        marks, entries = self.spans[self.is_marker | self.is_index], self.spans[self.is_index]
        data = self.spans[self.is_data]
        producers = np.concatenate([data["producer"], entries["producer"]])
        first = first_after(producers, np.concatenate([data["at"], entries["since"]]), (marks["producer"], marks["at"]))
        earlier: Longs = producers[first != np.concatenate([self.decided_at[self.is_data], entries["at"]])]
        return earlier

    @property
    def _with_wrong_index(self) -> Longs:
        """Producers with an aborted transaction that no index entry covers, or a committed one that has an entry."""
        rows = np.flatnonzero(self.is_data & (self.decider != NOWHERE))
        deciders = self.decider[rows]
        # The entry of a marker follows the marker.
        entries = np.minimum(deciders + 1, len(self.spans) - 1)
        has_entry = self.is_index[entries] & (self.groups[entries] == self.groups[rows])
        has_entry &= self.spans["at"][entries] == self.spans["at"][deciders]
        has_entry &= self.spans["since"][entries] <= self.spans["at"][rows]
        return self._producers(rows[has_entry == (self.spans["kind"][deciders] == COMMITS)])

    def _producers(self, rows: Longs) -> Longs:
        producers: Longs = self.spans["producer"][rows]
        return producers

    @cached_property
    def is_aborted(self) -> Flags:
        """Rows whose next marker of the producer in the same log is an ABORT."""
        aborted: Flags = (self.decider != NOWHERE) & (self.spans["kind"][self.decider] == ABORTS)
        return aborted

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
        keep[first] = keep[last] = True
        is_first = np.zeros(len(keep) + 1, np.bool_)
        is_first[first] = True
        keep |= self.is_data & is_first[self.decider]
        after_open = self.decider[self._is(OPEN)]
        keep[after_open[after_open != NOWHERE]] = True
        return (keep & (self.is_data | self.is_marker)) | self._is(EMPTIED, OTHER)

    def beyond_chunk(self) -> Array:
        """Return the spans that matter together with other chunks; `contradicting` of them is sound.

        Of each log and producer: the first span, the first and the last marker and index entry, undecided data (of each
        file and epoch the first), index entries that begin in an earlier chunk, and unanswered transactions.
        """
        keep = self._is_unanswered.copy()
        logs, markers, entries = map(np.flatnonzero, (self.is_data | self.is_marker, self.is_marker, self.is_index))
        keep[self._ends(logs)[0]] = True
        for rows in (markers, entries):
            first, last = self._ends(rows)
            keep[first] = keep[last] = True
        undecided = np.flatnonzero(self.is_undecided)
        columns = self.groups, self.spans["segment"], self.spans["epoch"]
        keep[undecided[differs_from_previous(*(column[undecided] for column in columns))]] = True
        at, since = self.spans["at"], self.spans["since"]
        keep |= self.is_index & (since // CHUNK_OFFSETS < at // CHUNK_OFFSETS)
        # The entry of a marker stays with the marker.
        keep[1:] |= keep[:-1] & self.is_marker[:-1] & self.is_index[1:] & (at[1:] == at[:-1])
        return self.spans[keep]
