"""A cluster on which a schedule is played, step by step: its state is a function of the steps alone.

The steps are short sentences, so that they can be stored, read and left out one by one:

* ``p puts K``, ``t deletes L``, ``t commits``, ``u aborts``: a plain client, and two transactional ones
* ``i writes K -L``: one batch of several records, where ``-L`` is a tombstone; ``i`` is an idempotent client
* ``t commits, having written nothing here``: a transaction that had registered this partition, a lone marker
* ``u begins anew, and is aborted``: its coordinator aborts its open transaction with a higher epoch
* ``2 leaves``: broker 2 is down; ``2 lags``: it is up, and far behind; ``2 copies a batch``, ``2 returns``
* ``2 is killed``, ``2 is stopped``, ``2 is paused``: broker 2 is down, and has to restart in the first two cases
* ``2 is unassigned``, ``2 is assigned again``: while broker 2 is down; it still has its log, unless it returns before
* ``4 is added``, ``4 copies a batch``, ``4 joins``: a replica is added, and copies slowly; ``2 joins``: at once
* ``3 leads``, ``records before 5 are deleted``, ``producers expire``: all those without an open transaction
* ``1 cleans``: a pass that changes something; ``1, 3 clean``: a pass of each, if anything is dirty; ``1, 3 clean and
  keep``: batches that get their delete horizon are kept until time passes
* ``an hour passes``, ``time passes`` (a day and an hour: longer than every default timer), ``rest`` (nothing happens)
* where the log is one of ``__consumer_offsets`` (`harness.models.world.groups`), records are committed offsets: ``p
deletes K`` and
  ``p writes -K`` are the coordinator's, of an offset that it has
* with coordination: ``3 reports``, ``message 2 arrives``, ``message 2 is lost``, ``messages arrive``

A step that is impossible in the current state is skipped, so that a schedule without some of its steps is a schedule,
too. Replicas in sync copy what is written at once. Random runs (`harness.model_checking.explore`) write each batch to a
segment of its own, with endless other traffic (`harness.models.log.cleaner.Cleaning.active_too`);
`harness.model_checking.conform` plays schedules here and on real brokers.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from harness.broker_files.segments.markers import ABORT, marker_record
from harness.broker_files.segments.records import Record
from harness.models.log.batch import Batch
from harness.models.log.cleaner import UNBOUNDED
from harness.models.log.invariants import Txn, Wrote
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication
from harness.models.world import coordination
from harness.models.world.world import (
    ABSENT,
    ADDED,
    BROKERS,
    CLEANING,
    DAY_MS,
    HOUR_MS,
    IDEMPOTENT,
    KILL,
    NOTHING_HERE,
    NOTHING_WRITTEN,
    OUTCOMES,
    PAUSE,
    PLAIN,
    PRODUCERS,
    STEP_MS,
    STOP,
    Done,
    Open,
    World,
)
from harness.run_folder.history import HEADER_TXN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from harness.models.log.cleaner import Cleaning
    from harness.models.world.world import Client, Rules

    _Step = tuple[Callable[..., Done | None], object, object]
    _OfBroker = Callable[[World, int, str], Done | None]


def begin(
    rules: Rules,
    brokers: Sequence[int] = BROKERS,
    *,
    cleaning: Cleaning = CLEANING,
    rolls: Callable[[Replica, Batch], bool] = lambda *_: True,
) -> World:
    """Return brokers of which the first one leads, and nothing written. ``rolls``: see `Replication`."""
    replicas = {broker: _new_replica(rules, broker) for broker in brokers}
    replication = Replication(replicas, brokers[0], rolls=rolls)
    protocol = coordination.begin(brokers, brokers[0], rules.without) if rules.coordinated else None
    return World(rules, replication, protocol, cleaning)


def _new_replica(rules: Rules, broker: int) -> Replica:
    return Replica(broker, stable_at_batch=rules.version.stable_at_batch)


def play(rules: Rules, steps: Iterable[str]) -> World:
    """Return the cluster after a schedule."""
    world = begin(rules)
    for step in steps:
        take(world, step)
    return world


def take(world: World, step: str) -> Done | None:
    """Take a step; None where it is impossible now. Raises ``ValueError`` for a string that is no step."""
    action, subject, rest = _parsed(step)
    done = action(world, subject, rest)
    if done is not None:
        world.now_ms += _LASTS_MS.get(step, STEP_MS)
        if world.protocol is not None:
            leader = world.replication.leader_id
            world.protocol = coordination.receive_report(
                world.protocol, leader, world.own(leader), world.replication.away
            )
    return done


# Clients.


def _put(world: World, who: str, what: str) -> Done | None:
    verb, key = what.split()
    deletes = verb == "deletes"
    if deletes and not any(one.key == key for one in world.wrote):
        return None
    return _write(world, who, (f"-{key}" if deletes else key,))


def _write(world: World, who: str, records: Sequence[str]) -> Done | None:
    if not all(world.may_delete(who, one[1:]) for one in records if one[0] == "-"):
        return None
    client, base = world.clients.get(who), world.replication.leader.log_end
    if client is not None and client.transactional and client.open is None:
        client.begun += 1
        client.open = Open(len(world.txns), client.begun)
        world.txns.append(Txn())
    txn = client.open if client else None
    headers = ((HEADER_TXN, f"{who}/{txn.nth}".encode()),) if txn else ()
    made = tuple(
        Record(offset, world.now_ms, key, value, headers)
        for offset, (key, value) in enumerate(keys_and_values(records), base)
    )
    for one in made:
        producer_id = client.producer_id if client else None
        key = (one.key or b"").decode()
        world.wrote.append(Wrote(one.offset, key, one.value is None, txn.number if txn else None, producer_id))
    batch = _batch(world, made, client)
    if client and not world.rules.of_groups:
        # Coordinators write each batch with sequence number 0 (``GroupMetadataManager``, ``CoordinatorRuntime``).
        client.sequence += len(made)
    world.append(batch)
    return Done(batch, txn)


def keys_and_values(records: Iterable[str]) -> list[tuple[bytes, bytes | None]]:
    """Return the records of a step such as ``i writes K -L``: a tombstone is written with a minus."""
    return [(word.removeprefix("-").encode(), None if word[0] == "-" else b"v") for word in records]


def _end(world: World, who: str, verb: str) -> Done | None:
    client = world.clients[who]
    if client.open is None:
        return None
    if world.rules.epoch_bump:
        client.raise_epoch()
    return _decide(world, client, OUTCOMES[verb])


def _fence(world: World, who: str, _: str) -> Done | None:
    client = world.clients[who]
    if client.open is None:
        return None
    client.raise_epoch()
    done = _decide(world, client, ABORT)
    client.raise_epoch()
    return done


def _decide(world: World, client: Client, outcome: str) -> Done:
    """Append the marker of a client's transaction."""
    txn, client.open = client.open, None
    record = marker_record(world.replication.leader.log_end, world.now_ms, outcome)
    batch = _batch(world, (record,), client, control=True)
    world.append(batch)
    if txn is not None:
        world.txns[txn.number] = Txn(outcome, batch.base_offset)
    return Done(batch, txn)


