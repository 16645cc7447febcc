"""A cluster on which a schedule is played, operation by operation: its state is a function of the operations alone.

`MODEL` has the operations that it performs. There are a plain client ``p``, an idempotent client ``i``, and two
transactional clients, ``t`` and ``u``. Broker 2 may be down, lag, or be unassigned meanwhile; broker 4 may be added. A
cleaner pass that keeps batches with their delete horizon keeps them until time passes: a day and an hour, which is
longer than every default timer. Where the log is one of ``__consumer_offsets`` (`harness.models.world.groups`), records
are committed offsets, and tombstones are the coordinator's, of an offset that it has.

An operation that is impossible in the current state is skipped, so that a schedule without some of its operations is a
schedule, too. Replicas in sync copy at once. Random runs (`harness.model_checking.explore`) write each batch to a
separate segment, with endless other traffic (`harness.models.log.cleaner.Cleaning.active_too`);
`harness.model_checking.conform` plays schedules here and on real brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from harness.errors import UsageError
from harness.models.log.batch import ModelBatch
from harness.models.log.cleaner import UNBOUNDED, Cleaning
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication
from harness.models.world import client_steps, coordination
from harness.models.world.coordination import CoordinationMessage
from harness.models.world.groups import load
from harness.models.world.world import (
    ABSENT,
    BROKERS,
    CLEANING,
    DAY_MS,
    HOUR_MS,
    KILL,
    NOTHING_WRITTEN,
    PAUSE,
    STEP_MS,
    STOP,
    Rules,
    StepResult,
    World,
)
from harness.schedules.operations import environment
from harness.schedules.operations.administrators import AddReplica, AssignAgain, DeleteRecords, ElectLeader, Unassign
from harness.schedules.operations.clients import End, EndElsewhere, Restart, Write, WriteBatch
from harness.schedules.operations.faults import LAG, OUTAGE, Heal, Inject
from harness.schedules.operations.operation import Operation
from harness.schedules.schedule import SchedulePlayer

ADDING: Final = "added"
"""The outage of a broker that is added, and has no log yet."""


def begin(
    rules: Rules,
    brokers: Sequence[int] = BROKERS,
    *,
    cleaning: Cleaning = CLEANING,
    rolls: Callable[[Replica, ModelBatch], bool] = lambda *_: True,
) -> World:
    """Return brokers of which the first leads, and nothing written. ``rolls``: see `Replication`."""
    replicas = {broker: _new_replica(rules, broker) for broker in brokers}
    replication = Replication(replicas, brokers[0], rolls=rolls)
    protocol = coordination.begin(brokers, brokers[0], rules.without) if rules.coordinated else None
    return World(rules, replication, protocol, cleaning)


def _new_replica(rules: Rules, broker: int) -> Replica:
    return Replica(broker, stable_at_batch=rules.version.stable_at_batch)


def play(rules: Rules, operations: Iterable[Operation]) -> World:
    """Return the cluster after a schedule."""
    world = begin(rules)
    for operation in operations:
        take(world, operation)
    return world


def take(world: World, operation: Operation) -> StepResult | None:
    """Perform an operation; None where it is impossible now. Raises `UsageError` for one that models do not perform."""
    if not MODEL.supports(operation):
        raise UsageError(f"models do not perform this operation: {operation}")
    done = ACTIONS[type(operation)](world, operation)
    if done is not None:
        if isinstance(operation, environment.TimePasses):
            world.now_ms += operation.hours * HOUR_MS or DAY_MS + HOUR_MS
        else:
            world.now_ms += STEP_MS
        if world.protocol is not None:
            leader = world.replication.leader_id
            world.coordinate(coordination.receive_report, leader, world.progress(leader), world.replication.away)
    return done


def _inject(world: World, inject: Inject) -> StepResult | None:
    broker, fault = inject.broker, inject.fault
    if broker != ABSENT or world.outage or world.replication.leader_id == broker:
        return None
    world.outage = fault
    if broker in world.replicas:
        world.replication.leave(broker)
    if fault != LAG:
        world.down.add(broker)
    return NOTHING_WRITTEN


def _copy(world: World, copy: environment.CopyBatch) -> StepResult | None:
    if copy.broker not in world.replication.away:
        return None
    world.down.discard(copy.broker)
    _before_fetch(world, copy.broker)
    world.replication.fetch(copy.broker, 1)
    return NOTHING_WRITTEN


def _before_fetch(world: World, broker: int) -> None:
    """Drop the log of a replica that has to begin its copy again (`compaction.gate.Decision.beginsAnew`)."""
    if not world.rules.fresh_copies:
        return
    replica, leader, fed_by = world.replicas[broker], world.replication.leader_id, world.fed_by.get(broker)
    is_empty, is_adding = replica.log_end == replica.log_start, broker in world.adding
    if not is_empty and (is_adding if fed_by is None else fed_by != leader):
        world.replicas[broker] = _new_replica(world.rules, broker)
        is_empty = True
    if is_empty or is_adding:
        world.fed_by[broker] = leader


def _return(world: World, broker: int) -> StepResult | None:
    if broker not in world.replication.away | world.down:
        return None
    world.down.discard(broker)
    world.stray.pop(broker, None)
    if broker not in world.replicas:
        return NOTHING_WRITTEN
    replica = world.replicas[broker]
    if world.outage == KILL:
        replica.recover()
    elif world.outage == STOP:
        replica.reopen()
    _before_fetch(world, broker)
    world.replication.come_back(broker)
    world.adding.discard(broker)
    world.fed_by.pop(broker, None)
    # A replica that was assigned all the time counts already.
    return world.coordinate(coordination.joined, broker)


def _unassign(world: World, unassign: Unassign) -> StepResult | None:
    """Unassign the replica of a broker that is down: the broker still has the log (``LogManager.isStrayReplica``)."""
    broker = unassign.broker
    if broker not in world.down or broker not in world.replicas:
        return None
    world.stray[broker] = world.replicas.pop(broker)
    world.replication.away.discard(broker)
    return world.coordinate(coordination.remove, broker, world.replication.away)


def _assign_again(world: World, assign: AssignAgain) -> StepResult | None:
    return _assign(world, world.stray.pop(assign.broker)) if assign.broker in world.stray else None


def _add(world: World, add: AddReplica) -> StepResult | None:
    if world.outage or add.broker in world.replicas:
        return None
    world.outage = ADDING
    return _assign(world, _new_replica(world.rules, add.broker))


def _assign(world: World, replica: Replica) -> StepResult:
    world.replicas[replica.broker] = replica
    world.replication.leave(replica.broker)
    world.adding.add(replica.broker)
    return world.coordinate(coordination.add, replica.broker)


def _join(world: World, join: environment.JoinIsr) -> StepResult | None:
    """Let a replica join that is being added; a broker without a replica gets one, which joins at once."""
    broker = join.broker
    if broker in world.adding:
        return _return(world, broker)
    if broker in world.replicas:
        return None
    world.replicas[broker] = _new_replica(world.rules, broker)
    world.replication.come_back(broker)
    return NOTHING_WRITTEN


def _lead(world: World, elect: ElectLeader) -> StepResult | None:
    broker = elect.broker
    if broker not in world.replication.in_sync or broker == world.replication.leader_id:
        return None
    world.coordinate(coordination.elect, broker, world.progress(broker))
    world.replication.elect(broker)
    world.replication.fetch_all()
    if world.rules.of_groups:
        # ``GroupCoordinator.onElection``
        drops_pending = world.rules.version.tombstone_drops_pending
        world.coordinator = load(world.replication.leader, drops_pending=drops_pending)
    return NOTHING_WRITTEN


def _delete(world: World, delete: DeleteRecords) -> StepResult:
    world.replication.delete_records(max(world.replication.leader.log_end - delete.keeps, 0))
    world.replication.fetch_all()
    return NOTHING_WRITTEN


def _clean(world: World, cleaner_pass: environment.CleanerPass) -> StepResult | None:
    """Run a pass of each cleaner; None where no cleaner has work, or may begin."""
    retention_ms = DAY_MS if cleaner_pass.keeps else world.cleaning.delete_retention_ms
    cleaning = replace(world.cleaning, delete_retention_ms=retention_ms)
    is_done = False
    for broker in cleaner_pass.brokers:
        if broker not in world.replicas or broker in world.down or (world.rules.gate and world.replication.away):
            continue
        bounds = world.protocol.bounds(broker) if world.protocol else UNBOUNDED
        is_done |= world.rules.system.clean(world.replicas[broker], cleaning, world.now_ms, bounds)
    return NOTHING_WRITTEN if is_done else None


def _expire(world: World, _: environment.ProducersExpire) -> StepResult:
    for broker in world.up:
        world.replicas[broker].expire(world.now_ms, 0)
    return NOTHING_WRITTEN


def _report(world: World, report: environment.SendReport) -> StepResult | None:
    protocol, broker = world.protocol, report.broker
    if protocol is None or broker not in world.replicas or broker in world.down:
        return None
    progress = world.progress(broker)
    is_new = protocol.has_new_report(broker, progress)
    return world.coordinate(coordination.report, broker, progress) if is_new else None


def _arrive(world: World, arrives: environment.MessageArrives) -> StepResult | None:
    message = _message(world, arrives.number)
    if message is None or not world.can_arrive(message):
        return None
    return world.coordinate(coordination.deliver, message, world.replication.away)


def _lose(world: World, lost: environment.MessageIsLost) -> StepResult | None:
    message = _message(world, lost.number)
    return None if message is None else world.coordinate(coordination.lose, message)


def _message(world: World, number: int) -> CoordinationMessage | None:
    return dict(enumerate(world.in_flight(), 1)).get(number)


def _all_arrive(world: World, _: environment.MessagesArrive) -> StepResult | None:
    """Let all messages arrive that can, and the messages that are sent in turn."""
    arrived = None
    while message := next(filter(world.can_arrive, world.in_flight()), None):
        arrived = world.coordinate(coordination.deliver, message, world.replication.away)
    return arrived


ACTIONS: Final[Mapping[type, Callable[[World, Any], StepResult | None]]] = {
    Write: client_steps.write,
    WriteBatch: client_steps.write_batch,
    End: client_steps.end,
    EndElsewhere: client_steps.end_elsewhere,
    Restart: client_steps.fence,
    DeleteRecords: _delete,
    ElectLeader: _lead,
    AddReplica: _add,
    Unassign: _unassign,
    AssignAgain: _assign_again,
    Inject: _inject,
    Heal: lambda world, heal: _return(world, heal.broker),
    environment.CleanerPass: _clean,
    environment.CopyBatch: _copy,
    environment.JoinIsr: _join,
    environment.ProducersExpire: _expire,
    environment.TimePasses: lambda *_: NOTHING_WRITTEN,
    environment.Rest: lambda *_: NOTHING_WRITTEN,
    environment.SendReport: _report,
    environment.MessageArrives: _arrive,
    environment.MessageIsLost: _lose,
    environment.MessagesArrive: _all_arrive,
}
"""The function of each operation that models perform."""
MODEL: Final = SchedulePlayer("models", frozenset(ACTIONS), frozenset({OUTAGE, LAG, KILL, STOP, PAUSE}))
"""Broker 2 may have these faults, once. After kill and stop it starts again; with a lag it is up."""
