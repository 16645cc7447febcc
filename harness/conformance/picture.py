"""One replica's content and its broker's state of it, in terms that a model and a real broker share."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harness.brokers.segments.tombstones import BY_NULL, is_tombstone
from models.cleaner import first_dirty
from models.delivery import listed_aborts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from models.batch import Batch
    from models.replica import Producer, Replica

NO_PRODUCER: Final = ""
DATA, EMPTIED = "data", "emptied"
"""Kinds of batches in addition to COMMIT and ABORT: data, with or without records, and an emptied marker."""

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

    A producer without an epoch, of which the broker has seen only an emptied marker, has no time either: it expires at
    the next check, and so may be there or not. It is left out.
    """

    producer: str
    epoch: int
    last_sequence: int
    open_from: int | None


class Entry(NamedTuple):
    """One entry of a segment's ``.txnindex``."""

    segment: int
    producer: str
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True)
class Picture:
    """One replica after a step; every field is compared, except ``horizons_ms``.

    ``listed_aborts``: producer and first offset of the aborted transactions that a read_committed consumer receives
    when it reads this replica from its start. ``cleaned_to``: the cleaner's checkpoint. ``epochs``: leader epoch and
    first offset. ``snapshots``: the states of producers at the start of each segment but the first.
    """

    batches: tuple[StoredBatch, ...]
    segments: tuple[int, ...]
    log_start: int
    high_watermark: int
    last_stable_offset: int
    producers: tuple[ProducerState, ...]
    listed_aborts: tuple[tuple[str, int], ...]
    txnindex: tuple[Entry, ...]
    cleaned_to: int | None
    epochs: tuple[tuple[int, int], ...]
    snapshots: tuple[tuple[int, tuple[ProducerState, ...]], ...]
    horizons_ms: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """Base offset of each batch that has a delete horizon, and the horizon."""


def of_replica(replica: Replica, named: Named) -> Picture:
    """Return the picture of a model's replica."""
    return Picture(
        batches=tuple(_stored_batch(batch, named) for batch in replica.batches()),
        segments=tuple(segment.base_offset for segment in replica.segments),
        log_start=replica.log_start,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        producers=_producer_states(replica.producers, named),
        listed_aborts=tuple(sorted((named[producer_id], first) for producer_id, first in listed_aborts(replica))),
        txnindex=tuple(
            Entry(
                segment.base_offset, named[one.producer_id], one.first_offset, one.last_offset, one.last_stable_offset
            )
            for segment in replica.segments
            for one in segment.aborted
        ),
        cleaned_to=None if replica.cleaned_to is None else first_dirty(replica),
        epochs=tuple(sorted(replica.epochs.items())),
        snapshots=tuple(
            (segment.base_offset, _producer_states(replica.snapshots[segment.base_offset], named))
            for segment in replica.segments[1:]
            if segment.base_offset in replica.snapshots
        ),
        horizons_ms=tuple(
            (batch.base_offset, batch.delete_horizon_ms)
            for batch in replica.batches()
            if batch.delete_horizon_ms is not None
        ),
    )


def _producer_states(producers: Mapping[int, Producer], named: Named) -> tuple[ProducerState, ...]:
    return tuple(
        sorted(
            ProducerState(named[producer_id], one.epoch, one.last_sequence, one.open_from)
            for producer_id, one in producers.items()
            if one.epoch >= 0
        )
    )


def _stored_batch(batch: Batch, named: Named) -> StoredBatch:
    kind = (batch.marker or EMPTIED) if batch.control else DATA
    return StoredBatch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        kind=kind,
        records=()
        if batch.control
        else tuple(record_text(one.offset, one.key, is_deleted=is_tombstone(one, BY_NULL)) for one in batch.records),
        leader_epoch=batch.leader_epoch,
        producer=name_of(batch.producer_id, named),
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.transactional,
        has_horizon=batch.delete_horizon_ms is not None,
    )


def record_text(offset: int, key: bytes | None, *, is_deleted: bool) -> str:
    """Return a record in the form of pictures."""
    return f"{offset}:{'-' * is_deleted}{(key or b'').decode()}"


def name_of(producer_id: int, named: Named) -> str:
    """Return a producer's name; an unknown producer is named by its id."""
    return NO_PRODUCER if producer_id < 0 else named.get(producer_id, f"producer {producer_id}")


def differences(expected: Picture, actual: Picture) -> list[str]:
    """Describe the differences, field by field: the model's value, and the broker's."""
    return [
        f"{one.name}: the model has {_value_text(model)}, the broker {_value_text(broker)}"
        for one in fields(Picture)
        if one.compare
        for model, broker in [_less_common(getattr(expected, one.name), getattr(actual, one.name))]
        if model != broker
    ]


def _less_common(here: Any, there: Any) -> tuple[Any, Any]:
    """Remove common items from two lists."""
    if not isinstance(here, tuple) or not isinstance(there, tuple):
        return here, there
    missing = tuple(one for one in here if one not in there), tuple(one for one in there if one not in here)
    return missing if any(missing) else (here, there)


def _value_text(value: Any) -> str:
    return ", ".join(map(str, value)) or "nothing" if isinstance(value, tuple) else str(value)


def shown(picture: Picture) -> list[str]:
    """Return a picture as lines of text."""
    batches = [f"  {batch_text(one)}" for one in picture.batches]
    rest = [
        f"  {one.name.replace('_', ' ')}: {_value_text(getattr(picture, one.name))}"
        for one in fields(Picture)
        if one.compare and one.name != "batches"
    ]
    return batches + rest


def batch_text(one: StoredBatch) -> str:
    """Return one batch as a line of text."""
    parts: list[tuple[bool, Callable[[], str]]] = [
        (True, lambda: f"{one.base_offset}-{one.last_offset} {one.kind}"),
        (bool(one.records), lambda: " ".join(one.records)),
        (bool(one.producer), lambda: f"by {one.producer} epoch {one.producer_epoch} sequence {one.base_sequence}"),
        (one.transactional, lambda: "transactional"),
        (one.has_horizon, lambda: "ages"),
        (True, lambda: f"leader epoch {one.leader_epoch}"),
    ]
    return ", ".join(text() for is_there, text in parts if is_there)
