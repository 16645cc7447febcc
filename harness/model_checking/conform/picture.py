"""Pictures of replicas: their content and their broker's state, in terms that the model and real brokers share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

from harness.broker_files.internal_topics.decode import decode_offset_key
from harness.broker_files.segments import batches as segments
from harness.broker_files.side_files.producer_state import AbortedTxn, ProducerEntry
from harness.models.log.batch import ModelBatch, encoded
from harness.models.log.cleaner import Cleaning, first_dirty
from harness.models.log.delivery import listed_aborts
from harness.models.log.replica import ModelSegment, Replica
from harness.models.world.groups import Offsets
from harness.models.world.world import Rules, begin, take
from harness.schedules.operations import CleanerPass, Operation
from harness.schedules.scenario import CONSUMER_OFFSETS
from harness.schedules.schedule import Schedule

NO_OFFSET, UNSTABLE = "none", "unstable"
"""Answers of OffsetFetch without an offset: none is committed, or UNSTABLE_OFFSET_COMMIT."""

Named: TypeAlias = dict[int, str]
"""Producers' names by their ids, which each cluster assigns."""
FetchedOffset: TypeAlias = tuple[str, str, str]
"""A coordinator's answers about a group's key: the key, the answer with ``require_stable``, and the one without."""


@dataclass(frozen=True)
class ReplicaPicture:
    """One replica after a step; every field is compared, except ``horizons_ms``.

    Batches, producers and entries of a ``.txnindex`` are texts. ``listed_aborts``: producer and first offset of the
    aborted transactions that a read_committed consumer receives when it reads this replica from its start.
    ``cleaned_to``: the cleaner's checkpoint. ``epochs``: leader epoch and first offset. ``snapshots``: the states of
    producers at the start of each segment but the first. ``offsets``: a coordinator's answers about each key of the
    schedule's group, with ``require_stable`` and without, where this broker coordinates it.
    """

    batches: tuple[str, ...]
    segments: tuple[int, ...]
    log_start: int
    high_watermark: int
    last_stable_offset: int
    producers: tuple[str, ...]
    listed_aborts: tuple[tuple[str, int], ...]
    txnindex: tuple[str, ...]
    cleaned_to: int | None
    epochs: tuple[tuple[int, int], ...]
    snapshots: tuple[tuple[int, tuple[str, ...]], ...]
    offsets: tuple[FetchedOffset, ...] = ()
    horizons_ms: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """Base offset of each batch that has a delete horizon, and the horizon."""


def log_fields(
    batches: Sequence[segments.Batch], aborted: Iterable[tuple[int, AbortedTxn]], named: Named
) -> dict[str, Any]:
    """Return the fields of a picture for the batches of a log, and for the entries of each segment's ``.txnindex``."""
    horizons_ms = ((batch.base_offset, batch.delete_horizon_ms) for batch in batches)
    return {
        "batches": tuple(_batch_text(batch, named) for batch in batches),
        "txnindex": tuple(
            f"{name_of(txn.producer_id, named)} {txn.first_offset}-{txn.last_offset} in segment {segment}, "
            f"last stable offset {txn.last_stable_offset}"
            for segment, txn in aborted
        ),
        "horizons_ms": tuple((base, horizon_ms) for base, horizon_ms in horizons_ms if horizon_ms is not None),
    }


def _batch_text(batch: segments.Batch, named: Named) -> str:
    control = segments.marker(batch, source="a segment")
    kind = control.type if control else "emptied marker" if batch.is_control else "data"
    records = () if batch.is_control else segments.iter_records(batch, source="a segment")
    # Of a batch without a producer, coordinators write sequence number 0, and nobody reads it.
    has_producer = batch.producer_id >= 0 or batch.producer_epoch >= 0
    by = f"by {name_of(batch.producer_id, named)} epoch {batch.producer_epoch} sequence {batch.base_sequence}"
    parts = (
        f"{batch.base_offset}-{batch.last_offset} {kind}",
        " ".join(f"{it.offset}:{'-' * (it.value is None)}{_key_text(it.key or b'')}" for it in records),
        by if has_producer else "",
        "transactional" if batch.is_transactional else "",
        "ages" if batch.delete_horizon_ms is not None else "",
        f"leader epoch {batch.leader_epoch}",
    )
    return ", ".join(filter(None, parts))


def _key_text(key: bytes) -> str:
    """Return a step's key; of a committed offset, it is the topic's name."""
    offset = decode_offset_key(key)
    return offset.topic if offset else key.decode()


def states_of(producers: Iterable[ProducerEntry], named: Named) -> tuple[str, ...]:
    """Return the states of producers, from a snapshot or from a broker's answer.

    Producers without an epoch, of which the broker has read only an emptied marker, are left out: they have no time
    either, expire at the next check, and so may exist or not.
    """
    texts = []
    for it in (producer for producer in producers if producer.producer_epoch >= 0):
        open_from = it.current_txn_first_offset
        text = f"{name_of(it.producer_id, named)} epoch {it.producer_epoch} sequence {it.last_sequence}"
        texts.append(text if open_from is None else f"{text}, open from {open_from}")
    return tuple(sorted(texts))


def aborts_of(listed: Iterable[tuple[int, int]], named: Named) -> tuple[tuple[str, int], ...]:
    """Return aborted transactions that a consumer receives, given as producer id and first offset."""
    return tuple(sorted({(name_of(producer_id, named), first) for producer_id, first in listed}))


