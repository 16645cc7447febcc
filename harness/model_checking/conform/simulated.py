"""A schedule on the model (`harness.models.world.steps`), and the picture of each replica after a step."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from harness.broker_files.segments import batches as segments
from harness.model_checking.conform.picture import (
    NO_OFFSET,
    UNSTABLE,
    FetchedOffset,
    ReplicaPicture,
    aborts_of,
    entry_of,
    horizons_of,
    states_of,
    stored_batch,
)
from harness.models.log.batch import encode
from harness.models.log.cleaner import Cleaning, first_dirty
from harness.models.log.delivery import listed_aborts
from harness.models.world import steps
from harness.schedules.operations.environment import CleanerPass
from harness.schedules.scenario import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.model_checking.conform.picture import Named, ProducerState
    from harness.models.log.batch import Batch
    from harness.models.log.replica import Producer, Replica, Segment
    from harness.models.world.groups import Offsets
    from harness.models.world.world import Rules
    from harness.schedules.operations.operation import Operation
    from harness.schedules.schedule import Schedule

AT_ONCE_MS, NEVER_MS = 1, 10**15
FILLER_KEY, LATE_KEY = "filler", "G"
KEYS: Final = ("K", "L", "M")
ALL_KEYS: Final = (*KEYS, LATE_KEY, FILLER_KEY)
"""All keys of schedules."""


def is_of_groups(schedule: Schedule) -> bool:
    """Return whether records are committed offsets of a group, in a partition of ``__consumer_offsets``."""
    return any(topic.name == CONSUMER_OFFSETS for topic in schedule.plan.topics)


class Simulated:
    """One schedule's partition in the model."""

    def __init__(self, schedule: Schedule, rules: Rules) -> None:
        """Begin with empty replicas. ``rules``: the version of Kafka, and of transactions."""
        self._copied_from: dict[int, Segment] = {}
        cleaning = Cleaning(
            delete_retention_ms=AT_ONCE_MS,
            producer_expiration_ms=NEVER_MS,
            last_of_pass_stays=rules.version.last_of_pass_stays,
        )
        rules = replace(rules, of_groups=is_of_groups(schedule))
        self.world = steps.begin(rules, schedule.plan.brokers, cleaning=cleaning, rolls=self._rolls)
        self.world.replication.leader.begin_epoch(0, 0)

    def _rolls(self, replica: Replica, batch: Batch) -> bool:
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
        """Whether the leader accepts the producer's next batch; the sequence numbers of coordinators are not checked.

        Source: ``AppendOrigin.COORDINATOR``.
        """
        client = self.world.clients.get(name)
        leader = self.world.replication.leader
        return (
            self.world.rules.of_groups
            or client is None
            or leader.accepts(client.producer_id, client.epoch, client.sequence)
        )

    def pictures(self) -> dict[int, ReplicaPicture]:
        """Return the picture of each replica that is up."""
        return {broker: self._picture(broker) for broker in self.world.up}

    def leader_picture(self) -> tuple[int, ReplicaPicture]:
        """Return the leader, and the picture of its replica."""
        leader = self.world.replication.leader_id
        return leader, self._picture(leader)

    def _picture(self, broker: int) -> ReplicaPicture:
        world = self.world
        named = {client.producer_id: client.name for client in world.clients.values() if client.producer_id >= 0}
        picture = picture_of(world.replicas[broker], named)
        if not world.rules.of_groups or broker != world.replication.leader_id:
            return picture
        return replace(picture, offsets=tuple(_fetched(world.coordinator, key) for key in sorted(ALL_KEYS)))

    def take(self, step: Operation) -> None:
        """Take one step, and replicate to all live replicas. Raises ValueError for an impossible step."""
        if steps.take(self.world, step) is None and not isinstance(step, CleanerPass):
            raise ValueError(f"'{step}' is impossible in the model now")
        self.world.replication.fetch_all()


def picture_of(replica: Replica, named: Named) -> ReplicaPicture:
    """Return the picture of a model's replica."""
    return ReplicaPicture(
        batches=tuple(stored_batch(_parsed(batch), named) for batch in replica.batches()),
        segments=tuple(segment.base_offset for segment in replica.segments),
        log_start=replica.log_start,
        high_watermark=replica.high_watermark,
        last_stable_offset=replica.last_stable_offset,
        producers=_producer_states(replica.producers, named),
        listed_aborts=aborts_of(listed_aborts(replica), named),
        txnindex=tuple(
            entry_of(segment.base_offset, aborted, named) for segment in replica.segments for aborted in segment.aborted
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
def _parsed(batch: Batch) -> segments.Batch:
    """Return a model's batch as the parser of real logs reads it."""
    return next(segments.iter_batches(encode(batch), source="the model"))


def _fetched(offsets: Offsets, key: str) -> FetchedOffset:
    answer = offsets.answer(key)
    text = NO_OFFSET if answer.offset is None else str(answer.offset)
    return FetchedOffset(key, UNSTABLE if answer.is_pending else text, text)


def _producer_states(producers: Mapping[int, Producer], named: Named) -> tuple[ProducerState, ...]:
    return states_of(((id_, it.epoch, it.last_sequence, it.open_from) for id_, it in producers.items()), named)
