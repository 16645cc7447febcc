"""A cluster on which a schedule is played, operation by operation: its state is a function of the operations alone.

`MODEL` has the operations that it performs. There are a plain client ``p``, an idempotent client ``i``, and two
transactional clients, ``t`` and ``u``. Broker 2 may be down, or join. A cleaner pass that keeps batches with their
delete horizon keeps them until time passes: a day and an hour, which is longer than every default timer. Where the log
is one of ``__consumer_offsets`` (`harness.models.world.groups`), records are committed offsets, and tombstones are the
coordinator's, of an offset that it has.

An operation that is impossible in the current state is skipped, so that a schedule without some of its operations is a
schedule, too. Replicas in sync copy at once. `harness.model_checking.conform` plays schedules here and on real brokers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from harness.errors import UsageError
from harness.models.log.batch import ModelBatch
from harness.models.log.cleaner import UNBOUNDED, Cleaning
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication
from harness.models.log.systems import KAFKA
from harness.models.world import client_steps
from harness.models.world.groups import load
from harness.models.world.world import (
    ABSENT,
    BROKERS,
    CLEANING,
    DAY_MS,
    HOUR_MS,
    KILL,
    PAUSE,
    STEP_MS,
    STOP,
    Rules,
    World,
)
from harness.schedules.operations import (
    OUTAGE,
    CleanerPass,
    DeleteRecords,
    ElectLeader,
    End,
    EndElsewhere,
    Heal,
    Inject,
    JoinIsr,
    Operation,
    ProducersExpire,
    Rest,
    Restart,
    TimePasses,
    Write,
    WriteBatch,
)
from harness.schedules.schedule import SchedulePlayer


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
    return World(rules, replication, cleaning)


def _new_replica(rules: Rules, broker: int) -> Replica:
    return Replica(broker, stable_at_batch=rules.version.stable_at_batch)


def take(world: World, operation: Operation) -> bool:
    """Perform an operation, and return whether it is possible now.

    Raises `UsageError` for an operation that models do not perform.
    """
    if not MODEL.supports(operation):
        raise UsageError(f"models do not perform this operation: {operation}")
    done = ACTIONS[type(operation)](world, operation)
    if done:
        passes = isinstance(operation, TimePasses)
        world.now_ms += DAY_MS + HOUR_MS if passes else STEP_MS
    return done


def _inject(world: World, inject: Inject) -> bool:
    broker, fault = inject.broker, inject.fault
    if broker != ABSENT or world.outage or world.replication.leader_id == broker:
        return False
    world.outage = fault
    if broker in world.replicas:
        world.replication.leave(broker)
    world.down.add(broker)
    return True


def _return(world: World, broker: int) -> bool:
    if broker not in world.replication.away | world.down:
        return False
    world.down.discard(broker)
    if broker not in world.replicas:
        return True
    replica = world.replicas[broker]
    if world.outage == KILL:
        replica.recover()
    elif world.outage == STOP:
        replica.reopen()
    world.replication.come_back(broker)
    return True


def _join(world: World, join: JoinIsr) -> bool:
    """Give a broker without a replica one, which joins at once."""
    broker = join.broker
    if broker in world.replicas:
        return False
    world.replicas[broker] = _new_replica(world.rules, broker)
    world.replication.come_back(broker)
    return True


def _lead(world: World, elect: ElectLeader) -> bool:
    broker = elect.broker
    if broker not in world.replication.in_sync or broker == world.replication.leader_id:
        return False
    world.replication.elect(broker)
    world.replication.fetch_all()
    if world.rules.of_groups:
        # ``GroupCoordinator.onElection``
        drops_pending = world.rules.version.tombstone_drops_pending
        world.coordinator = load(world.replication.leader, drops_pending=drops_pending)
    return True


def _delete(world: World, delete: DeleteRecords) -> bool:
    world.replication.delete_records(max(world.replication.leader.log_end - delete.keeps, 0))
    world.replication.fetch_all()
    return True


def _clean(world: World, cleaner_pass: CleanerPass) -> bool:
    """Run a pass of each cleaner, and return whether any has work."""
    retention_ms = DAY_MS if cleaner_pass.keeps else world.cleaning.delete_retention_ms
    cleaning = replace(world.cleaning, delete_retention_ms=retention_ms)
    is_done = False
    for broker in cleaner_pass.brokers:
        if broker in world.replicas and broker not in world.down:
            is_done |= KAFKA.clean(world.replicas[broker], cleaning, world.now_ms, UNBOUNDED)
    return is_done


def _expire(world: World, _: ProducersExpire) -> bool:
    for broker in world.up:
        world.replicas[broker].expire(world.now_ms, 0)
    return True


ACTIONS: Final[Mapping[type, Callable[[World, Any], bool]]] = {
    Write: client_steps.write,
    WriteBatch: client_steps.write_batch,
    End: client_steps.end,
    EndElsewhere: client_steps.end_elsewhere,
    Restart: client_steps.fence,
    DeleteRecords: _delete,
    ElectLeader: _lead,
    Inject: _inject,
    Heal: lambda world, heal: _return(world, heal.broker),
    CleanerPass: _clean,
    JoinIsr: _join,
    ProducersExpire: _expire,
    TimePasses: lambda *_: True,
    Rest: lambda *_: True,
}
"""The function of each operation that models perform."""
MODEL: Final = SchedulePlayer("models", frozenset(ACTIONS), frozenset({OUTAGE, KILL, STOP, PAUSE}))
"""Broker 2 may have these faults, once. After kill and stop it starts again."""