def name_of(producer_id: int, named: Named) -> str:
    """Return a producer's name; an unknown producer is named by its id."""
    return named.get(producer_id, f"producer {producer_id}")


def differences(expected: ReplicaPicture, actual: ReplicaPicture | None) -> list[str]:
    """Describe the differences, field by field: the model's value, and the broker's; common items are left out."""
    if actual is None:
        return ["the broker's replica cannot be read"]
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
    return "; ".join(map(str, value)) or "nothing" if isinstance(value, tuple) else str(value)


def shown(picture: ReplicaPicture) -> list[str]:
    """Return a picture as lines of text."""
    return [
        *(f"  {batch}" for batch in picture.batches),
        *(f"  {name.replace('_', ' ')}: {_value_text(getattr(picture, name))}" for name in _compared()[1:]),
    ]


AT_ONCE_MS, NEVER_MS = 1, 10**15
FILLER_KEY, LATE_KEY = "filler", "G"
KEYS: Final = ("K", "L", "M")
ALL_KEYS: Final = (*KEYS, LATE_KEY, FILLER_KEY)


def is_of_groups(schedule: Schedule) -> bool:
    """Return whether records are committed offsets of a group, in a partition of ``__consumer_offsets``."""
    return any(topic.name == CONSUMER_OFFSETS for topic in schedule.plan.topics)


class Simulated:
    """One schedule's partition in the model."""

    def __init__(self, schedule: Schedule, rules: Rules) -> None:
        """Begin with empty replicas. ``rules``: the version of Kafka, and of transactions."""
        self._copied_from: dict[int, ModelSegment] = {}
        cleaning = Cleaning(
            delete_retention_ms=AT_ONCE_MS,
            producer_expiration_ms=NEVER_MS,
            last_of_pass_stays=rules.version.last_of_pass_stays,
        )
        rules = replace(rules, of_groups=is_of_groups(schedule))
        self.world = begin(rules, schedule.plan.brokers, cleaning=cleaning, rolls=self._rolls)
        self.world.replication.leader.begin_epoch(0, 0)

    def _rolls(self, replica: Replica, batch: ModelBatch) -> bool:
        """Return whether a replica begins a segment: ``segment.ms`` passes between writes (``LogSegment.shouldRoll``).

        A follower appends an answer whole, and no answer crosses the end of a leader's segment: records that are copied
        at once from one segment of the leader go into one segment of the follower.
        """
        leader = self.world.replication.leader
        if replica is leader:
            return True
        segment = next(s for s in reversed(leader.segments) if s.base_offset <= batch.base_offset)
        before = self._copied_from.get(replica.broker)
        self._copied_from[replica.broker] = segment
        return segment is not before

    def can_write(self, name: str) -> bool:
        """Return whether the leader accepts the next batch of a producer."""
        client, leader = self.world.clients[name], self.world.replication.leader
        is_version_2 = client.transactional and self.world.rules.epoch_bump
        return leader.accepts(client.producer_id, client.epoch, client.sequence, from_zero=is_version_2)

    def pictures(self) -> dict[int, ReplicaPicture]:
        """Return the picture of each replica that is up."""
        return {broker: self._picture(broker) for broker in self.world.up}

    def _picture(self, broker: int) -> ReplicaPicture:
        world = self.world
        named = {client.producer_id: client.name for client in world.clients.values() if client.producer_id >= 0}
        picture = picture_of(world.replicas[broker], named)
        if not world.rules.of_groups or broker != world.replication.leader_id:
            return picture
        return replace(picture, offsets=tuple(_fetched(world.coordinator, key) for key in sorted(ALL_KEYS)))

    def take(self, step: Operation) -> None:
        """Take one step, and replicate to all live replicas. Raises ValueError for an impossible step."""
        if not take(self.world, step) and not isinstance(step, CleanerPass):
            raise ValueError(f"'{step}' is impossible in the model now")
        self.world.replication.fetch_all()


def picture_of(replica: Replica, named: Named) -> ReplicaPicture:
    """Return the picture of a model's replica."""
    aborted = [(segment.base_offset, txn) for segment in replica.segments for txn in segment.aborted]
    return ReplicaPicture(
        **log_fields([parsed(batch) for batch in replica.batches()], aborted, named),
        segments=tuple(segment.base_offset for segment in replica.segments),
        log_start=replica.log_start,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        producers=states_of(replica.producers.values(), named),
        listed_aborts=aborts_of(listed_aborts(replica), named),
        cleaned_to=None if replica.cleaned_to is None else first_dirty(replica),
        epochs=tuple(sorted(replica.epochs.items())),
        snapshots=tuple(
            (segment.base_offset, states_of(replica.snapshots[segment.base_offset].values(), named))
            for segment in replica.segments[1:]
            if segment.base_offset in replica.snapshots
        ),
    )


@lru_cache(maxsize=1 << 16)
def parsed(batch: ModelBatch) -> segments.Batch:
    """Return a batch of the model as it would be read from a segment."""
    return next(segments.iter_batches(encoded(batch), source="the model"))


def _fetched(offsets: Offsets, key: str) -> FetchedOffset:
    answer = offsets.answer(key)
    text = NO_OFFSET if answer.offset is None else str(answer.offset)
    return key, UNSTABLE if answer.is_pending else text, text
