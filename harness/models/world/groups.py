"""The answers of a group coordinator from the log that it has loaded, compared with the right answers.

A broker that becomes the leader of a partition of ``__consumer_offsets`` reads its own replica from the log start to
the log end, without a ``.txnindex``, and then coordinates the groups of that partition (`Offsets.apply`).

Source, old coordinator (3.9): ``GroupMetadataManager.doLoadGroupsAndOffsets``, ``getOffsets``, ``GroupMetadata``. New
coordinator: ``CoordinatorLoaderImpl``, ``GroupCoordinatorShard.replay``, ``OffsetMetadataManager``.

A key of the model stands for a group and a partition. The offset that a record commits is the record's own offset in
the log, so a later commit has a higher offset. Not modelled: members of groups, and generations.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from harness.broker_files.segments.records import COMMIT
from harness.models.log.batch import ModelBatch
from harness.models.log.invariants import ModelTruth
from harness.models.log.replica import Replica

OLD, NEW = "old", "new"
"""The group coordinators: of 3.9 by default, and of 4.0 on."""
DROPS_PENDING: Final = {OLD: False, NEW: True}
"""By coordinator: see `Offsets.apply`."""

FROZEN: Final = "group-frozen"
"""An offset is pending although its transaction has ended: a consumer that asks for stable offsets gets no record."""
SKIPS: Final = "group-skips"
"""The group continues at a higher offset than it should."""
BEGINS_AT_ABORTED: Final = "group-begins-at-aborted"
"""The group has no offset, and begins at an aborted offset instead of the offset of ``auto.offset.reset``."""
REPEATS: Final = "group-repeats"
"""The group continues at a lower offset than it should."""
DELETED_BACK: Final = "deleted-offset-back"
"""An offset that was deleted, by its group's deletion or expiry, exists again."""
LOST: Final = "offset-lost"
"""The group has no offset although one is committed: it continues at the offset of ``auto.offset.reset``."""
PENDING_UNSEEN: Final = "pending-offset-unseen"
"""An offset is answered as stable although a transaction that commits another offset is open."""
AT_RELOAD: Final = "-at-reload"
"""Follows a name: it is due to the old coordinator alone. Loaded with `DROPS_PENDING`, the same log would be right."""


class Commit(NamedTuple):
    """A record of the log; ``producer``: of the transaction that it is part of, None for a plain record."""

    offset: int
    key: str
    deletes: bool
    producer: int | None


class TransactionEnd(NamedTuple):
    """A marker."""

    producer: int
    outcome: str


class Answer(NamedTuple):
    """An answer of OffsetFetch. ``offset``: None without a committed offset.

    ``is_pending``: the answer with ``require_stable`` is UNSTABLE_OFFSET_COMMIT.
    """

    offset: int | None = None
    is_pending: bool = False


@dataclass(slots=True)
class Offsets:
    """A coordinator's committed offsets by key, and its pending offsets by producer and key."""

    committed: dict[str, int] = field(default_factory=dict)
    pending: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))

    def answer(self, key: str) -> Answer:
        """Return the answer about a key."""
        return Answer(self.committed.get(key), any(key in offsets for offsets in self.pending.values()))

    def may_delete(self, key: str, *, drops_pending: bool) -> bool:
        """Return whether the deletion of an offset writes a tombstone, in the new coordinator also if it is pending.

        Source: ``OffsetMetadataManager.deleteOffsets``, ``GroupMetadata.removeOffsets``.
        """
        answer = self.answer(key)
        return answer.offset is not None or (drops_pending and answer.is_pending)

    def apply(self, entry: Commit | TransactionEnd, *, drops_pending: bool) -> None:
        """Apply one entry of the log: a commit in a transaction is pending until its producer's next marker.

        A COMMIT replaces the offset, unless a later record has. ``drops_pending``: a tombstone drops pending offsets,
        too. The old coordinator does so only in the broker that deletes the offset, and not where the log is loaded.
        """
        if isinstance(entry, TransactionEnd):
            ended = self.pending.pop(entry.producer, {})
            if entry.outcome == COMMIT:
                self.committed.update({key: at for key, at in ended.items() if at > self.committed.get(key, -1)})
        elif entry.deletes:
            self.committed.pop(entry.key, None)
            for offsets in self.pending.values() if drops_pending else ():
                offsets.pop(entry.key, None)
        elif entry.producer is None:
            self.committed[entry.key] = entry.offset
        else:
            self.pending[entry.producer][entry.key] = entry.offset


def entries_of(batch: ModelBatch) -> Iterator[Commit | TransactionEnd]:
    """Yield the entries that a coordinator reads from a batch: none from an empty batch of any kind."""
    if batch.marker is not None:
        yield TransactionEnd(batch.producer_id, batch.marker)
    elif not batch.control:
        producer = batch.producer_id if batch.transactional else None
        for record in batch.records:
            yield Commit(record.offset, (record.key or b"").decode(), record.value is None, producer)


def load(replica: Replica, *, drops_pending: bool) -> Offsets:
    """Return the offsets of a broker that has just loaded its replica. ``drops_pending``: see `Offsets.apply`."""
    return _replayed((entry for batch in replica.batches() for entry in entries_of(batch)), drops_pending=drops_pending)


def intended(truth: ModelTruth) -> Offsets:
    """Return the offsets of a coordinator that never had to load a log; a transaction stands for its producer."""
    entries: dict[int, Commit | TransactionEnd] = {
        txn.marker_offset: TransactionEnd(number, txn.outcome)
        for number, txn in enumerate(truth.txns)
        if txn.outcome is not None and txn.marker_offset is not None
    }
    entries |= {record.offset: Commit(record.offset, record.key, record.deletes, record.txn) for record in truth.wrote}
    return _replayed((entry for _, entry in sorted(entries.items())), drops_pending=True)


def _replayed(entries: Iterable[Commit | TransactionEnd], *, drops_pending: bool) -> Offsets:
    offsets = Offsets()
    for entry in entries:
        offsets.apply(entry, drops_pending=drops_pending)
    return offsets


def consequences(replica: Replica, truth: ModelTruth, *, drops_pending: bool) -> Iterator[str]:
    """Yield the consequences for groups if the broker of this replica, which has caught up, coordinates them.

    ``drops_pending``: see `Offsets.apply`. Offsets of an open transaction are not judged before it ends.
    """
    here, right = load(replica, drops_pending=drops_pending), intended(truth)
    of_new = here if drops_pending else load(replica, drops_pending=True)
    for key in {record.key for record in truth.wrote}:
        for name in _consequences(key, here, right, truth):
            yield name + AT_RELOAD * (of_new.answer(key) == right.answer(key))


def _consequences(key: str, here: Offsets, right: Offsets, truth: ModelTruth) -> Iterator[str]:
    outcomes = {record.offset: truth.outcome(record) for record in truth.wrote if record.key == key}
    answer, expected = here.answer(key), right.answer(key)
    if None in outcomes.values():
        if expected.is_pending and not answer.is_pending:
            yield PENDING_UNSEEN
        return
    if answer.is_pending:
        yield FROZEN
    if answer.offset == expected.offset:
        return
    if answer.offset is None:
        yield LOST
    elif expected.offset is None:
        yield DELETED_BACK if outcomes[answer.offset] == COMMIT else BEGINS_AT_ABORTED
    else:
        yield SKIPS if answer.offset > expected.offset else REPEATS
