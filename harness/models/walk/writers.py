"""The possible writes of the clients of a small cluster: one without transactions, and one with a transactional id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from harness.broker_files.segments.records import ABORT, COMMIT, Record, marker_record
from harness.models.log.batch import Batch
from harness.models.log.invariants import Truth, Wrote
from harness.models.log.kip87 import flagged
from harness.models.walk.systems import NOW_MS
from harness.models.world.groups import DROPS_PENDING, intended
from harness.models.world.members import SCRIPTS
from harness.schedules.operations.clients import End, Write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.models.walk.state_space import Bound
    from harness.schedules.operations.operation import Operation

PRODUCER_ID: Final = 7


class Clients(NamedTuple):
    """The truth that clients have written, and how many writes and transactions are left."""

    truth: Truth
    writes: int
    transactions: int
    epoch: int = 0


def may_write(clients: Clients, bound: Bound, *, in_order: bool = False) -> Iterator[tuple[Operation, Clients, Batch]]:
    """Yield each possible write: its operation, the clients after it, and the batch. A transaction has one record.

    ``in_order``: a key is written for the first time after the keys before it. No step depends on the name of a key, so
    any other order is the same under other names.
    """
    truth = clients.truth
    if bound.script:
        yield from _next_of_script(clients, bound.script)
        return
    if truth.open_txn is not None:
        for outcome in (COMMIT, ABORT):
            yield _ended(clients, outcome, bound)
    for key, deletes in _choices(truth, bound, in_order=in_order):
        if clients.writes:
            yield _put(clients, key, bound, deletes=deletes, in_txn=False)
        if clients.transactions and truth.open_txn is None and not (deletes and bound.coordinator):
            yield _put(clients, key, bound, deletes=deletes, in_txn=True)


def _next_of_script(clients: Clients, script: str) -> Iterator[tuple[Operation, Clients, Batch]]:
    """Yield what happens next to a group (`harness.models.world.members`): one batch of its coordinator."""
    if not clients.writes:
        return
    operation, keys = SCRIPTS[script][-clients.writes]
    truth, records = clients.truth, []
    for offset, word in enumerate(keys, truth.log_end):
        key, deletes = word.removeprefix("-"), word[0] == "-"
        truth = truth.with_record(Wrote(offset, key, deletes), in_txn=False)
        records.append(Record(offset, NOW_MS, key.encode(), None if deletes else b"v"))
    yield operation, clients._replace(truth=truth, writes=clients.writes - 1), _batch(*records)


def _choices(truth: Truth, bound: Bound, *, in_order: bool) -> Iterator[tuple[str, bool]]:
    written = len({wrote.key for wrote in truth.wrote})
    for key in bound.keys[: written + 1] if in_order else bound.keys:
        yield key, False
        if _may_delete(truth, key, bound.coordinator):
            yield key, True


def _may_delete(truth: Truth, key: str, coordinator: str) -> bool:
    """Whether a delete may be written: by a client after a write, by a coordinator only where it has an offset."""
    if coordinator:
        return intended(truth).may_delete(key, drops_pending=DROPS_PENDING[coordinator])
    return any(wrote.key == key for wrote in truth.wrote)


def _put(clients: Clients, key: str, bound: Bound, *, deletes: bool, in_txn: bool) -> tuple[Operation, Clients, Batch]:
    base = clients.truth.log_end
    after = clients._replace(
        truth=clients.truth.with_record(Wrote(base, key, deletes), in_txn=in_txn),
        writes=clients.writes - (not in_txn),
        transactions=clients.transactions - in_txn,
    )
    record = Record(base, NOW_MS, key.encode(), b"v")
    if deletes:
        record = flagged(record) if bound.by_flag else Record(base, NOW_MS, key.encode(), None)
    return (
        Write("t" if in_txn else "p", key, deletes),
        after,
        _batch(record, producer_epoch=clients.epoch if in_txn else None),
    )


def _ended(clients: Clients, outcome: str, bound: Bound) -> tuple[Operation, Clients, Batch]:
    base = clients.truth.log_end
    after = clients._replace(truth=clients.truth.ended(outcome, base), epoch=clients.epoch + bound.epoch_bump)
    return (
        End("t", outcome),
        after,
        _batch(marker_record(base, NOW_MS, outcome), producer_epoch=after.epoch, control=True),
    )


def _batch(*records: Record, producer_epoch: int | None = None, control: bool = False) -> Batch:
    """Return a batch; of the transactional producer if an epoch is given."""
    is_txn = producer_epoch is not None
    return Batch(
        base_offset=records[0].offset,
        last_offset=records[-1].offset,
        records=records,
        max_timestamp_ms=NOW_MS,
        producer_id=PRODUCER_ID if is_txn else -1,
        producer_epoch=-1 if producer_epoch is None else producer_epoch,
        base_sequence=0 if is_txn and not control else -1,
        transactional=is_txn,
        control=control,
    )
