"""What a group coordinator answers from the log that it has loaded, and how that differs from what it should answer.

A broker that becomes the leader of a partition of ``__consumer_offsets`` reads its own replica from the log start to
the log end, and coordinates the groups of that partition from then on:

* a plain commit replaces the offset of its partition, and a tombstone deletes it
* a commit in a transaction is pending until the next marker of its producer: a COMMIT replaces the offset, unless a
  later record has done so, and an ABORT drops it
* the new coordinator lets a tombstone drop pending offsets of its partition, too; the old one does so only in the
  broker that deletes the offset, and not where the log is loaded
* OffsetFetch with ``require_stable`` answers UNSTABLE_OFFSET_COMMIT for a partition with a pending offset

Source, old coordinator (3.9): ``GroupMetadataManager.doLoadGroupsAndOffsets``, ``getOffsets``, ``GroupMetadata``. New
coordinator: ``CoordinatorLoaderImpl``, ``GroupCoordinatorShard.replay``, ``OffsetMetadataManager``. Both read the log
up to its end, and use no ``.txnindex``.

A key of the model stands for a group and a partition. The offset that a record commits is the record's own offset in
the log, so a later commit has a higher offset, as of a consumer that goes on. Not modelled: members of groups, and
generations.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.broker_files.segments.records import COMMIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harness.models.log.batch import Batch
    from harness.models.log.invariants import Truth
    from harness.models.log.replica import Replica

OLD, NEW = "old", "new"
"""The group coordinators: of 3.9, unless it is told otherwise, and of 4.0 on."""
DROPS_PENDING: Final = {OLD: False, NEW: True}
"""Whether a tombstone drops the pending offsets of its key, too, where a coordinator loads its log."""

FROZEN: Final = "group-frozen"
"""An offset is pending although its transaction has ended: a consumer that asks for stable offsets gets no record."""
SKIPS: Final = "group-skips"
"""The group continues at a higher offset than it should."""
BEGINS_AT_ABORTED: Final = "group-begins-at-aborted"
"""The group has no offset, and begins at an aborted one instead of where ``auto.offset.reset`` has it."""
REPEATS: Final = "group-repeats"
"""The group continues at a lower offset than it should."""
DELETED_BACK: Final = "deleted-offset-back"
"""An offset that was deleted, by its group's deletion or expiry, is there again."""
LOST: Final = "offset-lost"
"""The group has no offset although one is committed: it continues where ``auto.offset.reset`` has it."""
PENDING_UNSEEN: Final = "pending-offset-unseen"
"""An offset is answered as stable although a transaction that commits another one is open."""
AT_RELOAD: Final = "-at-reload"
"""Follows a name: it is due to the old coordinator alone. Loaded with `DROPS_PENDING`, the same log would be right."""


class Commit(NamedTuple):
    """A record of the log; ``producer``: of the transaction that it is part of, None for a plain one."""

    offset: int
    key: str
    deletes: bool
    producer: int | None


class End(NamedTuple):
    """A marker."""

    producer: int
    outcome: str


class Answer(NamedTuple):
    """Of OffsetFetch about one key. ``offset``: None without a committed one. ``is_pending``: see `FROZEN`."""

    offset: int | None = None
    is_pending: bool = False


@dataclass(slots=True)
class Offsets:
    """What a coordinator keeps: committed offsets by key, and pending ones by producer and key."""

    committed: dict[str, int] = field(default_factory=dict)
    pending: dict[int, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))

    def answer(self, key: str) -> Answer:
        """Return the answer about a key."""
        return Answer(self.committed.get(key), any(key in offsets for offsets in self.pending.values()))

    def may_delete(self, key: str, *, drops_pending: bool) -> bool:
        """Whether the deletion of an offset writes a tombstone.

        The new coordinator writes one for a pending offset, too (``OffsetMetadataManager.deleteOffsets``). The old one
        drops a pending offset without a record, if no offset is committed (``GroupMetadata.removeOffsets``).
        """
        answer = self.answer(key)
        return answer.offset is not None or (drops_pending and answer.is_pending)

    def apply(self, entry: Commit | End, *, drops_pending: bool) -> None:
        """Go on by one entry of the log. ``drops_pending``: whether a tombstone drops pending offsets, too."""
        if isinstance(entry, End):
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


def entries_of(batch: Batch) -> Iterator[Commit | End]:
    """Yield what a coordinator reads from a batch: nothing from an empty one, whatever it was."""
    if batch.marker is not None:
        yield End(batch.producer_id, batch.marker)
    elif not batch.control:
        producer = batch.producer_id if batch.transactional else None
        for one in batch.records:
            yield Commit(one.offset, (one.key or b"").decode(), one.value is None, producer)


def load(replica: Replica, *, drops_pending: bool) -> Offsets:
    """Return what a broker keeps that has just loaded its replica. ``drops_pending``: see `Offsets.apply`."""
    entries = (entry for batch in replica.batches() for entry in entries_of(batch))
    return _replayed(entries, drops_pending=drops_pending)


def intended(truth: Truth) -> Offsets:
    """Return what a coordinator keeps that has written everything itself, and never had to load a log."""
    return _replayed(_written(truth), drops_pending=True)


def consequences(replica: Replica, truth: Truth, *, drops_pending: bool) -> Iterator[str]:
    """Yield the names of what goes wrong for groups if the broker of this replica coordinates them from now on.

    The replica has caught up. ``drops_pending``: see `Offsets.apply`. Offsets that an open transaction commits are not
    judged before it ends, as those in `harness.models.log.invariants`.
    """
    here, right = load(replica, drops_pending=drops_pending), intended(truth)
    of_new = here if drops_pending else load(replica, drops_pending=True)
    for key in {one.key for one in truth.wrote}:
        for name in _consequences(key, here, right, truth):
            yield name + AT_RELOAD * (of_new.answer(key) == right.answer(key))


def _consequences(key: str, here: Offsets, right: Offsets, truth: Truth) -> Iterator[str]:
    """Yield the names for one key."""
    outcomes = {one.offset: truth.outcome(one) for one in truth.wrote if one.key == key}
    answer, wanted = here.answer(key), right.answer(key)
    if None in outcomes.values():
        if wanted.is_pending and not answer.is_pending:
            yield PENDING_UNSEEN
        return
    if answer.is_pending:
        yield FROZEN
    if answer.offset == wanted.offset:
        return
    if answer.offset is None:
        yield LOST
    elif wanted.offset is None:
        yield DELETED_BACK if outcomes[answer.offset] == COMMIT else BEGINS_AT_ABORTED
    else:
        yield SKIPS if answer.offset > wanted.offset else REPEATS


def _written(truth: Truth) -> Iterator[Commit | End]:
    """Yield all that was ever written, in the order of the log; a transaction's number stands for its producer."""
    entries: list[tuple[int, Commit | End]] = [
        (one.offset, Commit(one.offset, one.key, one.deletes, one.txn)) for one in truth.wrote
    ]
    for number, txn in enumerate(truth.txns):
        if txn.outcome is not None and txn.marker_offset is not None:
            entries.append((txn.marker_offset, End(number, txn.outcome)))
    yield from (entry for _, entry in sorted(entries, key=lambda one: one[0]))


def _replayed(entries: Iterable[Commit | End], *, drops_pending: bool) -> Offsets:
    offsets = Offsets()
    for entry in entries:
        offsets.apply(entry, drops_pending=drops_pending)
    return offsets
