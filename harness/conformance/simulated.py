"""A schedule on the model: its own clock, a second a step."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatchmethod
from random import Random
from typing import TYPE_CHECKING

from harness.brokers.segments.markers import ABORT
from harness.conformance import picture
from harness.conformance.steps import (
    BROKERS,
    KILL,
    LEAVES,
    PAUSE,
    PLAIN,
    STOP,
    TRANSACTIONAL_ONES,
    Clean,
    DeleteRecords,
    End,
    EndElsewhere,
    Expire,
    Fence,
    Join,
    Lead,
    Leave,
    Rest,
    Return,
    TimePasses,
    Write,
)
from models.cleaner import Cleaning, clean
from models.partition import Client, Partition, Settings
from models.replica import Replica
from models.replication import Replication

if TYPE_CHECKING:
    from harness.conformance.picture import Named, Picture
    from harness.conformance.steps import Schedule, Step
    from models.batch import Batch
    from models.replica import Segment
    from models.rules import Rules

STEP_MS = 1000
AT_ONCE_MS, KEPT_MS = 1, 10_000_000
NEVER_MS = 10**15
FIRST_PRODUCER_ID = 1
CLEANING = Cleaning(delete_retention_ms=AT_ONCE_MS, producer_expiration_ms=NEVER_MS)


class Simulated:
    """One partition of the model. ``has``: the brokers with a replica."""

    def __init__(self, schedule: Schedule, rules: Rules) -> None:
        """Begin with empty replicas, under the rules of a version."""
        self._rules = rules
        self._cleaning = replace(CLEANING, last_of_pass_stays=rules.last_of_pass_stays)
        self._copied_from: dict[int, Segment] = {}
        self._how = KILL
        self._ids: dict[str, int] = {}
        self._clients: dict[str, Client] = {}
        self.partition = Partition(
            topic=schedule.name,
            number=0,
            settings=Settings(cleaning=self._cleaning, epoch_bump=schedule.version > 1),
            random=Random(0),  # noqa: S311  (nothing here is left to chance)
            replication=Replication(
                {b: self._replica(b) for b in schedule.replicas}, schedule.replicas[0], self._rolls
            ),
            now_ms=STEP_MS,
        )
        self.partition.leader.begin_epoch(0, 0)

    def _replica(self, broker: int) -> Replica:
        return Replica(broker, stable_at_batch=self._rules.stable_at_batch)

    def _rolls(self, replica: Replica, batch: Batch) -> bool:
        """Whether a replica begins a segment: ``segment.ms`` passes between any two writes (``LogSegment.shouldRoll``).

        A follower appends an answer whole, and no answer crosses the end of a leader's segment: records that are copied
        at once from one segment of the leader go into one segment of the follower.
        """
        if replica is self.partition.leader:
            return True
        segment = next(s for s in reversed(self.partition.leader.segments) if s.base_offset <= batch.base_offset)
        before = self._copied_from.get(replica.broker)
        self._copied_from[replica.broker] = segment
        return segment is not before

    @property
    def live(self) -> list[int]:
        """The live brokers that have a replica."""
        return [broker for broker in BROKERS if broker in self.partition.replicas and broker not in self.partition.away]

    def client(self, name: str) -> Client | None:
        """Return the model's state of a producer; None for the producer without an id."""
        if name == PLAIN:
            return None
        if name not in self._clients:
            self._clients[name] = Client(FIRST_PRODUCER_ID + len(self._clients), name in TRANSACTIONAL_ONES)
        return self._clients[name]

    def can_write(self, name: str) -> bool:
        """Whether the leader accepts the producer's next batch."""
        client = self.client(name)
        return client is None or self.partition.leader.accepts(client.producer_id, client.epoch, client.sequence)

    def pictures(self) -> dict[int, Picture]:
        """Return the picture of each live replica."""
        return {broker: self._picture(broker) for broker in self.live}

    def leader_picture(self) -> tuple[int, Picture]:
        """Return the leader, and the picture of its replica."""
        return self.partition.leader_id, self._picture(self.partition.leader_id)

    def _picture(self, broker: int) -> Picture:
        named: Named = {client.producer_id: name for name, client in self._clients.items()}
        return picture.of_replica(self.partition.replicas[broker], named)

    def take(self, step: Step) -> None:
        """Take one step, and replicate to all live replicas. Raises ValueError for an illegal step."""
        self.partition.now_ms += STEP_MS
        self._take(step)
        self.partition.fetch_all()

    @singledispatchmethod
    def _take(self, step: Step) -> None:
        raise TypeError(f"{step!r} is no step")

    @_take.register
    def _(self, step: Write) -> None:
        records = [(record.removeprefix("-").encode(), None if record[0] == "-" else b"v") for record in step.records]
        self.partition.write(records, self.client(step.producer))

    @_take.register
    def _(self, step: End) -> None:
        self.partition.end(self._transactional(step.producer), step.outcome)

    @_take.register
    def _(self, step: EndElsewhere) -> None:
        client = self._transactional(step.producer)
        if client.txn is not None or self.partition.settings.epoch_bump:
            raise ValueError(f"{step} cannot be: it writes here, or its version registers what it writes to alone")
        self.partition.replication.append(self.partition.marker(client, step.outcome, None))

    @_take.register
    def _(self, step: Fence) -> None:
        client = self._transactional(step.producer)
        self.partition.end(client, ABORT, timed_out=True)
        self.partition.bump(client)

    def _transactional(self, name: str) -> Client:
        client = self.client(name)
        if client is None or not client.transactional:
            raise ValueError(f"{name} has no transactions")
        return client

    @_take.register
    def _(self, step: Lead) -> None:
        self.partition.elect(step.broker)

    @_take.register
    def _(self, step: DeleteRecords) -> None:
        self.partition.delete_records(step.before)

    @_take.register
    def _(self, _step: Join) -> None:
        if LEAVES in self.partition.replicas:
            raise ValueError(f"{LEAVES} has a replica")
        self.partition.replicas[LEAVES] = self._replica(LEAVES)
        self.partition.come_back(LEAVES)

    @_take.register
    def _(self, _step: Rest) -> None:
        pass

    @_take.register
    def _(self, step: Leave) -> None:
        self._how = step.how
        if LEAVES in self.partition.replicas:
            self.partition.leave(LEAVES)

    @_take.register
    def _(self, _step: Return) -> None:
        if LEAVES not in self.partition.replicas:
            return
        replica = self.partition.replicas[LEAVES]
        {KILL: replica.recover, STOP: replica.reopen, PAUSE: lambda: None}[self._how]()
        self.partition.come_back(LEAVES)

    @_take.register
    def _(self, step: Clean) -> None:
        cleaning = replace(self._cleaning, delete_retention_ms=KEPT_MS if step.kept else AT_ONCE_MS)
        for broker in set(step.brokers) & set(self.live):
            clean(self.partition.replicas[broker], cleaning, self.partition.now_ms)

    @_take.register
    def _(self, _step: TimePasses) -> None:
        self.partition.now_ms += KEPT_MS

    @_take.register
    def _(self, _step: Expire) -> None:
        for broker in self.live:
            self.partition.replicas[broker].expire(NEVER_MS, 0)
