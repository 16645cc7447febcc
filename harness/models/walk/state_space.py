"""The state space of a small cluster: every interleaving of few writes, one outage and one change in one partition.

These steps may happen in any order, as often as the bound allows:

* a plain client puts or deletes a key; a transactional client puts or deletes a key in a transaction, and ends it
* one follower goes away and comes back
* one change: another replica in sync leads, a replica is added, or a follower is removed
* or two changes in turn: a replica is added, and another one leads before it has joined; or the replica of the broker
  that is away is unassigned, and assigned again before the broker returns with its old log
  (``LogManager.isStrayReplica``)
* any replica that is up runs a pass of its cleaner, with a gate only while every assigned replica is in sync; time
  passes for longer than every retention
* where the log is one of ``__consumer_offsets``, keys are partitions of a group, and the group coordinator deletes
  (`harness.models.world.groups`): what is wrong then is what the group sees of a replica
* with coordination: replicas report, and messages of replicas and the leader arrive, in any order, or never

Replicas in sync copy at once, so that only a replica that is away or joining is behind, and a leader never loses
records that no follower has. There is endless other traffic (`harness.models.log.cleaner.Cleaning.active_too`). A
transaction has one record.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from harness.models.log.cleaner import UNBOUNDED, Cleaning, has_null_value
from harness.models.log.effects import Effects, Slot, recorded
from harness.models.log.invariants import Truth, violations
from harness.models.log.kip87 import is_flagged
from harness.models.log.replica import Replica
from harness.models.walk.exhaustive import Numbered
from harness.models.walk.systems import KAFKA, RETENTION_MS, lowered, own_offsets
from harness.models.walk.writers import Clients, may_write
from harness.models.world import coordination
from harness.models.world.groups import DROPS_PENDING, consequences
from harness.models.world.members import group_consequences
from harness.schedules.operations.administrators import AddReplica, AssignAgain, ElectLeader, Unassign
from harness.schedules.operations.environment import (
    CleanerPass,
    CopyBatch,
    JoinIsr,
    MessageArrives,
    SendReport,
    TimePasses,
)
from harness.schedules.operations.faults import OUTAGE, Heal, Inject
from harness.schedules.operations.operation import interned

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from harness.models.log.batch import Batch
    from harness.models.walk.systems import System
    from harness.models.world.coordination import Coordination, Pair
    from harness.schedules.operations.operation import Operation


LEAVES: Final = 2
"""The broker that may go away."""
JOINS: Final = 4
"""The broker that may be added."""
NO_CHANGE, LEADER, ADD, REMOVE = "no change", "leader", "add", "remove"
HAND_OVER, REASSIGN = "add, then leader", "unassign, then assign"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """How much may happen. ``change``: the kind of change; ``epoch_bump``: transactions of version 2 (KIP-890).

    ``outage``: LEAVES may go away, once. ``gate``: no cleaner begins a pass while an assigned replica is not in sync.
    ``by_flag``: the flag of KIP-87 makes a record a tombstone, for clients and cleaners, instead of a null value.
    ``coordinator``: OLD or NEW of `harness.models.world.groups`, where the log is one of ``__consumer_offsets``; else
    empty. ``script``: what happens to one of its groups in this order, by its name in
    `harness.models.world.members.SCRIPTS`; nothing else is written then, and ``writes`` is its length.
    """

    keys: tuple[str, ...] = ("K",)
    writes: int = 2
    transactions: int = 1
    change: str = NO_CHANGE
    outage: bool = True
    epoch_bump: bool = False
    gate: bool = False
    by_flag: bool = False
    coordinator: str = ""
    script: str = ""


class State(NamedTuple):
    """The cluster: numbers of its parts. ``replicas``: broker and number of its replica, in order of brokers.

    ``away``: LEAVES is away; ``unassigned``: its replica is unassigned meanwhile, and its log is still there;
    ``joining``: JOINS copies, and is not in sync.
    """

    clients: int
    replicas: tuple[tuple[int, int], ...]
    leader: int
    away: bool = False
    joining: bool = False
    may_leave: bool = True
    may_change: bool = False
    protocol: int | None = None
    unassigned: bool = False

    def replica(self, broker: int) -> int:
        """Return the number of a broker's replica."""
        return next(number for one, number in self.replicas if one == broker)

    def with_replicas(self, replicas: tuple[tuple[int, int], ...]) -> State:
        """Return the state with other replicas."""
        return self._replace(replicas=replicas)

    def with_replica(self, broker: int, number: int) -> State:
        """Return the state with another replica of a broker."""
        return self._replace(
            replicas=tuple((one, number if one == broker else before) for one, before in self.replicas)
        )


