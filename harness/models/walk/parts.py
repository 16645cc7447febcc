"""Clients and replicas of a small cluster by number, the possible writes, and the effects of steps on replicas.

Each effect is computed once for a replica, or recorded to be computed for many replicas (`harness.models.walk.rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from harness.broker_files.segments.records import ABORT, COMMIT, Record, marker_record
from harness.models.log.batch import ModelBatch
from harness.models.log.cleaner import Bounds, Cleaning
from harness.models.log.invariants import ModelTruth, Wrote
from harness.models.log.replica import ModelSegment, Replica
from harness.models.log.replication import Replication
from harness.models.log.systems import NOW_MS, RETENTION_MS, BrokerSystem
from harness.models.walk.exhaustive import Numbered
from harness.models.world.groups import DROPS_PENDING, intended
from harness.models.world.members import SCRIPTS
from harness.schedules.operations import End, Operation, Write

if TYPE_CHECKING:
    from harness.models.walk.state_space import Bound


WalkState: TypeAlias = Any
"""A state of a `ClusterSpace`."""


class Clients(NamedTuple):
    """The truth that clients have written, and how many writes and transactions are left."""

    truth: ModelTruth
    writes: int
    transactions: int
    epoch: int = 0


PossibleWrite: TypeAlias = tuple[Operation, Clients, ModelBatch]
"""The operation, the clients after it, and the batch."""


class Slot(NamedTuple):
    """A placeholder for the replica of the broker at this place among the brokers of a space."""

    place: int


class Effect(NamedTuple):
    """A placeholder for the result of a method of `ClusterParts`; ``replicas``: the arguments that are numbers."""

    method: str
    replicas: tuple[int | Slot | Effect, ...]
    arguments: tuple[Hashable, ...]


class ClusterParts:
    """Clients and replicas by number. Effects take and return the number of a replica."""

    def __init__(
        self,
        bound: Bound,
        system: BrokerSystem,
        *,
        progress: Callable[[Replica, ModelTruth], Bounds],
        violations: Callable[[Replica, ModelTruth], Iterable[str]],
        in_order: bool,
    ) -> None:
        """``progress``: a replica's MCCO and MXFO; ``violations``: of a replica in sync; ``in_order``: `may_write`."""
        self.replicas = Numbered[Replica](system.content)
        self.empty: Final = self.replicas.number(Replica(0))
        self.clients = Numbered[Clients](lambda clients: clients)
        self.no_writes: Final = self.clients.number(Clients(ModelTruth(), bound.writes, bound.transactions))
        self._tails = Numbered[Replica](system.content)
        self._system = system
        self._cleaning = Cleaning(
            delete_retention_ms=RETENTION_MS, producer_expiration_ms=RETENTION_MS, active_too=True
        )
        for method in _REPLICAS:
            setattr(self, method, cache(getattr(self, method)))
        self.progress = cache(lambda replica, clients: progress(self.replicas[replica], self.clients[clients].truth))
        self.violations = cache(
            lambda replica, clients: tuple(violations(self.replicas[replica], self.clients[clients].truth))
        )
        self.writes = cache(lambda clients: self._writes(may_write(self.clients[clients], bound, in_order=in_order)))

    def _writes(self, choices: Iterable[PossibleWrite]) -> list[tuple[Operation, int, ModelBatch]]:
        return [(operation, self.clients.number(after), batch) for operation, after, batch in choices]

    def _changed(self, number: int, change: Callable[[Replica], object]) -> int:
        replica = self.replicas[number].fork()
        change(replica)
        return self.replicas.number(replica)

    def appended(self, number: int, batch: ModelBatch, high_watermark: int) -> int:
        """Return the leader's replica after it has appended a batch."""
        replica = self.replicas[number].fork()
        replica.append(batch, roll=True)
        replica.advance_high_watermark(high_watermark)
        return self.replicas.number(replica)

    def watermarked(self, number: int, high_watermark: int) -> int:
        """Return the replica with a higher high watermark."""
        return self._changed(number, lambda it: it.advance_high_watermark(high_watermark))

    def truncated(self, number: int, offset: int, fresh: bool = False) -> int:  # noqa: FBT001, FBT002  (it is cached)
        """Return the replica after it has truncated its log to an offset, as its leader has no batch there.

        ``fresh``: it drops its whole log if its high watermark is beyond that offset, as its cleaner may have removed
        values because of records that the truncation removes.
        """
        if fresh and self.replicas[number].high_watermark > offset:
            return self.empty
        return self._changed(number, lambda it: it.truncate(offset)) if self.log_end(number) > offset else number

    def copied(self, number: int, leader: int, most: int | None = None) -> int:
        """Return the follower's replica after it has copied up to ``most`` batches, or all."""
        return self.extended(number, self.tail(leader, self.log_end(number), most))

    def log_end(self, number: int) -> int:
        """Return the log end offset of a replica."""
        return self.replicas[number].log_end

    def tail(self, number: int, offset: int, most: int | None) -> int:
        """Return the number of a leader's tail of up to ``most`` batches, which many leaders have in common."""
        leader = self.replicas[number]
        batches = list(islice(leader.from_offset(offset), most))
        segments = [ModelSegment(s.base_offset, [b for b in s.batches if b in batches]) for s in leader.segments]
        tail = Replica(0, [segment for segment in segments if segment.batches] or [ModelSegment(leader.log_end)])
        tail.log_start, tail.log_end, tail.high_watermark = leader.log_start, leader.log_end, leader.high_watermark
        return self._tails.number(tail)

    def extended(self, number: int, tail: int) -> int:
        """Return the follower's replica after it has copied a tail."""
        pair = Replication({1: self._tails[tail].fork(), 2: self.replicas[number].fork()}, 1, rolls=lambda *_: True)
        pair.fetch(2)
        return self.replicas.number(pair.replicas[2])

    def cleaned(self, number: int, bounds: Bounds) -> int:
        """Return the replica after a pass of its cleaner."""
        return self._changed(number, lambda it: self._system.clean(it, self._cleaning, NOW_MS, bounds))

    def cleaned_past(self, number: int, bounds: Bounds) -> int:
        """Return the replica after a pass that does not stop at the high watermark, unlike Kafka's cleaner."""
        replica = self.replicas[number].fork()
        high_watermark, unreplicated = replica.high_watermark, list(replica.unreplicated)
        replica.advance_high_watermark(replica.log_end)
        self._system.clean(replica, self._cleaning, NOW_MS, bounds)
        replica.high_watermark, replica.unreplicated = high_watermark, unreplicated
        return self.replicas.number(replica)

    def aged(self, number: int) -> int:
        """Return the replica after time has passed."""
        return self._changed(number, self._system.age)

    def recorded(self, progresses: Sequence[Bounds]) -> ClusterParts:
        """Return parts that accept a `Slot` or an `Effect` in place of a replica, and return an `Effect` for it.

        ``progresses``: the MCCO and MXFO of the replica of each `Slot`.
        """
        recording: Any = copy(self)
        for method, count in _REPLICAS.items():
            setattr(recording, method, partial(_record, getattr(self, method), method, count))
        recording.progress = lambda replica, clients: (
            progresses[replica.place] if isinstance(replica, Slot) else self.progress(replica, clients)
        )
        return recording  # type: ignore[no-any-return]