def _end_elsewhere(world: World, who: str, verb: str) -> Done | None:
    """End a transaction that wrote nothing here; version 2 registers only the partitions that it writes to."""
    client = world.clients[who]
    if client.open is not None or world.rules.epoch_bump:
        return None
    return _decide(world, client, OUTCOMES[verb])


def _batch(world: World, records: tuple[Record, ...], client: Client | None, *, control: bool = False) -> Batch:
    return Batch(
        base_offset=records[0].offset,
        last_offset=records[-1].offset,
        records=records,
        max_timestamp_ms=world.now_ms,
        leader_epoch=world.replication.leader_epoch,
        producer_id=client.producer_id if client else -1,
        producer_epoch=client.epoch if client else -1,
        base_sequence=client.sequence if client and not control else -1,
        transactional=client is not None and client.transactional,
        control=control,
    )


# Brokers.


def _leave(world: World, broker: int, how: str) -> Done | None:
    if world.outage or world.replication.leader_id == broker:
        return None
    world.outage = how
    if broker in world.replicas:
        world.replication.leave(broker)
    if how != "lags":
        world.down.add(broker)
    return NOTHING_WRITTEN


def _copy(world: World, broker: int, _: str) -> Done | None:
    if broker not in world.replication.away:
        return None
    world.down.discard(broker)
    _before_fetch(world, broker)
    world.replication.fetch(broker, 1)
    return NOTHING_WRITTEN


