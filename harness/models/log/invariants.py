"""Invariants of a replica of a model: the checkers' names of their violations, from its beliefs and the truth alone."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from harness.broker_files.segments.records import ABORT, COMMIT
from harness.models.log.replica import Replica
from harness.schedules.catalog import Anomaly

LOST_VALUE: Final = "lost-value"
"""The last committed value of a key is missing, and no transaction hides it: an aborted delete was carried out."""


class Wrote(NamedTuple):
    """A record that was written; ``txn``: the number of its transaction, None for a plain record."""

    offset: int
    key: str
    deletes: bool
    txn: int | None = None


class Txn(NamedTuple):
    """A transaction: its outcome, and the offset of its marker; None while it is open."""

    outcome: str | None = None
    marker_offset: int | None = None


@dataclass(frozen=True, slots=True)
class ModelTruth:
    """All written records, in order, and how each transaction of the one transactional producer ended."""

    wrote: tuple[Wrote, ...] = ()
    txns: tuple[Txn, ...] = ()

    @property
    def open_txn(self) -> int | None:
        """Number of the open transaction."""
        return len(self.txns) - 1 if self.txns and self.txns[-1].outcome is None else None

    @property
    def log_end(self) -> int:
        """The next offset: each record and each marker has an offset."""
        return len(self.wrote) + sum(txn.outcome is not None for txn in self.txns)

    def with_record(self, record: Wrote, *, in_txn: bool) -> "ModelTruth":
        """Return the truth with one more record, which begins a transaction if none is open."""
        if not in_txn:
            return replace(self, wrote=(*self.wrote, record))
        txns = self.txns if self.open_txn is not None else (*self.txns, Txn())
        return replace(self, wrote=(*self.wrote, record._replace(txn=len(txns) - 1)), txns=txns)

    def ended(self, outcome: str, marker_offset: int) -> "ModelTruth":
        """Return the truth with the open transaction ended."""
        return replace(self, txns=(*self.txns[:-1], Txn(outcome, marker_offset)))

    def last(self, key: str) -> Wrote | None:
        """Return the last record of a key that is not aborted; None where there is none, or its transaction is open."""
        records = (it for it in reversed(self.wrote) if it.key == key and self.outcome(it) != ABORT)
        last = next(records, None)
        return last if last is not None and self.outcome(last) == COMMIT else None

    def outcome(self, record: Wrote) -> str | None:
        """Return the outcome of a record; None while its transaction is open."""
        return COMMIT if record.txn is None else self.txns[record.txn].outcome


def violations(replica: Replica, truth: ModelTruth) -> Iterator[str]:
    """Yield the violations of a replica that has caught up; keys of misjudged or open transactions have no others.

    The replica's belief about a transaction is the outcome of its producer's next marker in this log.
    """
    unsure = {record.key for record in truth.wrote if truth.outcome(record) is None}
    believed: dict[str, Wrote] = {}
    for record, outcome, is_present in _beliefs(replica, truth):
        name = _misjudged(truth, record, outcome, replica.log_end)
        if name is not None and (is_present or name == Anomaly.STUCK_LSO):
            unsure.add(record.key)
            yield name
        elif outcome == COMMIT and is_present:
            believed[record.key] = max(record, believed.get(record.key, record))
    for key in {record.key for record in truth.wrote} - unsure:
        here, final = believed.get(key), truth.last(key)
        if final is not None and final.deletes and here is not None and not here.deletes:
            yield Anomaly.TOMBSTONE_DIVERGENCE
        elif final is not None and not final.deletes and here != final:
            yield LOST_VALUE


def _misjudged(truth: ModelTruth, record: Wrote, believed: str | None, log_end: int) -> str | None:
    if record.txn is None or believed == truth.outcome(record):
        return None
    marker_offset = truth.txns[record.txn].marker_offset
    if believed is None:
        return Anomaly.STUCK_LSO if marker_offset is not None and marker_offset < log_end else None
    return Anomaly.ABORTED_TO_COMMITTED if believed == COMMIT else Anomaly.COMMITTED_TO_ABORTED


def _beliefs(replica: Replica, truth: ModelTruth) -> Iterator[tuple[Wrote, str | None, bool]]:
    """Yield each record, its believed outcome, and whether it is present; also of emptied transactional batches."""
    by_offset = {record.offset: record for record in truth.wrote}
    running: dict[int, list[tuple[Wrote, bool]]] = {}
    for batch in replica.batches():
        if batch.marker is not None:
            yield from ((record, batch.marker, present) for record, present in running.pop(batch.producer_id, []))
        elif not batch.control:
            record, is_present = by_offset[batch.base_offset], bool(batch.records)
            if batch.transactional:
                running.setdefault(batch.producer_id, []).append((record, is_present))
            else:
                yield record, COMMIT, is_present
    yield from ((record, None, present) for records in running.values() for record, present in records)
