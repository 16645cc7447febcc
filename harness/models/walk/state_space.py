"""The state space of a small cluster: every interleaving of few writes, one outage and one change in one partition.

The steps of `StateSpace.steps` may happen in any order, as often as the bound allows. Replicas in sync copy at once, so
that only a replica that is down or joining is behind, and a leader never loses records that no follower has. There is
endless other traffic (`harness.models.log.cleaner.Cleaning.active_too`). Each transaction writes a single record. Where
the log is a partition of ``__consumer_offsets``, keys are partitions of a group, and the group coordinator deletes
(`harness.models.world.groups`): the violations are the consequences for the group.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, NamedTuple

from harness.models.log.cleaner import UNBOUNDED, Bounds
from harness.models.log.invariants import ModelTruth, violations
from harness.models.log.replica import Replica
from harness.models.log.systems import KAFKA, BrokerSystem, lowered
from harness.models.walk.exhaustive import Numbered
from harness.models.walk.parts import ClusterParts, ClusterSpace
from harness.models.world.coordination import Coordination, begin
from harness.models.world.groups import DROPS_PENDING, consequences
from harness.models.world.members import group_consequences
from harness.schedules import operations as ops
from harness.schedules.operations import interned

LEAVES: Final = 2
"""The broker that may go down."""
JOINS: Final = 4
"""The broker that may be added."""
NO_CHANGE, LEADER, ADD, REMOVE = "no change", "leader", "add", "remove"
HAND_OVER, REASSIGN = "add, then leader", "unassign, then assign"
"""Changes: another replica in sync leads, a replica is added, a follower is removed; another replica leads before an
added one has joined; the replica of the broker that is down is unassigned, and assigned again before the broker returns
with its old log (``LogManager.isStrayReplica``)."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The bound of the steps. ``change``: the kind of change; ``epoch_bump``: transactions of version 2 (KIP-890).

    ``outage``: LEAVES may go down, once. ``gate``: no cleaner begins a pass while an assigned replica is not in sync.
    ``coordinator``: OLD or NEW of `harness.models.world.groups`, where the log is one of ``__consumer_offsets``.
    ``script``: the only operations, in order, by name in `harness.models.world.members.SCRIPTS`; ``writes``: as many.
    """

    keys: tuple[str, ...] = ("K",)
    writes: int = 2
    transactions: int = 1
    change: str = NO_CHANGE
    outage: bool = True
    epoch_bump: bool = False
    gate: bool = False
    coordinator: str = ""
    script: str = ""


class State(NamedTuple):
    """The cluster: numbers of its parts. ``replicas``: broker and number of its replica, in order of brokers.

    ``away``: LEAVES is down; ``unassigned``: its replica is unassigned meanwhile, and its log still exists;
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
        return dict(self.replicas)[broker]

    def with_replica(self, broker: int, number: int) -> "State":
        """Return the state with another replica of a broker."""
        return self._replace(replicas=tuple((b, number if b == broker else before) for b, before in self.replicas))

    @property
    def roles(self) -> tuple[tuple[int, ...], ...]:
        """The brokers of each role that `ClusterSpace.renamed` distinguishes."""
        return ((self.leader,),)

    def with_names(self, names: Mapping[int, int]) -> "State":
        """Return the state under other names of brokers."""
        replicas = sorted((names.get(broker, broker), number) for broker, number in self.replicas)
        return self._replace(replicas=tuple(replicas), leader=names.get(self.leader, self.leader))

    def is_down(self, broker: int) -> bool:
        """Return whether a broker is down."""
        return self.away and broker == LEAVES

    def is_in_sync(self, broker: int) -> bool:
        """Return whether a broker's replica is in the ISR."""
        return not self.is_down(broker) and not (self.joining and broker == JOINS)

    @property
    def absent(self) -> tuple[int, ...]:
        """The brokers that are down, and have a replica."""
        return (LEAVES,) if self.away and not self.unassigned else ()