class ClusterSpace:
    """The space of a small cluster: a state has ``clients``, ``replicas`` and ``leader``.

    ``brokers``: all that ever have a replica; ``special``: those that steps name. ``is_coordinated``: steps depend on
    MCCO and MXFO of replicas. ``is_symmetric``: `renamed` changes names.
    """

    parts: ClusterParts
    brokers: tuple[int, ...]
    special: frozenset[int]
    is_coordinated: bool
    is_symmetric: bool

    def renamed(self, state: WalkState) -> tuple[WalkState, list[int]]:
        """Return an equivalent state under other names of brokers, and the followers in it that may change places.

        Brokers that no step names are equivalent, and get the first names in the order of their roles; those without a
        role may change places.
        """
        if not self.is_symmetric:
            return state, []
        brokers, roles = [broker for broker, _ in state.replicas if broker not in self.special], state.roles
        in_order = sorted(brokers, key=lambda broker: ([broker not in role for role in roles], broker))
        free = (broker for broker in self.brokers if broker not in self.special)
        names = dict(zip(in_order, free, strict=False))
        return state.with_names(names), sorted(names[it] for it in brokers if not any(it in role for role in roles))

    def in_sync(self, state: WalkState) -> list[int]:
        """Return the brokers whose replicas are in sync and have all records."""
        return [broker for broker, _ in state.replicas if state.is_in_sync(broker)]

    def wrong(self, state: WalkState) -> Iterator[str]:
        """Yield the names of the violations of replicas in sync."""
        for broker in self.in_sync(state):
            yield from self.parts.violations(state.replica(broker), state.clients)

    def normalized(self, state: WalkState, _progress: Bounds) -> WalkState:
        """Return the state without parts that make no difference, given the leader's MCCO and MXFO."""
        return state

    def writes(
        self, state: WalkState, copies: Callable[[int], bool], high_watermark: int | None = None
    ) -> Iterator[tuple[Operation, WalkState]]:
        """Yield each possible write. ``copies``: whether a follower copies at once. ``high_watermark``: the new one."""
        for operation, clients, batch in self.parts.writes(state.clients):
            watermark = batch.last_offset + 1 if high_watermark is None else high_watermark
            leader = self.parts.appended(state.replica(state.leader), batch, watermark)
            after = state._replace(clients=clients).with_replica(state.leader, leader)
            for broker, number in state.replicas:
                if broker != state.leader and copies(broker):
                    after = after.with_replica(broker, self.parts.copied(number, leader))
            yield operation, after


