"""The steps of a small cluster under faults: `faults.rules` says which faults, and which rules are in force.

Beside faults, any of these may happen, in any order:

* a client writes to the leader, and replicas in sync that do not lag copy at once; the high watermark is the least log
  end offset of the ISR
* a replica in sync leads; time passes for longer than every retention; a broker that is up runs its cleaner, as far as
  its gate lets it

A late image is late for as long as it likes, and the leader may have one, too. Each fault happens once; broker 2 is
the only one that is away, lags or loses records. Elections that lose records take plain writes only: with a lost
marker a transaction hangs on every replica, which is another matter.
"""

from __future__ import annotations

from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any

from harness.models.faults import rules as by
from harness.models.faults.events import Events
from harness.models.faults.state import FaultState, copies_at_once, is_held, is_in_sync, is_up, renamed
from harness.models.log.cleaner import UNBOUNDED, Bounds, Cleaning
from harness.models.log.effects import Effects, Slot, recorded
from harness.models.log.invariants import Truth, violations
from harness.models.log.replica import Replica
from harness.models.walk.exhaustive import Numbered
from harness.models.walk.state_space import LEAVES
from harness.models.walk.systems import KAFKA, RETENTION_MS, lowered, own_offsets
from harness.models.walk.writers import Clients, may_write
from harness.models.world.coordination import Pair, least
from harness.schedules.operations.environment import BoundsArrive, CleanerPass, TimePasses
from harness.schedules.operations.operation import interned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harness.models.faults.state import FaultBound
    from harness.models.log.batch import Batch
    from harness.schedules.operations.operation import Operation

HELD = Bounds(0, 0)
"""No tombstone and no marker is removed."""


