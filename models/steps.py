"""A cluster on which a schedule is played, step by step: its state is a function of the steps alone.

The steps are short sentences, so that they can be stored, read and left out one by one:

* ``p puts K``, ``t deletes L``, ``t commits``, ``u aborts``: a plain client, and two transactional ones
* ``2 leaves``: broker 2 is down; ``2 lags``: it is up, and far behind; ``2 copies a batch``, ``2 returns``
* ``4 is added``, ``4 copies a batch``, ``4 joins``: a replica is added, and copies slowly
* ``3 leads``, ``1 cleans``, ``an hour passes``, ``time passes`` (a day and an hour: longer than every default timer)
* with coordination: ``3 reports``, ``message 2 arrives``, ``message 2 is lost``, ``messages arrive``

A step that is impossible in the current state is skipped, so that a schedule without some of its steps is a schedule,
too. Each write is a batch and a segment of its own, and there is endless other traffic
(`models.cleaner.Cleaning.active_too`). Replicas in sync copy at once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from harness.brokers.segments.markers import marker_record
from harness.brokers.segments.records import Record
from harness.run_folder.history import HEADER_TXN
from models import coordination
from models.batch import Batch
from models.cleaner import UNBOUNDED
from models.invariants import Txn, Wrote
from models.replica import Replica
from models.replication import Replication
from models.world import (
    ABSENT,
    ADDED,
    BROKERS,
    CLEANING,
    DAY_MS,
    HOUR_MS,
    NOTHING_WRITTEN,
    OUTCOMES,
    PLAIN,
    PRODUCERS,
    STEP_MS,
    Done,
    Open,
    World,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from models.world import Client, Rules

    _OfBroker = Callable[[World, int, str], Done | None]


def begin(rules: Rules) -> World:
    """Return three brokers that broker 1 leads, and nothing written."""
    replicas = {broker: Replica(broker) for broker in BROKERS}
    replication = Replication(replicas, BROKERS[0], rolls=lambda *_: True)
    protocol = coordination.begin(BROKERS, BROKERS[0], rules.without) if rules.coordinated else None
    return World(rules, replication, protocol)


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


def _write(world: World, who: str, what: str) -> Done | None:
    verb, key = what.split()
    deletes = verb == "deletes"
    if deletes and not any(one.key == key for one in world.wrote):
        return None
    client, base = world.clients.get(who), world.replication.leader.log_end
    if client is not None and client.open is None:
        client.begun += 1
        client.open = Open(len(world.txns), client.begun)
        world.txns.append(Txn())
    txn = client.open if client else None
    producer_id = client.producer_id if client else None
    world.wrote.append(Wrote(base, key, deletes, txn.number if txn else None, producer_id))
    headers = ((HEADER_TXN, f"{who}/{txn.nth}".encode()),) if txn else ()
    record = Record(base, world.now_ms, key.encode(), None if deletes else b"v", headers)
    batch = _batch(world, record, client)
    if client:
        client.sequence += 1
    world.append(batch)
    return Done(batch, txn)


def _end(world: World, who: str, verb: str) -> Done | None:
    client = world.clients[who]
    if (txn := client.open) is None:
        return None
    if world.rules.epoch_bump:
        client.epoch, client.sequence = client.epoch + 1, 0
    outcome, base = OUTCOMES[verb], world.replication.leader.log_end
    batch = _batch(world, marker_record(base, world.now_ms, outcome), client, control=True)
    world.txns[txn.number], client.open = Txn(outcome, base), None
    world.append(batch)
    return Done(batch, txn)


def _batch(world: World, record: Record, client: Client | None, *, control: bool = False) -> Batch:
    return Batch(
        base_offset=record.offset,
        last_offset=record.offset,
        records=(record,),
        max_timestamp_ms=world.now_ms,
        leader_epoch=world.replication.leader_epoch,
        producer_id=client.producer_id if client else -1,
        producer_epoch=client.epoch if client else -1,
        base_sequence=client.sequence if client and not control else -1,
        transactional=client is not None,
        control=control,
    )


# Brokers.


def _leave(world: World, broker: int, verb: str) -> Done | None:
    if world.was_away or world.replication.leader_id == broker:
        return None
    world.was_away = True
    world.replication.leave(broker)
    if verb == "leaves":
        world.down.add(broker)
    return NOTHING_WRITTEN


def _copy(world: World, broker: int, _: str) -> Done | None:
    if broker not in world.replication.away:
        return None
    world.down.discard(broker)
    world.replication.fetch(broker, 1)
    return NOTHING_WRITTEN


def _return(world: World, broker: int, _: str) -> Done | None:
    if broker not in world.replication.away:
        return None
    world.down.discard(broker)
    world.replication.come_back(broker)
    if broker == ADDED:
        world.coordinate(coordination.joined, broker)
    return NOTHING_WRITTEN


def _add(world: World, broker: int, _: str) -> Done | None:
    if world.was_away:
        return None
    world.was_away = True
    world.replicas[broker] = Replica(broker)
    world.replication.leave(broker)
    world.coordinate(coordination.add, broker)
    return NOTHING_WRITTEN


def _lead(world: World, broker: int, _: str) -> Done | None:
    if broker not in world.replication.in_sync or broker == world.replication.leader_id:
        return None
    world.coordinate(coordination.elect, broker, world.own(broker))
    world.replication.elect(broker)
    world.replication.fetch_all()
    return NOTHING_WRITTEN


def _clean(world: World, broker: int, _: str) -> Done | None:
    if broker not in world.replicas or broker in world.down:
        return None
    bounds = world.protocol.bounds(broker) if world.protocol else UNBOUNDED
    is_done = world.rules.system.clean(world.replicas[broker], CLEANING, world.now_ms, bounds)
    return NOTHING_WRITTEN if is_done else None


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
_OF_ANY_BROKER: Final[dict[str, _OfBroker]] = {"cleans": _clean, "leads": _lead, "reports": _report}
_OF_ABSENT: Final[dict[str, _OfBroker]] = {
    "leaves": _leave, "lags": _leave, "copies a batch": _copy, "returns": _return,
}  # fmt: skip
_OF_ADDED: Final[dict[str, _OfBroker]] = {"is added": _add, "copies a batch": _copy, "joins": _return}
_OF_ONE: Final = {ABSENT: _OF_ABSENT, ADDED: _OF_ADDED}


def _steps() -> Iterator[tuple[str, tuple[Callable[..., Done | None], object, str]]]:
    for words in _LASTS_MS:
        yield words, (_pass, None, "")
    yield "messages arrive", (_messages, None, "")
    for who in PRODUCERS:
        for verb in OUTCOMES:
            yield f"{who} {verb}", (_end, who, verb)
    for broker in (*BROKERS, ADDED):
        for verb, action in {**_OF_ANY_BROKER, **_OF_ONE.get(broker, {})}.items():
            yield f"{broker} {verb}", (action, broker, verb)


_STEPS: Final = dict(_steps())
_KEYED: Final = {"puts", "deletes"}
_FATES: Final = {"arrives", "is lost"}


@lru_cache(maxsize=4096)
def _parsed(step: str) -> tuple[Callable[..., Done | None], object, str]:
    """Return the function of a step, its subject, and the rest of its words."""
    if step in _STEPS:
        return _STEPS[step]
    subject, _, rest = step.partition(" ")
    first, _, last = rest.partition(" ")
    if subject in {PLAIN, *PRODUCERS} and first in _KEYED and last and " " not in last:
        return _write, subject, rest
    if subject == "message" and first.isdigit() and last in _FATES:
        return _message, int(first), last
    raise ValueError(f"{step!r} is no step")
