"""One replica's content and its broker's state of it, in terms that a model and a real broker share."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harness.broker_files.internal_topics.decode import decode_offset_key
from harness.broker_files.segments import batches as segments
from harness.models.log.batch import encode
from harness.models.log.cleaner import first_dirty
from harness.models.log.delivery import listed_aborts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.broker_files.side_files.producer_state import AbortedTxn
    from harness.models.log.batch import Batch
    from harness.models.log.replica import Producer, Replica
    from harness.models.world.groups import Offsets

NO_PRODUCER: Final = ""
NO_SEQUENCE: Final = -1
"""Of a batch without a producer; coordinators write 0 there, and nobody reads it."""
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


class FetchedOffset(NamedTuple):
    """What a coordinator answers about a group's key: with ``require_stable``, and without."""

    key: str
    stable: str
    any: str


@dataclass(frozen=True)
class Picture:
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
    txnindex: tuple[Entry, ...]
    cleaned_to: int | None
    epochs: tuple[tuple[int, int], ...]
    snapshots: tuple[tuple[int, tuple[ProducerState, ...]], ...]
    offsets: tuple[FetchedOffset, ...] = ()
    horizons_ms: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """Base offset of each batch that has a delete horizon, and the horizon."""


def of_replica(replica: Replica, named: Named) -> Picture:
    """Return the picture of a model's replica."""
    return Picture(
        batches=tuple(stored_batch(_encoded(batch), named) for batch in replica.batches()),
        segments=tuple(segment.base_offset for segment in replica.segments),
        log_start=replica.log_start,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        producers=_producer_states(replica.producers, named),
        listed_aborts=aborts_of(listed_aborts(replica), named),
        txnindex=tuple(
            entry_of(segment.base_offset, one, named) for segment in replica.segments for one in segment.aborted
        ),
        cleaned_to=None if replica.cleaned_to is None else first_dirty(replica),
        epochs=tuple(sorted(replica.epochs.items())),
        snapshots=tuple(
            (segment.base_offset, _producer_states(replica.snapshots[segment.base_offset], named))
            for segment in replica.segments[1:]
            if segment.base_offset in replica.snapshots
        ),
        horizons_ms=horizons_of(replica.batches()),
    )


@lru_cache(maxsize=1 << 16)
def _encoded(batch: Batch) -> segments.Batch:
    """Return a model's batch as the parser of real logs reads it."""
    return next(segments.iter_batches(encode(batch), source="the model"))


def of_coordinator(offsets: Offsets, keys: Iterable[str]) -> tuple[FetchedOffset, ...]:
    """Return what a model's coordinator answers."""

    def fetched(key: str) -> FetchedOffset:
        answer = offsets.answer(key)
        text = NO_OFFSET if answer.offset is None else str(answer.offset)
        return FetchedOffset(key, UNSTABLE if answer.is_pending else text, text)

    return tuple(map(fetched, sorted(keys)))


def _producer_states(producers: Mapping[int, Producer], named: Named) -> tuple[ProducerState, ...]:
    return states_of(((id_, one.epoch, one.last_sequence, one.open_from) for id_, one in producers.items()), named)


# What brokers store and answer, in the form of pictures.


def stored_batch(batch: segments.Batch, named: Named) -> StoredBatch:
    """Return one batch of a log."""
    control = segments.marker(batch, source="a segment")
    records = () if batch.is_control else segments.iter_records(batch, source="a segment")
    return StoredBatch(
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        kind=control.type if control else EMPTIED if batch.is_control else DATA,
        records=tuple(f"{one.offset}:{'-' * (one.value is None)}{_key_text(one.key or b'')}" for one in records),
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
    return tuple((one.base_offset, one.delete_horizon_ms) for one in batches if one.delete_horizon_ms is not None)


def states_of(producers: Iterable[tuple[int, int, int, int | None]], named: Named) -> tuple[ProducerState, ...]:
    """Return the states of producers, given as id, epoch, last sequence number and first offset of a transaction."""
    return tuple(
        sorted(
            ProducerState(name_of(producer_id, named), epoch, last_sequence, open_from)
            for producer_id, epoch, last_sequence, open_from in producers
            if epoch >= 0
        )
    )


def entry_of(segment: int, aborted: AbortedTxn, named: Named) -> Entry:
    """Return an entry of a segment's ``.txnindex``."""
    name = name_of(aborted.producer_id, named)
    return Entry(segment, name, aborted.first_offset, aborted.last_offset, aborted.last_stable_offset)


def aborts_of(listed: Iterable[tuple[int, int]], named: Named) -> tuple[tuple[str, int], ...]:
    """Return aborted transactions that a consumer receives, given as producer id and first offset."""
    return tuple(sorted({(name_of(producer_id, named), first) for producer_id, first in listed}))


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
    parts = (
        f"{one.base_offset}-{one.last_offset} {one.kind}",
        " ".join(one.records),
        f"by {one.producer} epoch {one.producer_epoch} sequence {one.base_sequence}" if one.producer else "",
        "transactional" if one.transactional else "",
        "ages" if one.has_horizon else "",
        f"leader epoch {one.leader_epoch}",
    )
    return ", ".join(filter(None, parts))