_REPLICAS: Final = {
    **dict.fromkeys(("appended", "watermarked", "truncated", "log_end", "cleaned", "cleaned_past", "aged"), 1),
    **dict.fromkeys(("tail", "extended"), 2),
}
"""The cached methods, and how many of their arguments are numbers: of replicas, or results of these methods."""


def _record(compute: Callable[..., int], method: str, count: int, *arguments: Any) -> int | Effect:
    replicas = arguments[:count]
    is_known = all(isinstance(replica, int) for replica in replicas)
    return compute(*arguments) if is_known else Effect(method, replicas, arguments[count:])


def may_write(clients: Clients, bound: Bound, *, in_order: bool = False) -> Iterator[PossibleWrite]:
    """Yield each possible write. Transactions write single records.

    ``in_order``: a key is written for the first time after the keys before it, as no step depends on its name.
    """
    truth = clients.truth
    if bound.script:
        if clients.writes:
            yield _next_of_script(clients, bound.script)
        return
    if truth.open_txn is not None:
        for outcome in (COMMIT, ABORT):
            yield _ended(clients, outcome, bound)
    written = len({record.key for record in truth.wrote})
    for key in bound.keys[: written + 1] if in_order else bound.keys:
        for deletes in (False, True) if _may_delete(truth, key, bound.coordinator) else (False,):
            if clients.writes:
                yield _put(clients, key, deletes=deletes, in_txn=False)
            if clients.transactions and truth.open_txn is None and not (deletes and bound.coordinator):
                yield _put(clients, key, deletes=deletes, in_txn=True)


def _next_of_script(clients: Clients, script: str) -> PossibleWrite:
    """Return the next operation on a group (`harness.models.world.members`): one batch of its coordinator."""
    operation, keys = SCRIPTS[script][-clients.writes]
    truth, records = clients.truth, []
    for offset, word in enumerate(keys, truth.log_end):
        key, deletes = word.removeprefix("-"), word[0] == "-"
        truth = truth.with_record(Wrote(offset, key, deletes), in_txn=False)
        records.append(Record(offset, NOW_MS, key.encode(), None if deletes else b"v"))
    return operation, clients._replace(truth=truth, writes=clients.writes - 1), _batch(*records)


def _may_delete(truth: ModelTruth, key: str, coordinator: str) -> bool:
    """Return whether a client may delete a key: after a write; a coordinator only a key that has an offset."""
    if coordinator:
        return intended(truth).may_delete(key, drops_pending=DROPS_PENDING[coordinator])
    return any(record.key == key for record in truth.wrote)


def _put(clients: Clients, key: str, *, deletes: bool, in_txn: bool) -> PossibleWrite:
    base = clients.truth.log_end
    after = clients._replace(
        truth=clients.truth.with_record(Wrote(base, key, deletes), in_txn=in_txn),
        writes=clients.writes - (not in_txn),
        transactions=clients.transactions - in_txn,
    )
    record = Record(base, NOW_MS, key.encode(), None if deletes else b"v")
    return Write("t" if in_txn else "p", key, deletes), after, _batch(record, epoch=clients.epoch if in_txn else None)


def _ended(clients: Clients, outcome: str, bound: Bound) -> PossibleWrite:
    base = clients.truth.log_end
    after = clients._replace(truth=clients.truth.ended(outcome, base), epoch=clients.epoch + bound.epoch_bump)
    return End("t", outcome), after, _batch(marker_record(base, NOW_MS, outcome), epoch=after.epoch, control=True)


def _batch(*records: Record, epoch: int | None = None, control: bool = False) -> ModelBatch:
    """Return a batch; of the transactional producer if an epoch is given."""
    batch = ModelBatch(records[0].offset, records[-1].offset, records, NOW_MS, control=control)
    if epoch is None:
        return batch
    sequence = -1 if control else 0
    return replace(batch, producer_id=7, producer_epoch=epoch, base_sequence=sequence, transactional=True)