def _before_fetch(world: World, broker: int) -> None:
    """Drop the log of a replica that has to begin its copy anew (`compaction.gate.Decision.beginsAnew`)."""
    if not world.rules.fresh_copies:
        return
    replica, leader, fed_by = world.replicas[broker], world.replication.leader_id, world.fed_by.get(broker)
    is_empty, is_adding = replica.log_end == replica.log_start, broker in world.adding
    if not is_empty and (is_adding if fed_by is None else fed_by != leader):
        world.replicas[broker] = _new_replica(world.rules, broker)
        is_empty = True
    if is_empty or is_adding:
        world.fed_by[broker] = leader


def _return(world: World, broker: int, _: str) -> Done | None:
    if broker not in world.replication.away | world.down:
        return None
    world.down.discard(broker)
    world.stray.pop(broker, None)
    if broker in world.replicas:
        replica = world.replicas[broker]
        if world.outage == KILL:
            replica.recover()
        elif world.outage == STOP:
            replica.reopen()
        _before_fetch(world, broker)
        world.replication.come_back(broker)
        world.adding.discard(broker)
        world.fed_by.pop(broker, None)
    # A replica that was there all the time counts already.
    if broker in world.replicas:
        world.coordinate(coordination.joined, broker)
    return NOTHING_WRITTEN


def _unassign(world: World, broker: int, _: str) -> Done | None:
    """Unassign the replica of a broker that is down: the broker still has the log (``LogManager.isStrayReplica``)."""
    if broker not in world.down or broker not in world.replicas:
        return None
    world.stray[broker] = world.replicas.pop(broker)
    world.replication.away.discard(broker)
    world.coordinate(coordination.remove, broker, world.replication.away)
    return NOTHING_WRITTEN


def _assign_again(world: World, broker: int, _: str) -> Done | None:
    if broker not in world.stray:
        return None
    world.replicas[broker] = world.stray.pop(broker)
    world.replication.leave(broker)
    world.adding.add(broker)
    world.coordinate(coordination.add, broker)
    return NOTHING_WRITTEN


def _add(world: World, broker: int, verb: str) -> Done | None:
    if world.outage:
        return None
    world.outage = verb
    world.replicas[broker] = _new_replica(world.rules, broker)
    world.replication.leave(broker)
    world.adding.add(broker)
    world.coordinate(coordination.add, broker)
    return NOTHING_WRITTEN


def _join(world: World, broker: int, _: str) -> Done | None:
    if broker in world.replicas:
        return None
    world.replicas[broker] = _new_replica(world.rules, broker)
    world.replication.come_back(broker)
    return NOTHING_WRITTEN


def _lead(world: World, broker: int, _: str) -> Done | None:
    if broker not in world.replication.in_sync or broker == world.replication.leader_id:
        return None
    world.coordinate(coordination.elect, broker, world.own(broker))
    world.replication.elect(broker)
    world.replication.fetch_all()
    if world.rules.of_groups:
        world.load_groups()
    return NOTHING_WRITTEN


def _delete(world: World, before: int, _: str) -> Done:
    world.replication.delete_records(before)
    world.replication.fetch_all()
    return NOTHING_WRITTEN


def _clean(world: World, broker: int, keeps: str) -> Done | None:
    if broker not in world.replicas or broker in world.down or (world.rules.gate and world.replication.away):
        return None
    cleaning = replace(world.cleaning, delete_retention_ms=DAY_MS) if keeps else world.cleaning
    bounds = world.protocol.bounds(broker) if world.protocol else UNBOUNDED
    is_done = world.rules.system.clean(world.replicas[broker], cleaning, world.now_ms, bounds)
    return NOTHING_WRITTEN if is_done else None


def _all_clean(world: World, brokers: list[int], keeps: str) -> Done:
    for broker in brokers:
        _clean(world, broker, keeps)
    return NOTHING_WRITTEN


def _expire(world: World, *_: object) -> Done:
    for broker in world.up:
        world.replicas[broker].expire(world.now_ms, 0)
    return NOTHING_WRITTEN


def _pass(*_: object) -> Done:
    return NOTHING_WRITTEN


# Messages of coordination.


