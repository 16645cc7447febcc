"""A schedule on the model (`harness.models.world.steps`), and the picture of each replica after a step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from harness.model_checking.conform.picture import of_coordinator, of_replica
from harness.models.log.cleaner import Cleaning
from harness.models.world import steps
from harness.models.world.world import Rules
from harness.schedules.operations.environment import CleanerPass

if TYPE_CHECKING:
    from harness.model_checking.conform.picture import Picture
    from harness.model_checking.conform.schedules import Schedule
    from harness.models.log.batch import Batch
    from harness.models.log.replica import Replica, Segment
    from harness.models.log.version_rules import VersionRules
    from harness.schedules.operations.operation import Operation

AT_ONCE_MS, NEVER_MS = 1, 10**15
FILLER_KEY, LATE_KEY = "filler", "G"
KEYS: Final = ("K", "L", "M")
ALL_KEYS: Final = (*KEYS, LATE_KEY, FILLER_KEY)
"""All keys of schedules."""


class Simulated:
    """One schedule's partition in the model."""

    def __init__(self, schedule: Schedule, version: VersionRules) -> None:
        """Begin with empty replicas, under the rules of a version of Kafka."""
        self._copied_from: dict[int, Segment] = {}
        cleaning = Cleaning(
            delete_retention_ms=AT_ONCE_MS,
            producer_expiration_ms=NEVER_MS,
            last_of_pass_stays=version.last_of_pass_stays,
        )
        rules = Rules(epoch_bump=schedule.version > 1, version=version, of_groups=schedule.of_group)
        self.world = steps.begin(rules, schedule.replicas, cleaning=cleaning, rolls=self._rolls)
        self.world.replication.leader.begin_epoch(0, 0)

    def _rolls(self, replica: Replica, batch: Batch) -> bool:
        """Whether a replica begins a segment: ``segment.ms`` passes between any two writes (``LogSegment.shouldRoll``).

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
        """Whether the leader accepts the producer's next batch."""
        client = self.world.clients.get(name)
        if self.world.rules.of_groups:
            # Sequence numbers of coordinators are not checked (``AppendOrigin.COORDINATOR``).
            return True
        return client is None or self.world.replication.leader.accepts(
            client.producer_id, client.epoch, client.sequence
        )

    def pictures(self) -> dict[int, Picture]:
        """Return the picture of each replica that is up."""
        return {broker: self._picture(broker) for broker in self.world.up}

    def leader_picture(self) -> tuple[int, Picture]:
        """Return the leader, and the picture of its replica."""
        leader = self.world.replication.leader_id
        return leader, self._picture(leader)

    def _picture(self, broker: int) -> Picture:
        world = self.world
        picture = of_replica(world.replicas[broker], {one.producer_id: one.name for one in world.clients.values()})
        if not world.rules.of_groups or broker != world.replication.leader_id:
            return picture
        return replace(picture, offsets=of_coordinator(world.coordinator, ALL_KEYS))

    def take(self, step: Operation) -> None:
        """Take one step, and replicate to all live replicas. Raises ValueError for an impossible step."""
        if steps.take(self.world, step) is None and not isinstance(step, CleanerPass):
            raise ValueError(f"'{step}' is impossible in the model now")
        self.world.replication.fetch_all()
