"""Invariants of a replica of a model: the names of their violations, from the replica's own beliefs and the truth.

The names are those of the checkers, but they are found in another way: from the state, without files, snapshots or
history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.broker_files.segments.records import ABORT, COMMIT
from harness.schedules.catalog import Anomaly

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.models.log.replica import Replica

LOST_VALUE: Final = "lost-value"
"""The last committed value of a key is missing, and no transaction hides it.

An aborted delete that is carried out leads to this: in 14 steps with two keys, a plain write and two transactions.
"""


class Wrote(NamedTuple):
    """A record that was written; ``txn`` is the number of its transaction, None for none.

    ``producer_id``: of a transactional record, where there are several producers.
    """

    offset: int
    key: str
    deletes: bool
    txn: int | None = None
    producer_id: int | None = None


class Txn(NamedTuple):
    """A transaction: its outcome, and the offset of its marker; None while it is open."""

    outcome: str | None = None
    marker_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Truth:
    """All written records, in order, and how each transaction of the one transactional producer ended."""

    wrote: tuple[Wrote, ...] = ()
    txns: tuple[Txn, ...] = ()

    @property
    def open_txn(self) -> int | None:
        """Number of the open transaction."""
        return len(self.txns) - 1 if self.txns and self.txns[-1].outcome is None else None

    @property
    def log_end(self) -> int:
        """The next offset: each record and each marker has one."""
        return len(self.wrote) + sum(txn.outcome is not None for txn in self.txns)

    def with_record(self, record: Wrote, *, in_txn: bool) -> Truth:
        """Return the truth with one more record, which begins a transaction if none is open."""
        if not in_txn:
            return replace(self, wrote=(*self.wrote, record))
        txns = self.txns if self.open_txn is not None else (*self.txns, Txn())
        return replace(self, wrote=(*self.wrote, record._replace(txn=len(txns) - 1)), txns=txns)

    def ended(self, outcome: str, marker_offset: int) -> Truth:
        """Return the truth with the open transaction ended."""
        return replace(self, txns=(*self.txns[:-1], Txn(outcome, marker_offset)))

    def final(self, key: str) -> Wrote | None:
        """Return the last committed record of a key; None where there is none."""
        return next((one for one in reversed(self.wrote) if one.key == key and self.outcome(one) == COMMIT), None)

    def last(self, key: str) -> Wrote | None:
        """Return the last record of a key that is not aborted; None where there is none, or its transaction is open."""
        one = next((one for one in reversed(self.wrote) if one.key == key and self.outcome(one) != ABORT), None)
        return one if one is not None and self.outcome(one) == COMMIT else None

    def outcome(self, record: Wrote) -> str | None:
        """Return the outcome of a record; None while its transaction is open."""
        return COMMIT if record.txn is None else self.txns[record.txn].outcome


def violations(replica: Replica, truth: Truth) -> Iterator[str]:
    """Yield the violations of a replica that has caught up.

    The replica's belief about a transaction is the outcome of its producer's next marker in this log. Keys that a
    misjudged or open transaction wrote are not judged further.
    """
    unsure = {one.key for one in truth.wrote if truth.outcome(one) is None}
    believed: dict[str, Wrote] = {}
    for one, outcome, is_held in _beliefs(replica, truth):
        name = _misjudged(truth, one, outcome, replica.log_end)
        if name is not None and (is_held or name == Anomaly.STUCK_LSO):
            unsure.add(one.key)
            yield name
        elif outcome == COMMIT and is_held:
            believed[one.key] = max(one, believed.get(one.key, one))
    for key in {one.key for one in truth.wrote} - unsure:
        here, final = believed.get(key), truth.final(key)
        if final is not None and final.deletes and here is not None and not here.deletes:
            yield Anomaly.TOMBSTONE_DIVERGENCE
        elif final is not None and not final.deletes and here != final:
            yield LOST_VALUE


def wrong_final_states(replica: Replica, truth: Truth) -> Iterator[str]:
    """Yield the violations in the final states of keys of a replica that has caught up, also for misjudged keys.

    `violations` does not judge keys that a misjudged or open transaction wrote, too. This function reports such a key
    if its last committed record is missing, and the record that is served in its place is not a misjudged one.
    """
    present: set[int] = set()
    believed: dict[str, Wrote] = {}
    for one, outcome, is_held in _beliefs(replica, truth):
        if is_held:
            present.add(one.offset)
            if outcome == COMMIT:
                believed[one.key] = max(one, believed.get(one.key, one))
    for key in {one.key for one in truth.wrote}:
        final, here = truth.last(key), believed.get(key)
        is_served = here is not None and not here.deletes
        if final is None or final.offset in present or (here is not None and truth.outcome(here) != COMMIT):
            continue
        if is_served and final.deletes:
            yield Anomaly.TOMBSTONE_DIVERGENCE
        elif not final.deletes:
            yield LOST_VALUE


def hidden_by_txnindex(replica: Replica, truth: Truth) -> Iterator[str]:
    """Yield a violation for each committed record inside an aborted transaction of the replica's ``.txnindex``.

    Only records that the replica received count. It may have compacted them away as aborted: then nothing else shows
    that belief.
    """
    for segment in replica.segments:
        for entry in segment.aborted:
            for one in truth.wrote:
                is_inside = entry.first_offset <= one.offset <= entry.last_offset and one.offset in replica.received
                if is_inside and one.producer_id == entry.producer_id and truth.outcome(one) == COMMIT:
                    yield Anomaly.COMMITTED_TO_ABORTED


def _misjudged(truth: Truth, one: Wrote, believed: str | None, log_end: int) -> str | None:
    if one.txn is None or believed == truth.outcome(one):
        return None
    marker_offset = truth.txns[one.txn].marker_offset
    if believed is None:
        return Anomaly.STUCK_LSO if marker_offset is not None and marker_offset < log_end else None
    return Anomaly.ABORTED_TO_COMMITTED if believed == COMMIT else Anomaly.COMMITTED_TO_ABORTED


def _beliefs(replica: Replica, truth: Truth) -> Iterator[tuple[Wrote, str | None, bool]]:
    """Yield each record, its believed outcome, and whether it is held; also those of emptied transactional batches."""
    by_offset = {one.offset: one for one in truth.wrote}
    running: dict[int, list[tuple[Wrote, bool]]] = {}
    for batch in replica.batches():
        if batch.marker is not None:
            yield from ((one, batch.marker, is_held) for one, is_held in running.pop(batch.producer_id, []))
        elif not batch.control:
            one, is_held = by_offset[batch.base_offset], bool(batch.records)
            if batch.transactional:
                running.setdefault(batch.producer_id, []).append((one, is_held))
            else:
                yield one, COMMIT, is_held
    yield from ((one, None, is_held) for records in running.values() for one, is_held in records)
