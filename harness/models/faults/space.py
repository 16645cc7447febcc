"""The steps of a small cluster under faults: `faults.state` has the faults, and the rules that are in force.

Replicas in sync that do not lag copy at once; the high watermark is the least log end offset of the ISR. A late image
is late for any length of time, and the leader may have one, too. Each fault happens once; only broker 2 goes down, lags
or loses records. Elections that lose records take plain writes only: with a lost marker a transaction hangs on every
replica, which is another matter.
"""

from collections.abc import Iterator
from dataclasses import replace

from harness.models.faults import state as by
from harness.models.faults.state import NO_BROKER, UNKNOWN_END, FaultBound, FaultState
from harness.models.log.cleaner import UNBOUNDED
from harness.models.log.invariants import violations
from harness.models.log.systems import KAFKA, lowered
from harness.models.walk.parts import ClusterParts, ClusterSpace
from harness.models.walk.state_space import LEAVES
from harness.models.world.coordination import NOTHING, least
from harness.schedules import operations as ops
from harness.schedules.operations import interned

Steps = Iterator[tuple[ops.Operation, FaultState]]


class FaultSpace(ClusterSpace):
    """The transitions of a small cluster under faults; see `harness.models.walk.state_space.StateSpace`."""

    def __init__(self, bound: FaultBound, *, symmetric: bool = False) -> None:
        """``symmetric``: see `StateSpace`. Raises ValueError where elections that lose records meet transactions."""
        loses = by.UNCLEAN in bound.faults or (by.LAG in bound.faults and bound.elections > 0)
        if loses and bound.clients.transactions:
            raise ValueError("elections that lose records are modelled with plain writes only")
        self.bound = bound
        self.is_coordinated = bound.waits == by.COORDINATED
        self.is_symmetric = symmetric and not self.is_coordinated
        self.brokers = tuple(range(1, bound.added + (by.RELAY in bound.faults)))
        self.special = frozenset({LEAVES, bound.added})
        self.parts = ClusterParts(
            bound.clients,
            KAFKA,
            progress=lambda replica, truth: lowered(KAFKA.progress(replica), truth),
            violations=violations,
            in_order=self.is_symmetric,
        )

    @property
    def start(self) -> FaultState:
        """All brokers in sync, broker 1 leads, and nothing is written."""
        replicas = tuple((broker, self.parts.empty) for broker in range(1, self.bound.added))
        return FaultState(self.parts.no_writes, replicas, 1, self.bound.elections, self.bound.faults)

    def following(self, state: FaultState) -> Steps:
        """Yield each possible step, and the state after it."""
        yield from self.writes(state, state.copies_at_once, state.end if state.lags else None)
        yield from self._elections(state)
        if state.lags:
            yield from self._lagging(state)
        elif state.away:
            yield from self._away(state)
        elif state.leader != LEAVES and state.is_in_sync(LEAVES):
            yield from self._leaving(state)
        yield from self._truncating(state)
        yield from self._added(state)
        yield from self._images(state)
        yield from self._cleanings(state)
        yield interned(ops.TimePasses), self._aged(state)
        if self.is_coordinated:
            assigned = [number for broker, number in state.replicas if broker != LEAVES or not state.unassigned]
            bounds = least(self.parts.progress(number, state.clients).most(state.bounds) for number in assigned)
            yield ops.BoundsArrive(bounds.tombstones, bounds.markers), state._replace(bounds=bounds)

    steps = following

    def _cleanings(self, state: FaultState) -> Steps:
        waits, rules = self.bound.waits, self.bound.rules
        clean = self.parts.cleaned if by.BELOW_HIGH_WATERMARK in rules else self.parts.cleaned_past
        for broker, number in state.replicas:
            is_waiting = waits in {by.ALL_WAITS, by.REMOVALS_WAIT} and state.is_held(broker, rules)
            if not state.is_up(broker) or (is_waiting and waits == by.ALL_WAITS):
                continue
            bounds = state.bounds if self.is_coordinated else NOTHING if is_waiting else UNBOUNDED
            after = state.with_replica(broker, clean(number, bounds))
            yield interned(ops.CleanerPass, (broker,)), self._synced_by_cleaner(after) if broker == LEAVES else after

    def _synced_by_cleaner(self, state: FaultState) -> FaultState:
        """Return the state with broker 2's log on disk up to the end of the pass (``Cleaner.cleanSegments``)."""
        if by.POWER not in state.may or state.away or state.lags:
            return state
        truth = self.parts.clients[state.clients].truth
        in_open_txn = (r.offset for r in truth.wrote if r.txn is not None and r.txn == truth.open_txn)
        return state._replace(synced=max(state.synced, min(in_open_txn, default=truth.log_end)))

    def _aged(self, state: FaultState) -> FaultState:
        aged = tuple((broker, self.parts.aged(number)) for broker, number in state.replicas)
        after = state._replace(replicas=aged, late_old=bool(state.late))
        if by.POWER not in state.may or state.away or state.lags:
            return after
        # The gate keeps the high watermarks of up to a minute before, which is less than any sensible retention.
        return after._replace(checkpointed=self._end(state) if by.ANEW_AFTER_LOSS in self.bound.rules else 0)

    def _end(self, state: FaultState) -> int:
        return self.parts.clients[state.clients].truth.log_end

    def _leaving(self, state: FaultState) -> Steps:
        end, replica = self._end(state), state.replica(LEAVES)
        is_late = state.late == LEAVES
        if by.OUTAGE in state.may and not is_late:
            yield interned(ops.Inject, by.OUTAGE, LEAVES), state.after(by.OUTAGE, away=True, end=end)
        if by.LAG in state.may:
            yield interned(ops.Inject, by.LAG, LEAVES), state.after(by.LAG, lags=True, end=end)
        if by.POWER in state.may and not is_late:
            for first in range(state.synced, end):
                below = by.ANEW_AFTER_LOSS in self.bound.rules and first < state.checkpointed
                lost = state.after(by.POWER, away=True, end=first, synced=0, checkpointed=0, lost=below)
                truncated = self.parts.truncated(replica, first)
                yield interned(ops.LosePower, LEAVES, first), lost.with_replica(LEAVES, truncated)
        if by.DISK in state.may and not is_late:
            lost = state.after(by.DISK, away=True, copying=True, first_copy=True)
            yield interned(ops.Inject, by.DISK, LEAVES), lost.with_replica(LEAVES, self.parts.empty)

    def _lagging(self, state: FaultState) -> Steps:
        """Yield the ends of a lag: then all replicas that do not lag have a high watermark at the log end."""
        after = state._replace(lags=False)
        for broker, number in state.replicas:
            if state.copies_at_once(broker):
                after = after.with_replica(broker, self.parts.watermarked(number, self._end(state)))
        caught_up = self.parts.copied(after.replica(LEAVES), after.replica(after.leader))
        yield interned(ops.Heal, by.LAG, LEAVES), after._replace(end=UNKNOWN_END).with_replica(LEAVES, caught_up)
        yield interned(ops.LeaveIsr, LEAVES), after._replace(away=True, copying=True)

    def _away(self, state: FaultState) -> Steps:
        if state.unassigned:
            yield interned(ops.AssignAgain, LEAVES), state._replace(unassigned=False, adding=True)
            return
        if state.is_up(state.leader) and (not state.adding or state.may_fetch_as_added):
            begun, leader = self._begun(state)._replace(end=UNKNOWN_END), state.replica(state.leader)
            if state.copying or state.adding or state.lost:
                copied = self.parts.copied(begun.replica(LEAVES), leader, 1)
                yield interned(ops.CopyBatch, LEAVES), begun._replace(copying=True).with_replica(LEAVES, copied)
            copied = self.parts.copied(begun.replica(LEAVES), leader)
            yield interned(ops.Heal, by.OUTAGE, LEAVES), begun.with_replica(LEAVES, copied).rejoined()
        if by.REASSIGN in state.may and not state.copying:
            yield interned(ops.Unassign, LEAVES), state.after(by.REASSIGN, unassigned=True)
        if by.RESTART in state.may and state.copying and not state.adding:
            knows = state.first_copy and by.FIRST_COPY_ON_DISK in self.bound.rules
            yield interned(ops.Inject, by.RESTART, LEAVES), state.after(by.RESTART, first_copy=knows)
        if by.UNCLEAN in state.may and state.end != UNKNOWN_END and not state.adding and not state.joining:
            leader = self.parts.watermarked(state.replica(LEAVES), state.end)
            truncating = tuple((broker, state.end) for broker, _ in state.replicas if broker != LEAVES)
            led = state.after(by.UNCLEAN, leader=LEAVES, truncating=truncating, cut=NO_BROKER).rejoined()
            led = self._without_records_from(led.with_replica(LEAVES, leader), state.end)
            yield interned(ops.Inject, by.UNCLEAN, LEAVES), led

    def _begun(self, state: FaultState) -> FaultState:
        """Return the state as broker 2 begins to fetch: without its old log, if a rule makes it drop the log."""
        is_added = state.adding and by.ADDED_BEGINS_EMPTY in self.bound.rules
        if state.copying or not (is_added or state.lost):
            return state
        return state._replace(first_copy=True, lost=False).with_replica(LEAVES, self.parts.empty)

    def _without_records_from(self, state: FaultState, end: int) -> FaultState:
        """Return the state without the records from an offset on: the leader does not have them."""
        clients = self.parts.clients[state.clients]
        wrote = tuple(record for record in clients.truth.wrote if record.offset < end)
        cut = clients._replace(truth=replace(clients.truth, wrote=wrote))
        return state._replace(clients=self.parts.clients.number(cut))

    def _truncating(self, state: FaultState) -> Steps:
        for broker, end in state.truncating:
            copied = self.parts.copied(self._truncated(state.replica(broker), end), state.replica(state.leader))
            others = tuple(pair for pair in state.truncating if pair[0] != broker)
            yield interned(ops.Heal, by.OUTAGE, broker), state._replace(truncating=others).with_replica(broker, copied)

    def _truncated(self, number: int, end: int) -> int:
        return self.parts.truncated(number, end, by.ANEW_AFTER_TRUNCATION in self.bound.rules)

    def _elections(self, state: FaultState) -> Steps:
        for broker, _ in state.replicas if state.elections else ():
            is_laggard = broker == LEAVES and state.lags
            if broker in {state.leader, state.late} or not (is_laggard or state.is_in_sync(broker)):
                continue
            led = self._restarted_copies(state._replace(leader=broker, elections=state.elections - 1))
            yield interned(ops.ElectLeader, broker), self._led_by_laggard(led) if is_laggard else led

    def _restarted_copies(self, state: FaultState) -> FaultState:
        """Return the state in which first copies begin from scratch, as the leader has changed."""
        if by.ANEW_WITH_LEADER not in self.bound.rules:
            return state
        if state.joining:
            state = state.with_replica(state.joining, self.parts.empty)
        if state.away and state.copying and (state.adding or state.first_copy):
            state = state._replace(first_copy=True).with_replica(LEAVES, self.parts.empty)
        return state

    def _led_by_laggard(self, state: FaultState) -> FaultState:
        """Return the state as broker 2 leads and lagged inside the ISR: the others truncate to its log end."""
        end = state.end
        leader = self.parts.watermarked(state.replica(LEAVES), end)
        after = state._replace(lags=False, end=UNKNOWN_END).with_replica(LEAVES, leader)
        for broker, number in state.replicas:
            if broker != LEAVES and state.copies_at_once(broker):
                after = after.with_replica(broker, self.parts.copied(self._truncated(number, end), leader))
        return self._without_records_from(after, end)

    def _added(self, state: FaultState) -> Steps:
        added = self.bound.added
        if by.RELAY in state.may:
            replicas = (*state.replicas, (added, self.parts.empty))
            yield interned(ops.AddReplica, added), state.after(by.RELAY, replicas=replicas, joining=added)
        if state.joining and state.is_up(state.leader) and state.may_fetch_as_added:
            number, leader = state.replica(added), state.replica(state.leader)
            yield interned(ops.CopyBatch, added), state.with_replica(added, self.parts.copied(number, leader, 1))
            joined = state._replace(joining=NO_BROKER).with_replica(added, self.parts.copied(number, leader))
            yield interned(ops.JoinIsr, added), joined

    def _images(self, state: FaultState) -> Steps:
        current = state._replace(cut=NO_BROKER, late=NO_BROKER, late_open=False, late_adding=False, late_old=False)
        if state.cut:
            yield interned(ops.Heal, by.ISOLATED, state.cut), current
        elif state.late:
            yield interned(ops.Heal, by.LATE, state.late), current
        else:
            for broker in (broker for broker, _ in state.replicas if state.is_in_sync(broker)):
                if by.LATE in state.may:
                    yield interned(ops.Inject, by.LATE, broker), self._frozen(state.after(by.LATE), broker)
                if by.ISOLATED in state.may and broker not in {state.leader, LEAVES}:
                    cut = self._frozen(state.after(by.ISOLATED), broker)
                    yield interned(ops.Inject, by.ISOLATED, broker), cut._replace(cut=broker)

    def _frozen(self, state: FaultState, broker: int) -> FaultState:
        return state._replace(
            late=broker, late_open=state.is_open(self.bound.rules), late_adding=bool(state.joining) or state.adding
        )