class FaultSpace:
    """The transitions of a small cluster under faults; a `harness.models.walk.rows.Space`."""

    def __init__(self, bound: FaultBound, *, symmetric: bool = False) -> None:
        """Begin without any state; ``symmetric``: as for `harness.models.walk.state_space.StateSpace`.

        Raises ValueError where elections that lose records would meet transactions.
        """
        loses = by.UNCLEAN in bound.faults or (by.LAG in bound.faults and bound.elections > 0)
        if loses and bound.clients.transactions:
            raise ValueError("elections that lose records are modelled with plain writes only")
        self.bound = bound
        self.is_symmetric = symmetric and not self.is_coordinated
        cleaning = Cleaning(delete_retention_ms=RETENTION_MS, producer_expiration_ms=RETENTION_MS, active_too=True)
        self.effects = Effects(KAFKA, cleaning)
        self.replicas = self.effects.replicas
        self.clients = Numbered[Clients](lambda one: one)
        self.events = Events(bound, self.clients)
        for name in ("_written", "_wrong", "_own"):
            setattr(self, name, cache(getattr(self, name)))

    @property
    def start(self) -> FaultState:
        """All brokers in sync, broker 1 leads, and nothing is written."""
        clients = self.clients.number(Clients(Truth(), self.bound.clients.writes, self.bound.clients.transactions))
        replicas = tuple((one, self.replicas.number(Replica(0))) for one in range(1, self.bound.brokers + 1))
        return FaultState(clients, replicas, 1, self.bound.elections, self.bound.faults)

    @property
    def brokers(self) -> tuple[int, ...]:
        """All brokers that ever have a replica."""
        added = (self.bound.added,) if by.RELAY in self.bound.faults else ()
        return (*range(1, self.bound.brokers + 1), *added)

    @property
    def is_coordinated(self) -> bool:
        """Whether steps depend on the offsets of replicas, too (`own`)."""
        return self.bound.waits == by.COORDINATED

    def recorded_steps(self, state: FaultState, owns: Sequence[Pair]) -> Iterator[tuple[Operation, FaultState]]:
        """Yield each step, and the state after it; see `harness.models.walk.state_space.StateSpace`."""
        space: Any = copy(self)
        space.effects = recorded(self.effects)
        space._own = lambda one, clients: owns[one.number] if isinstance(one, Slot) else self._own(one, clients)  # noqa: SLF001
        yield from space.following(state)

    def in_sync(self, state: FaultState) -> list[int]:
        """Return the brokers whose replicas are in sync and have all records."""
        return [one for one, _ in state.replicas if is_in_sync(state, one, self.bound.added)]

    def wrong_of(self, number: int, clients: int) -> tuple[str, ...]:
        """Return the names of the violations of a replica in sync."""
        return self._wrong(number, clients)

    def wrong(self, state: FaultState) -> Iterator[str]:
        """Yield the names of the violations of replicas in sync."""
        for broker in self.in_sync(state):
            yield from self._wrong(state.replica(broker), state.clients)

    def own(self, number: int, clients: int) -> Pair:
        """Return a replica's MCCO and MXFO."""
        return self._own(number, clients)

    def normalized(self, state: FaultState, _: Pair) -> FaultState:
        """Return the state: bounds change in a step of their own."""
        return state

    def renamed(self, state: FaultState) -> tuple[FaultState, list[int]]:
        """Return an equivalent state under other names of brokers, and the followers in it that may change places."""
        return renamed(state, frozenset({LEAVES, self.bound.added})) if self.is_symmetric else (state, [])

    def following(self, state: FaultState) -> Iterator[tuple[Operation, FaultState]]:
        """Yield each possible step, and the state after it."""
        yield from self._writes(state)
        yield from self.events.following(state, self.effects)
        yield from self._cleanings(state)
        yield from self._time(state)
        if self.is_coordinated:
            assigned = [number for one, number in state.replicas if one != LEAVES or not state.unassigned]
            bounds = least(self._own(number, state.clients).most(state.bounds) for number in assigned)
            yield BoundsArrive(bounds.tombstones, bounds.markers), state._replace(bounds=bounds)

    def _writes(self, state: FaultState) -> Iterator[tuple[Operation, FaultState]]:
        for operation, clients, batch in self._written(state.clients):
            end = self.clients[clients].truth.log_end
            watermark = state.end if state.lags else end
            leader = self.effects.appended_up_to(state.replica(state.leader), batch, watermark)
            after = state._replace(clients=clients).with_replica(state.leader, leader)
            for broker, number in state.replicas:
                if broker != state.leader and copies_at_once(state, broker, self.bound.added):
                    after = after.with_replica(broker, self.effects.copied(number, leader, None))
            yield operation, after

    def _written(self, number: int) -> list[tuple[Operation, int, Batch]]:
        choices = may_write(self.clients[number], self.bound.clients, in_order=self.is_symmetric)
        return [(operation, self.clients.number(after), batch) for operation, after, batch in choices]

    def _cleanings(self, state: FaultState) -> Iterator[tuple[Operation, FaultState]]:
        waits, rules = self.bound.waits, self.bound.rules
        for broker, number in state.replicas:
            is_waiting = waits in {by.ALL_WAITS, by.REMOVALS_WAIT} and is_held(state, broker, rules)
            if not is_up(state, broker) or (is_waiting and waits == by.ALL_WAITS):
                continue
            limits = HELD if is_waiting else UNBOUNDED
            if self.is_coordinated:
                limits = Bounds(*state.bounds)
            past = by.BELOW_HIGH_WATERMARK not in rules
            cleaned = self.effects.cleaned_past(number, limits) if past else self.effects.cleaned(number, limits)
            after = state.with_replica(broker, cleaned)
            yield interned(CleanerPass, (broker,)), self._synced_by_cleaner(after) if broker == LEAVES else after

    def _synced_by_cleaner(self, state: FaultState) -> FaultState:
        """Return the state with broker 2's log on disk as far as its cleaner came (``Cleaner.cleanSegments``)."""
        if by.POWER not in state.may or state.away or state.lags:
            return state
        truth = self.clients[state.clients].truth
        is_open = truth.open_txn is not None
        first = min((one.offset for one in truth.wrote if is_open and one.txn == truth.open_txn), default=truth.log_end)
        return state._replace(synced=max(state.synced, first))

    def _time(self, state: FaultState) -> Iterator[tuple[Operation, FaultState]]:
        aged = tuple((one, self.effects.aged(number)) for one, number in state.replicas)
        after = state._replace(replicas=aged, late_old=bool(state.late))
        if by.POWER in state.may and not (state.away or state.lags):
            # The gate keeps the high watermarks of up to a minute before, which is less than any sensible retention.
            is_used = by.ANEW_AFTER_LOSS in self.bound.rules
            after = after._replace(checkpointed=self.clients[state.clients].truth.log_end if is_used else 0)
        yield interned(TimePasses), after

    def _own(self, number: int, clients: int) -> Pair:
        return lowered(own_offsets(KAFKA, self.replicas[number], frozenset()), self.clients[clients].truth)

    def _wrong(self, number: int, clients: int) -> tuple[str, ...]:
        return tuple(violations(self.replicas[number], self.clients[clients].truth))
