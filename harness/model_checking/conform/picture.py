"""The content of one replica and its broker's state of the replica, in terms that a model and a real broker share."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harness.broker_files.internal_topics.decode import decode_offset_key
from harness.broker_files.segments import batches as segments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.broker_files.side_files.producer_state import AbortedTxn
    from harness.models.log.batch import Batch

NO_PRODUCER: Final = ""
NO_SEQUENCE: Final = -1
"""The sequence number of a batch without a producer; coordinators write 0, and nobody reads it."""
DATA, EMPTIED = "data", "emptied"
"""Kinds of batches in addition to COMMIT and ABORT: data, with or without records, and an emptied marker."""

NO_OFFSET, UNSTABLE = "none", "unstable"
"""Answers of OffsetFetch without an offset: none is committed, or UNSTABLE_OFFSET_COMMIT."""

Named = dict[int, str]
"""Producers' names by their ids, which each cluster assigns."""


class StoredBatch(NamedTuple):
    """One batch. ``records``: offset and key of each, a tombstone's with a minus."""

    base_offset: int
    last_offset: int
    kind: str
    records: tuple[str, ...]
    leader_epoch: int
    producer: str
    producer_epoch: int
    base_sequence: int
    transactional: bool
    has_horizon: bool


class ProducerState(NamedTuple):
    """A broker's state of a producer (DescribeProducers); ``open_from``: None without an open transaction.

    Producers without an epoch, of which the broker has read only an emptied marker, are left out: they have no time
    either, expire at the next check, and so may exist or not.
    """

    producer: str
    epoch: int
    last_sequence: int
    open_from: int | None


class TxnIndexEntry(NamedTuple):
    """One entry of a segment's ``.txnindex``."""

    segment: int
    producer: str
    first_offset: int
    last_offset: int
    last_stable_offset: int


class FetchedOffset(NamedTuple):
    """A coordinator's answers about a group's key: with ``require_stable``, and without."""

    key: str
    stable: str
    any: str


@dataclass(frozen=True)
class ReplicaPicture:
    """One replica after a step; every field is compared, except ``horizons_ms``.

    ``listed_aborts``: producer and first offset of the aborted transactions that a read_committed consumer receives
    when it reads this replica from its start. ``cleaned_to``: the cleaner's checkpoint. ``epochs``: leader epoch and
    first offset. ``snapshots``: the states of producers at the start of each segment but the first. ``offsets``: of the
    schedule's group, where this broker coordinates it.
    """

    batches: tuple[StoredBatch, ...]
    segments: tuple[int, ...]
    log_start: int
    high_watermark: int
    last_stable_offset: int
    producers: tuple[ProducerState, ...]
    listed_aborts: tuple[tuple[str, int], ...]
    txnindex: tuple[TxnIndexEntry, ...]
    cleaned_to: int | None
    epochs: tuple[tuple[int, int], ...]
    snapshots: tuple[tuple[int, tuple[ProducerState, ...]], ...]
    offsets: tuple[FetchedOffset, ...] = ()
    horizons_ms: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """Base offset of each batch that has a delete horizon, and the horizon."""


def stored_batch(batch: segments.Batch, named: Named) -> StoredBatch:
    """Return one batch of a log."""
    control = segments.marker(batch, source="a segment")
    records = () if batch.is_control else segments.iter_records(batch, source="a segment")
    return StoredBatch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        kind=control.type if control else EMPTIED if batch.is_control else DATA,
        records=tuple(
            f"{record.offset}:{'-' * (record.value is None)}{_key_text(record.key or b'')}" for record in records
        ),
        leader_epoch=batch.leader_epoch,
        producer=name_of(batch.producer_id, named),
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence if batch.producer_id >= 0 else NO_SEQUENCE,
        transactional=batch.is_transactional,
        has_horizon=batch.delete_horizon_ms is not None,
    )


def _key_text(key: bytes) -> str:
    """Return a step's key; of a committed offset, it is the topic's name."""
    offset = decode_offset_key(key)
    return offset.topic if offset else key.decode()


def horizons_of(batches: Iterable[Batch | segments.Batch]) -> tuple[tuple[int, int], ...]:
    """Return base offset and delete horizon of each batch that has one."""
    return tuple(
        (batch.base_offset, batch.delete_horizon_ms) for batch in batches if batch.delete_horizon_ms is not None
    )


def states_of(producers: Iterable[tuple[int, int, int, int | None]], named: Named) -> tuple[ProducerState, ...]:
    """Return the states of producers, given as id, epoch, last sequence number and first offset of a transaction."""
    return tuple(
        sorted(
            ProducerState(name_of(producer_id, named), epoch, last_sequence, open_from)
            for producer_id, epoch, last_sequence, open_from in producers
            if epoch >= 0
        )
    )


def entry_of(segment: int, aborted: AbortedTxn, named: Named) -> TxnIndexEntry:
    """Return an entry of a segment's ``.txnindex``."""
    name = name_of(aborted.producer_id, named)
    return TxnIndexEntry(segment, name, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset)


def aborts_of(listed: Iterable[tuple[int, int]], named: Named) -> tuple[tuple[str, int], ...]:
    """Return aborted transactions that a consumer receives, given as producer id and first offset."""
    return tuple(sorted({(name_of(producer_id, named), first) for producer_id, first in listed}))


def name_of(producer_id: int, named: Named) -> str:
    """Return a producer's name; an unknown producer is named by its id."""
    return NO_PRODUCER if producer_id < 0 else named.get(producer_id, f"producer {producer_id}")


def differences(expected: ReplicaPicture, actual: ReplicaPicture) -> list[str]:
    """Describe the differences, field by field: the model's value, and the broker's; common items are left out."""
    texts = []
    for name in _compared():
        model, broker = getattr(expected, name), getattr(actual, name)
        if model != broker and isinstance(model, tuple) and isinstance(broker, tuple):
            missing = [item for item in model if item not in broker], [item for item in broker if item not in model]
            model, broker = map(tuple, missing) if any(missing) else (model, broker)
        if model != broker:
            texts.append(f"{name}: the model has {_value_text(model)}, the broker {_value_text(broker)}")
    return texts


def _compared() -> list[str]:
    return [field.name for field in fields(ReplicaPicture) if field.compare]


def _value_text(value: Any) -> str:
    return ", ".join(map(str, value)) or "nothing" if isinstance(value, tuple) else str(value)


def shown(picture: ReplicaPicture) -> list[str]:
    """Return a picture as lines of text."""
    return [
        *(f"  {_batch_text(batch)}" for batch in picture.batches),
        *(f"  {name.replace('_', ' ')}: {_value_text(getattr(picture, name))}" for name in _compared()[1:]),
    ]


def _batch_text(batch: StoredBatch) -> str:
    parts = (
        f"{batch.base_offset}-{batch.last_offset} {batch.kind}",
        " ".join(batch.records),
        f"by {batch.producer} epoch {batch.producer_epoch} sequence {batch.base_sequence}" if batch.producer else "",
        "transactional" if batch.transactional else "",
        "ages" if batch.has_horizon else "",
        f"leader epoch {batch.leader_epoch}",
    )
    return ", ".join(filter(None, parts))