class StateSpace(ClusterSpace):
    """The transitions of a small cluster."""

    def __init__(
        self,
        bound: Bound,
        *,
        system: BrokerSystem = KAFKA,
        coordinated: bool = False,
        without: frozenset[str] = frozenset(),
        delayed: bool = False,
        reduced: bool = True,
        symmetric: bool = False,
    ) -> None:
        """``without``: names of `harness.models.world.coordination.RULES` that are left out.

        ``delayed``: every message arrives late, in any order, or never. Otherwise reports arrive at once, and only the
        last distribution of a leader is in flight: this is equivalent, as long as nothing moves backward and late
        messages are ignored (see `Coordination.without_stale_messages`). ``reduced``: cleaners run only where their
        pass may make a difference, and bounds are only as precise as needed. If messages are also delayed, messages
        without an effect are dropped (`Coordination.without_ineffective_messages`), and others may arrive more than
        once, which allows more than can happen. ``symmetric``: keys are written for the first time in the order of
        `Bound.keys`, and `renamed` returns the brokers that may change places.
        """
        self.bound = bound
        # With coordination, brokers keep their names.
        self.is_coordinated, self.is_symmetric = coordinated, symmetric and not coordinated
        self.brokers = (1, LEAVES, 3, *([JOINS] if bound.change in {ADD, HAND_OVER} else []))
        # Without symmetry and outages, LEAVES stands for all followers.
        self.special = frozenset({JOINS, LEAVES} if bound.outage or not symmetric else {JOINS})
        self._is_delayed, self._is_reduced, self._without = delayed, reduced, without

        def progress(replica: Replica, truth: ModelTruth) -> Bounds:
            offsets = system.progress(replica)
            if "clean-not-copied" in without:
                offsets = offsets._replace(tombstones=replica.high_watermark)
            return lowered(offsets, truth) if reduced else offsets

        self.parts = ClusterParts(
            bound, system, progress=progress, violations=_violations_of(bound), in_order=symmetric
        )
        self.protocols = Numbered["Coordination"](
            lambda it: (it.leader, it.term, it.sent, tuple(it.views.items()), tuple(it.last.items()))
        )
        self._with_progress = cache(self._with_progress_reported)

    @property
    def start(self) -> State:
        """Three brokers that broker 1 leads, and nothing written."""
        brokers = (1, LEAVES, 3)
        replicas = tuple((broker, self.parts.empty) for broker in brokers)
        begun = begin(brokers, 1, self._without) if self.is_coordinated else None
        return State(
            self.parts.no_writes,
            replicas,
            1,
            may_leave=self.bound.outage,
            may_change=self.bound.change != NO_CHANGE,
            protocol=None if begun is None else self.protocols.number(begun),
        )

    def following(self, state: State) -> Iterator[tuple[ops.Operation, State]]:
        """Yield each possible step, and the state after it."""
        for step, after in self.steps(state):
            yield step, self.normalized(after, self.parts.progress(after.replica(after.leader), after.clients))

    def steps(self, state: State) -> Iterator[tuple[ops.Operation, State]]:
        """Yield each possible step, and the state after it, which is not normalized."""
        yield from self.writes(state, state.is_in_sync)
        yield from self._outage(state)
        if state.joining:
            yield from self._joining(state)
        if state.may_change:
            yield from self._changes(state)
        protocol = None if state.protocol is None else self.protocols[state.protocol]
        is_open = not self.bound.gate or not (state.absent or state.joining)
        for broker, number in state.replicas:
            if is_open and not state.is_down(broker) and not self._is_irrelevant(state, broker):
                bounds = protocol.bounds(broker) if protocol else UNBOUNDED
                after = state.with_replica(broker, self.parts.cleaned(number, bounds))
                yield interned(ops.CleanerPass, (broker,)), after
        aged = tuple((broker, self.parts.aged(number)) for broker, number in state.replicas)
        yield interned(ops.TimePasses), state._replace(replicas=aged)
        if protocol is not None:
            yield from self._messages(state, protocol)

    def _is_irrelevant(self, state: State, broker: int) -> bool:
        """Return whether a replica's cleaner affects no other replica, and another replica has the same violations.

        No client reads a follower that stays in sync and will never lead, and LEAVES can reach the same log.
        """
        may_lead = broker == state.leader or (state.may_change and self.bound.change in {LEADER, HAND_OVER})
        return self._is_reduced and state.protocol is None and not may_lead and broker not in self.special

    def _outage(self, state: State) -> Iterator[tuple[ops.Operation, State]]:
        if state.unassigned:
            assigned = state._replace(unassigned=False)
            yield interned(ops.AssignAgain, LEAVES), self._coordinate(assigned, Coordination.add, LEAVES)
        elif state.away:
            copied = self.parts.copied(state.replica(LEAVES), state.replica(state.leader))
            returned = state.with_replica(LEAVES, copied)._replace(away=False)
            # A replica that was assigned all the time counts already.
            yield interned(ops.Heal, ops.OUTAGE, LEAVES), self._coordinate(returned, Coordination.joined, LEAVES)
        elif state.may_leave and state.leader != LEAVES and LEAVES in dict(state.replicas):
            yield interned(ops.Inject, ops.OUTAGE, LEAVES), state._replace(away=True, may_leave=False)

    def _joining(self, state: State) -> Iterator[tuple[ops.Operation, State]]:
        number, leader = state.replica(JOINS), state.replica(state.leader)
        yield interned(ops.CopyBatch, JOINS), state.with_replica(JOINS, self.parts.copied(number, leader, 1))
        joined = state.with_replica(JOINS, self.parts.copied(number, leader))._replace(joining=False)
        yield interned(ops.JoinIsr, JOINS), self._coordinate(joined, Coordination.joined, JOINS)

    def _changes(self, state: State) -> Iterator[tuple[ops.Operation, State]]:
        changed, change = state._replace(may_change=False), self.bound.change
        followers = [broker for broker, _ in state.replicas if broker != state.leader]
        if change == LEADER or (change == HAND_OVER and state.joining):
            for broker in filter(state.is_in_sync, followers):
                progress = self.parts.progress(state.replica(broker), state.clients)
                led = self._coordinate(changed._replace(leader=broker), Coordination.elect, broker, progress)
                yield interned(ops.ElectLeader, broker), led
        elif change in {ADD, HAND_OVER} and JOINS not in dict(state.replicas):
            replicas = (*state.replicas, (JOINS, self.parts.empty))
            added = changed._replace(replicas=replicas, joining=True, may_change=change == HAND_OVER)
            yield interned(ops.AddReplica, JOINS), self._coordinate(added, Coordination.add, JOINS)
        elif change == REMOVE:
            for broker in followers:
                replicas = tuple(pair for pair in state.replicas if pair[0] != broker)
                after = changed._replace(replicas=replicas, away=state.away and broker != LEAVES)
                away = (LEAVES,) if after.away else ()
                yield interned(ops.Unassign, broker), self._coordinate(after, Coordination.remove, broker, away)
        elif change == REASSIGN and state.away:
            unassigned = changed._replace(unassigned=True)
            yield interned(ops.Unassign, LEAVES), self._coordinate(unassigned, Coordination.remove, LEAVES, ())

    def _messages(self, state: State, protocol: Coordination) -> Iterator[tuple[ops.Operation, State]]:
        for broker, number in state.replicas:
            progress = self.parts.progress(number, state.clients)
            if broker == state.leader or state.is_down(broker) or not protocol.has_new_report(broker, progress):
                continue
            change = (
                Coordination.report if self._is_delayed else partial(Coordination.receive_report, away=state.absent)
            )
            yield interned(ops.SendReport, broker), self._coordinate(state, change, broker, progress)
        for number, message in enumerate(sorted(protocol.sent), 1):
            if not state.is_down(protocol.receiver(message)):
                deliver = partial(Coordination.deliver, again=self._is_delayed and self._is_reduced)
                after = self._coordinate(state, deliver, message, state.absent)
                yield interned(ops.MessageArrives, number), after

    def normalized(self, state: State, progress: Bounds) -> State:
        """Return the state after the leader's report of its ``progress``, without parts that make no difference."""
        if state.protocol is None:
            return state
        may_elect = state.may_change and self.bound.change in {LEADER, HAND_OVER}
        return state._replace(
            protocol=self._with_progress(state.protocol, state.leader, progress, state.absent, may_elect=may_elect)
        )

    def _with_progress_reported(
        self, protocol: int, leader: int, progress: Bounds, away: tuple[int, ...], *, may_elect: bool
    ) -> int:
        reported = self.protocols[protocol].receive_report(leader, progress, away)
        if not self._is_delayed:
            reported = reported.without_stale_messages()
        elif self._is_reduced:
            reported = reported.without_ineffective_messages(may_elect=may_elect)
        return self.protocols.number(reported)

    def _coordinate(self, state: State, change: Callable[..., Coordination], *arguments: object) -> State:
        if state.protocol is None:
            return state
        return state._replace(protocol=self.protocols.number(change(self.protocols[state.protocol], *arguments)))


def _violations_of(bound: Bound) -> Callable[[Replica, ModelTruth], Iterable[str]]:
    if bound.script:
        return group_consequences
    if bound.coordinator:
        return partial(consequences, drops_pending=DROPS_PENDING[bound.coordinator])
    return violations