class StateSpace:
    """The transitions of a small cluster. The effect of a step on a part of the state is computed once, and cached."""

    def __init__(
        self,
        bound: Bound,
        *,
        system: System = KAFKA,
        coordinated: bool = False,
        without: frozenset[str] = frozenset(),
        delayed: bool = False,
        reduced: bool = True,
        symmetric: bool = False,
    ) -> None:
        """Begin without any state. ``without``: names of `harness.models.world.coordination.RULES` that are left out.

        ``delayed``: every message arrives late, in any order, or never. Otherwise reports arrive at once, and only the
        last distribution of a leader is in flight: this is equivalent, as long as nothing moves backward and late
        messages are ignored (see `harness.models.world.coordination.without_stale_messages`). ``reduced``: cleaners run
        only where their pass may make a difference, and bounds are only as precise as needed. If messages are also
        delayed, those that change nothing are dropped
        (`harness.models.world.coordination.without_ineffective_messages`), and others may arrive more than once. That
        allows more than can happen: if nothing goes wrong then, nothing goes wrong at all. The state then does not need
        to record which replica has received which message. ``symmetric``: keys are written for the first time in the
        order of `Bound.keys`, and `alike` names the brokers that may change places.
        """
        self.is_symmetric = symmetric
        self._is_delayed = delayed
        self._is_reduced = reduced
        self.bound = bound
        self._without = without
        self._coordinated = coordinated
        self._system = system
        cleaning = Cleaning(
            delete_retention_ms=RETENTION_MS,
            producer_expiration_ms=RETENTION_MS,
            is_tombstone=is_flagged if bound.by_flag else has_null_value,
            active_too=True,
        )
        self.effects = Effects(system, cleaning)
        self.replicas = self.effects.replicas
        self.clients = Numbered[Clients](lambda one: one)
        self.protocols = Numbered["Coordination"](_protocol_key)
        for name in ("_written", "_own", "_wrong", "_own_reported"):
            setattr(self, name, cache(getattr(self, name)))

    @property
    def start(self) -> State:
        """Three brokers that broker 1 leads, and nothing written."""
        brokers = (1, LEAVES, 3)
        clients = self.clients.number(Clients(Truth(), self.bound.writes, self.bound.transactions))
        replicas = tuple((broker, self.replicas.number(Replica(0))) for broker in brokers)
        protocol = self.protocols.number(coordination.begin(brokers, 1, self._without)) if self._coordinated else None
        may_change = self.bound.change != NO_CHANGE
        return State(clients, replicas, 1, may_leave=self.bound.outage, may_change=may_change, protocol=protocol)

    @property
    def brokers(self) -> tuple[int, ...]:
        """All brokers that ever have a replica."""
        return (1, LEAVES, 3, *([JOINS] if self.bound.change in {ADD, HAND_OVER} else []))

    @property
    def is_coordinated(self) -> bool:
        """Whether steps depend on the offsets of replicas, too (`own`)."""
        return self._coordinated

    def recorded_steps(self, state: State, owns: Sequence[Pair]) -> Iterator[tuple[Operation, State]]:
        """Yield each step, and the state after it, with an `Effect` or a `Slot` in place of each replica.

        The states are not normalized.

        ``state`` has a `Slot` in place of each replica, and ``owns`` the offsets of each slot's replica. They are all
        that steps depend on, so that steps need not be taken again for other replicas with the same offsets.
        """
        space: Any = copy(self)
        space.effects = recorded(self.effects)
        space._own = lambda one, clients: owns[one.number] if isinstance(one, Slot) else self._own(one, clients)  # noqa: SLF001
        yield from space._following(state)  # noqa: SLF001

    def in_sync(self, state: State) -> list[int]:
        """Return the brokers whose replicas are in sync."""
        return [broker for broker, _ in state.replicas if _is_in_sync(state, broker)]

    def wrong_of(self, number: int, clients: int) -> tuple[str, ...]:
        """Return the names of the violations of a replica in sync."""
        return self._wrong(number, clients)

    def own(self, number: int, clients: int) -> Pair:
        """Return a replica's MCCO and MXFO (see `_own`)."""
        return self._own(number, clients)

    def renamed(self, state: State) -> tuple[State, list[int]]:
        """Return an equivalent state under other names of brokers, and the followers in it that may change places.

        Equivalent are brokers that no step names: neither JOINS, nor LEAVES where there is an outage. They are always
        in sync, and cleaners run or are left alone by what a broker does, not by its name. A leader of them gets the
        first name. With coordination, brokers keep their names.
        """
        if not self.is_symmetric or self._coordinated:
            return state, []
        brokers = [one for one, _ in state.replicas if one not in self._special]
        brokers.sort(key=lambda one: (one != state.leader, one))
        names = dict(zip(brokers, (one for one in self.brokers if one not in self._special), strict=False))
        replicas = sorted(((names.get(one, one), replica) for one, replica in state.replicas), key=lambda one: one[0])
        leader = names.get(state.leader, state.leader)
        followers = [name for name in names.values() if name != leader]
        return state._replace(replicas=tuple(replicas), leader=leader), followers

    def following(self, state: State) -> Iterator[tuple[Operation, State]]:
        """Yield each possible step, and the state after it."""
        for step, after in self._following(state):
            yield step, after if after.protocol is None else self.normalized(after, self._leaders_own(after))

    def _following(self, state: State) -> Iterator[tuple[Operation, State]]:
        yield from self._writes(state)
        yield from self._outage(state)
        if state.joining:
            yield from self._joining(state)
        if state.may_change:
            yield from self._changes(state)
        bounds = None if state.protocol is None else self.protocols[state.protocol]
        is_open = not self.bound.gate or not (_absent(state) or state.joining)
        for broker, number in state.replicas:
            if is_open and not _is_down(state, broker) and not self._is_irrelevant(state, broker):
                limits = UNBOUNDED if bounds is None else bounds.bounds(broker)
                yield interned(CleanerPass, (broker,)), state.with_replica(broker, self.effects.cleaned(number, limits))
        yield (
            interned(TimePasses),
            state._replace(replicas=tuple((one, self.effects.aged(number)) for one, number in state.replicas)),
        )
        if state.protocol is not None:
            yield from self._messages(state, self.protocols[state.protocol])

    def _is_irrelevant(self, state: State, broker: int) -> bool:
        """Whether a replica's cleaner affects no other replica, and its violations show on another replica, too.

        No client reads a follower that stays in sync and will never lead. LEAVES can reach the same log where it never
        leaves: batches are copied at once, so every replica in sync gets the same batches, whichever broker leads.
        """
        may_lead = broker == state.leader or (state.may_change and self.bound.change in {LEADER, HAND_OVER})
        return self._is_reduced and state.protocol is None and not may_lead and broker not in self._special

    @property
    def _special(self) -> frozenset[int]:
        """The brokers that steps name. Without symmetry, LEAVES stands for all followers where there is no outage."""
        return frozenset({JOINS, LEAVES} if self.bound.outage or not self.is_symmetric else {JOINS})

    def wrong(self, state: State) -> Iterator[str]:
        """Yield the names of the violations of replicas in sync."""
        for broker, number in state.replicas:
            if _is_in_sync(state, broker):
                yield from self._wrong(number, state.clients)

    # Clients.

    def _writes(self, state: State) -> Iterator[tuple[Operation, State]]:
        for operation, clients, batch in self._written(state.clients):
            leader = self.effects.appended(state.replica(state.leader), batch)
            after = state._replace(clients=clients).with_replica(state.leader, leader)
            for broker, number in state.replicas:
                if broker != state.leader and _is_in_sync(state, broker):
                    after = after.with_replica(broker, self.effects.copied(number, leader, None))
            yield operation, after

    def _written(self, number: int) -> list[tuple[Operation, int, Batch]]:
        """Return the possible writes: the operation, the clients after the write, and the batch."""
        choices = may_write(self.clients[number], self.bound, in_order=self.is_symmetric)
        return [(operation, self.clients.number(after), batch) for operation, after, batch in choices]

    # Brokers.

    def _outage(self, state: State) -> Iterator[tuple[Operation, State]]:
        if state.unassigned:
            assigned = state._replace(unassigned=False)
            yield interned(AssignAgain, LEAVES), self._coordinate(assigned, coordination.add, LEAVES)
        elif state.away:
            back = self.effects.copied(state.replica(LEAVES), state.replica(state.leader), None)
            returned = state.with_replica(LEAVES, back)._replace(away=False)
            # Who was there all the time counts already.
            yield interned(Heal, OUTAGE, LEAVES), self._coordinate(returned, coordination.joined, LEAVES)
        elif state.may_leave and state.leader != LEAVES and any(one == LEAVES for one, _ in state.replicas):
            yield interned(Inject, OUTAGE, LEAVES), state._replace(away=True, may_leave=False)

    def _joining(self, state: State) -> Iterator[tuple[Operation, State]]:
        mine, leader = state.replica(JOINS), state.replica(state.leader)
        yield interned(CopyBatch, JOINS), state.with_replica(JOINS, self.effects.copied(mine, leader, 1))
        joined = state.with_replica(JOINS, self.effects.copied(mine, leader, None))._replace(joining=False)
        yield interned(JoinIsr, JOINS), self._coordinate(joined, coordination.joined, JOINS)

    def _changes(self, state: State) -> Iterator[tuple[Operation, State]]:
        changed = state._replace(may_change=False)
        followers = [broker for broker, _ in state.replicas if broker != state.leader]
        if self.bound.change == LEADER or (self.bound.change == HAND_OVER and state.joining):
            for broker in followers:
                if _is_in_sync(state, broker):
                    own = self._own(state.replica(broker), state.clients)
                    yield (
                        interned(ElectLeader, broker),
                        self._coordinate(changed._replace(leader=broker), coordination.elect, broker, own),
                    )
        elif self.bound.change in {ADD, HAND_OVER} and not any(broker == JOINS for broker, _ in state.replicas):
            replicas = (*state.replicas, (JOINS, self.replicas.number(Replica(0))))
            added = changed._replace(replicas=replicas, joining=True, may_change=self.bound.change == HAND_OVER)
            yield interned(AddReplica, JOINS), self._coordinate(added, coordination.add, JOINS)
        elif self.bound.change == REMOVE:
            for broker in followers:
                replicas = tuple(one for one in state.replicas if one[0] != broker)
                left = changed._replace(replicas=replicas, away=state.away and broker != LEAVES)
                away = (LEAVES,) if left.away else ()
                yield interned(Unassign, broker), self._coordinate(left, coordination.remove, broker, away)
        elif self.bound.change == REASSIGN and state.away:
            unassigned = changed._replace(unassigned=True)
            yield interned(Unassign, LEAVES), self._coordinate(unassigned, coordination.remove, LEAVES, ())

    # Messages of coordination.

    def _messages(self, state: State, protocol: Coordination) -> Iterator[tuple[Operation, State]]:
        away = _absent(state)
        for broker, number in state.replicas:
            own = self._own(number, state.clients)
            if (
                broker != state.leader
                and not _is_down(state, broker)
                and coordination.has_new_report(protocol, broker, own)
            ):
                change, more = (
                    (coordination.receive_report, [away]) if not self._is_delayed else (coordination.report, [])
                )
                yield interned(SendReport, broker), self._coordinate(state, change, broker, own, *more)
        numbers = {message: number for number, message in enumerate(coordination.in_order(protocol.sent), 1)}
        for message in protocol.sent:
            is_report = isinstance(message, coordination.Report)
            if not _is_down(state, state.leader if is_report else message.broker):
                delivered = partial(coordination.deliver, again=self._is_delayed and self._is_reduced)
                yield interned(MessageArrives, numbers[message]), self._coordinate(state, delivered, message, away)

    def _leaders_own(self, state: State) -> Pair:
        return self._own(state.replica(state.leader), state.clients)

    def normalized(self, state: State, own: Pair) -> State:
        """Return the state after the leader's report of its ``own`` offsets, without parts that make no difference."""
        if state.protocol is None:
            return state
        may_elect = state.may_change and self.bound.change in {LEADER, HAND_OVER}
        protocol = self._own_reported(state.protocol, state.leader, own, _absent(state), may_elect)
        return state if protocol == state.protocol else state._replace(protocol=protocol)

    def _own_reported(self, protocol: int, leader: int, own: Pair, away: tuple[int, ...], may_elect: bool) -> int:  # noqa: FBT001  (it is cached)
        reported = coordination.receive_report(self.protocols[protocol], leader, own, away)
        if self._is_delayed:
            return self.protocols.number(
                coordination.without_ineffective_messages(reported, may_elect=may_elect)
                if self._is_reduced
                else reported
            )
        return self.protocols.number(coordination.without_stale_messages(reported))

    def _coordinate(self, state: State, change: Callable[..., Coordination], *arguments: object) -> State:
        """Return the state after a change of the protocol state, if replicas are coordinated."""
        if state.protocol is None:
            return state
        return state._replace(protocol=self.protocols.number(change(self.protocols[state.protocol], *arguments)))

    # Properties of one replica; each is computed once.

    def _own(self, number: int, clients: int) -> Pair:
        """Return a replica's MCCO and MXFO; reduced, only as precise as needed (`lowered`)."""
        own = own_offsets(self._system, self.replicas[number], self._without)
        return lowered(own, self.clients[clients].truth) if self._is_reduced else own

    def _wrong(self, number: int, clients: int) -> tuple[str, ...]:
        """Return the violations of a replica in sync."""
        replica, truth, coordinator = self.replicas[number], self.clients[clients].truth, self.bound.coordinator
        if self.bound.script:
            return tuple(group_consequences(replica, truth))
        if coordinator:
            return tuple(consequences(replica, truth, drops_pending=DROPS_PENDING[coordinator]))
        return tuple(violations(replica, truth))


def _is_down(state: State, broker: int) -> bool:
    return state.away and broker == LEAVES


def _absent(state: State) -> tuple[int, ...]:
    """Return the brokers that are away, and have a replica."""
    return (LEAVES,) if state.away and not state.unassigned else ()


def _is_in_sync(state: State, broker: int) -> bool:
    return not _is_down(state, broker) and not (state.joining and broker == JOINS)


def _protocol_key(one: Coordination) -> Hashable:
    return one.leader, one.term, one.sent, tuple(one.views.items()), tuple(one.last.items())