def _report(world: World, broker: int, _: str) -> Done | None:
    if world.protocol is None or broker not in world.replicas or broker in world.down:
        return None
    own = world.own(broker)
    if not coordination.has_new_report(world.protocol, broker, own):
        return None
    world.protocol = coordination.report(world.protocol, broker, own)
    return NOTHING_WRITTEN


def _message(world: World, number: int, fate: str) -> Done | None:
    under_way = world.under_way()
    if world.protocol is None or not 1 <= number <= len(under_way):
        return None
    message = under_way[number - 1]
    if fate == "is lost":
        world.protocol = coordination.lose(world.protocol, message)
    elif world.can_arrive(message):
        world.coordinate(coordination.deliver, message, world.replication.away)
    else:
        return None
    return NOTHING_WRITTEN


def _messages(world: World, *_: object) -> Done | None:
    """Let all messages arrive that can, and the messages that are sent in turn."""
    arrived = None
    while ahead := [message for message in world.under_way() if world.can_arrive(message)]:
        world.coordinate(coordination.deliver, ahead[0], world.replication.away)
        arrived = NOTHING_WRITTEN
    return arrived


_LASTS_MS: Final = {"an hour passes": HOUR_MS, "time passes": DAY_MS + HOUR_MS}
_OF_ALL: Final[dict[str, Callable[..., Done | None]]] = {
    **dict.fromkeys(_LASTS_MS, _pass),
    "messages arrive": _messages,
    "producers expire": _expire,
    "rest": _pass,
}
_OF_PRODUCER: Final = {
    **dict.fromkeys(OUTCOMES, _end),
    **{f"{verb}{NOTHING_HERE}": _end_elsewhere for verb in OUTCOMES},
    "begins anew, and is aborted": _fence,
}
_OF_ANY_BROKER: Final[dict[str, _OfBroker]] = {"cleans": _clean, "leads": _lead, "reports": _report}
_OF_ABSENT: Final[dict[str, _OfBroker]] = {
    **dict.fromkeys(("leaves", "lags", KILL, STOP, PAUSE), _leave),
    "copies a batch": _copy,
    "is unassigned": _unassign,
    "is assigned again": _assign_again,
    "returns": _return,
    "joins": _join,
}
_OF_ADDED: Final[dict[str, _OfBroker]] = {"is added": _add, "copies a batch": _copy, "joins": _return}
_OF_ONE: Final = {ABSENT: _OF_ABSENT, ADDED: _OF_ADDED}


def _steps() -> Iterator[tuple[str, _Step]]:
    for words, action in _OF_ALL.items():
        yield words, (action, None, "")
    for who in PRODUCERS:
        for rest, action in _OF_PRODUCER.items():
            yield f"{who} {rest}", (action, who, rest.removesuffix(NOTHING_HERE))
    for broker in (*BROKERS, ADDED):
        for verb, of_broker in {**_OF_ANY_BROKER, **_OF_ONE.get(broker, {})}.items():
            yield f"{broker} {verb}", (of_broker, broker, verb)


_STEPS: Final = dict(_steps())


@lru_cache(maxsize=4096)
def _parsed(step: str) -> _Step:
    """Return the function of a step, its subject, and the rest of its words."""
    if step in _STEPS:
        return _STEPS[step]
    words = step.split()
    match words:
        case [who, "puts" | "deletes" as verb, key] if who in {PLAIN, *PRODUCERS}:
            return _put, who, f"{verb} {key}"
        case [who, "writes", *records] if who in {PLAIN, IDEMPOTENT, *PRODUCERS} and records:
            return _write, who, records
        case ["message", number, *fate] if number.isdigit() and " ".join(fate) in {"arrives", "is lost"}:
            return _message, int(number), " ".join(fate)
        case ["records", "before", offset, "are", "deleted"]:
            return _delete, int(offset), ""
        case [*brokers, "clean"] | [*brokers, "clean", "and", "keep"] if brokers:
            return _all_clean, brokers_of(brokers), "keep" if words[-1] == "keep" else ""
    raise ValueError(f"{step!r} is no step")


def brokers_of(words: Sequence[str]) -> list[int]:
    """Return the brokers of a step such as ``1, 3 clean``."""
    return [int(word.removesuffix(",")) for word in words]
