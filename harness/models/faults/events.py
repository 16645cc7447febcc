"""The steps of faults and elections in a small cluster: what each makes of the state (`faults.space`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.models.faults import rules as by
from harness.models.faults.state import (
    NO_BROKER,
    UNKNOWN_END,
    copies_at_once,
    is_in_sync,
    is_open,
    is_up,
    may_fetch_as_added,
)
from harness.models.log.replica import Replica
from harness.models.walk.state_space import LEAVES
from harness.schedules.operations.administrators import AddReplica, AssignAgain, ElectLeader, Unassign
from harness.schedules.operations.environment import CopyBatch, JoinIsr, LeaveIsr
from harness.schedules.operations.faults import (
    ISOLATED,
    LAG,
    LATE_METADATA,
    LOST_DISK,
    OUTAGE,
    RESTARTED,
    UNCLEAN_ELECTION,
    Heal,
    Inject,
    LosePower,
)
from harness.schedules.operations.operation import interned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.models.faults.state import FaultBound, FaultState
    from harness.models.log.effects import Effects
    from harness.models.walk.exhaustive import Numbered
    from harness.models.walk.writers import Clients
    from harness.schedules.operations.operation import Operation

    Steps = Iterator[tuple[Operation, FaultState]]


@dataclass(frozen=True)
class Events:
    """The events of a bound; ``clients``: the numbered states of the clients."""

    bound: FaultBound
    clients: Numbered[Clients]

    def following(self, state: FaultState, effects: Effects) -> Steps:
        """Yield each event that is possible, and the state after it."""
        yield from self._elections(state, effects)
        if state.lags:
            yield from self._lagging(state, effects)
        elif state.away:
            yield from self._away(state, effects)
        elif state.leader != LEAVES and is_in_sync(state, LEAVES, self.bound.added):
            yield from self._leaving(state, effects)
        yield from self._truncating(state, effects)
        yield from self._added(state, effects)
        yield from self._images(state)

    def _has(self, rule: str) -> bool:
        return rule in self.bound.rules

    def _end(self, state: FaultState) -> int:
        return self.clients[state.clients].truth.log_end

    # Broker 2.

    def _leaving(self, state: FaultState, effects: Effects) -> Steps:
        end, mine = self._end(state), state.replica(LEAVES)
        is_named = state.late == LEAVES
        if by.OUTAGE in state.may and not is_named:
            yield interned(Inject, OUTAGE, LEAVES), state.after(by.OUTAGE, away=True, end=end)
        if by.LAG in state.may:
            yield interned(Inject, LAG, LEAVES), state.after(by.LAG, lags=True, end=end)
        if by.POWER in state.may and not is_named:
            for first in range(state.synced, end):
                below = self._has(by.ANEW_AFTER_LOSS) and first < state.checkpointed
                lost = state.after(by.POWER, away=True, end=first, synced=0, checkpointed=0, lost=below)
                yield interned(LosePower, LEAVES, first), lost.with_replica(LEAVES, effects.truncated(mine, first))
        if by.DISK in state.may and not is_named:
            lost = state.after(by.DISK, away=True, copying=True, first_copy=True)
            yield interned(Inject, LOST_DISK, LEAVES), lost.with_replica(LEAVES, effects.emptied(mine))

    def _lagging(self, state: FaultState, effects: Effects) -> Steps:
        after = self._with_high_watermark(state, effects)
        caught_up = effects.copied(after.replica(LEAVES), after.replica(state.leader), None)
        yield (
            interned(Heal, LAG, LEAVES),
            after._replace(lags=False, end=UNKNOWN_END).with_replica(LEAVES, caught_up),
        )
        yield interned(LeaveIsr, LEAVES), after._replace(lags=False, away=True, copying=True)

    def _with_high_watermark(self, state: FaultState, effects: Effects) -> FaultState:
        """Return the state with the high watermark at the log end, on all replicas that do not lag."""
        end = self._end(state)
        for broker, number in state.replicas:
            if copies_at_once(state, broker, self.bound.added):
                state = state.with_replica(broker, effects.watermarked(number, end))
        return state

    def _away(self, state: FaultState, effects: Effects) -> Steps:
        if state.unassigned:
            yield interned(AssignAgain, LEAVES), state._replace(unassigned=False, adding=True)
            return
        leader = state.replica(state.leader)
        if is_up(state, state.leader) and (not state.adding or may_fetch_as_added(state)):
            begun = self._begun(state, effects)
            if state.copying or state.adding or state.lost:
                copied = effects.copied(begun.replica(LEAVES), leader, 1)
                partly = begun._replace(copying=True, end=UNKNOWN_END).with_replica(LEAVES, copied)
                yield interned(CopyBatch, LEAVES), partly
            whole = effects.copied(begun.replica(LEAVES), leader, None)
            back = begun._replace(away=False, copying=False, adding=False, first_copy=False, end=UNKNOWN_END)
            yield interned(Heal, OUTAGE, LEAVES), back.with_replica(LEAVES, whole)
        if by.REASSIGN in state.may and not state.copying:
            yield interned(Unassign, LEAVES), state.after(by.REASSIGN, unassigned=True)
        if by.RESTART in state.may and state.copying and not state.adding:
            knows = state.first_copy and self._has(by.FIRST_COPY_ON_DISK)
            yield interned(Inject, RESTARTED, LEAVES), state.after(by.RESTART, first_copy=knows)
        if by.UNCLEAN in state.may and state.end != UNKNOWN_END and not state.adding and not state.joining:
            yield interned(Inject, UNCLEAN_ELECTION, LEAVES), self._lost(self._led_uncleanly(state, effects), state.end)

    def _begun(self, state: FaultState, effects: Effects) -> FaultState:
        """Return the state as broker 2 begins to fetch: without its old log, where that is worth nothing any more."""
        is_added = state.adding and self._has(by.ADDED_BEGINS_EMPTY)
        if state.copying or not (is_added or state.lost):
            return state
        begun = state._replace(first_copy=True, lost=False)
        return begun.with_replica(LEAVES, effects.emptied(state.replica(LEAVES)))

    def _led_uncleanly(self, state: FaultState, effects: Effects) -> FaultState:
        """Return the state with broker 2 as the leader, and all others down."""
        truncating = tuple((broker, state.end) for broker, _ in state.replicas if broker != LEAVES)
        led = state.after(
            by.UNCLEAN, leader=LEAVES, away=False, copying=False, first_copy=False, lost=False, end=UNKNOWN_END
        )
        leader = effects.watermarked(state.replica(LEAVES), state.end)
        return led._replace(truncating=truncating, cut=NO_BROKER).with_replica(LEAVES, leader)

    def _lost(self, state: FaultState, end: int) -> FaultState:
        """Return the state without the records from an offset on: the leader does not have them."""
        clients = self.clients[state.clients]
        wrote = tuple(one for one in clients.truth.wrote if one.offset < end)
        cut = clients._replace(truth=replace(clients.truth, wrote=wrote))
        return state._replace(clients=self.clients.number(cut))

    # Other brokers.

    def _truncating(self, state: FaultState, effects: Effects) -> Steps:
        for broker, end in state.truncating:
            truncated = self._truncated(state.replica(broker), end, effects)
            copied = effects.copied(truncated, state.replica(state.leader), None)
            others = tuple(one for one in state.truncating if one[0] != broker)
            yield interned(Heal, OUTAGE, broker), state._replace(truncating=others).with_replica(broker, copied)

    def _truncated(self, number: int, end: int, effects: Effects) -> int:
        return effects.rejoined(number, end, self._has(by.ANEW_AFTER_TRUNCATION))

    def _elections(self, state: FaultState, effects: Effects) -> Steps:
        if not state.elections:
            return
        for broker, _ in state.replicas:
            may_lead = is_in_sync(state, broker, self.bound.added) or (broker == LEAVES and state.lags)
            if broker == state.leader or not may_lead or broker == state.late:
                continue
            led = self._anew(state._replace(leader=broker, elections=state.elections - 1), effects)
            yield (
                interned(ElectLeader, broker),
                self._led_by_laggard(led, effects) if broker == LEAVES and state.lags else led,
            )

    def _anew(self, state: FaultState, effects: Effects) -> FaultState:
        """Return the state in which first copies begin anew, as the leader has changed."""
        if not self._has(by.ANEW_WITH_LEADER):
            return state
        if state.joining:
            state = state.with_replica(self.bound.added, effects.emptied(state.replica(self.bound.added)))
        if state.away and state.copying and (state.adding or state.first_copy):
            state = state._replace(first_copy=True).with_replica(LEAVES, effects.emptied(state.replica(LEAVES)))
        return state

    def _led_by_laggard(self, state: FaultState, effects: Effects) -> FaultState:
        """Return the state as broker 2 leads and lagged inside the ISR: the others truncate to its log end."""
        end = state.end
        leader = effects.watermarked(state.replica(LEAVES), end)
        after = state._replace(lags=False, end=UNKNOWN_END).with_replica(LEAVES, leader)
        for broker, number in state.replicas:
            if broker != LEAVES and copies_at_once(state, broker, self.bound.added):
                copied = effects.copied(self._truncated(number, end, effects), leader, None)
                after = after.with_replica(broker, copied)
        return self._lost(after, end)

    def _added(self, state: FaultState, effects: Effects) -> Steps:
        added = self.bound.added
        if by.RELAY in state.may:
            replicas = (*state.replicas, (added, effects.replicas.number(Replica(0))))
            yield interned(AddReplica, added), state.after(by.RELAY, replicas=replicas, joining=True)
        if state.joining and is_up(state, state.leader) and may_fetch_as_added(state):
            mine, leader = state.replica(added), state.replica(state.leader)
            yield interned(CopyBatch, added), state.with_replica(added, effects.copied(mine, leader, 1))
            joined = state._replace(joining=False)
            yield interned(JoinIsr, added), joined.with_replica(added, effects.copied(mine, leader, None))

    def _images(self, state: FaultState) -> Steps:
        if state.cut:
            connected = state._replace(cut=NO_BROKER)
            yield interned(Heal, ISOLATED, state.cut), _with_current_image(connected)
        elif state.late:
            yield interned(Heal, LATE_METADATA, state.late), _with_current_image(state)
        else:
            for broker in (one for one, _ in state.replicas if is_in_sync(state, one, self.bound.added)):
                if by.LATE in state.may:
                    yield interned(Inject, LATE_METADATA, broker), self._frozen(state.after(by.LATE), broker)
                if by.ISOLATED in state.may and broker not in {state.leader, LEAVES}:
                    cut = self._frozen(state.after(by.ISOLATED), broker)
                    yield interned(Inject, ISOLATED, broker), cut._replace(cut=broker)

    def _frozen(self, state: FaultState, broker: int) -> FaultState:
        """Return the state in which a broker gets no later image than the current one."""
        return state._replace(
            late=broker, late_open=is_open(state, self.bound.rules), late_adding=state.joining or state.adding
        )


def _with_current_image(state: FaultState) -> FaultState:
    return state._replace(late=NO_BROKER, late_open=False, late_adding=False, late_old=False)
