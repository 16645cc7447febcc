"""A cluster that a schedule is played on, step by step: whatever comes of it is a function of the steps alone.

The steps are words, so that they can be stored, read and left out one by one:

* ``p puts K``, ``t deletes L``, ``t commits``, ``u aborts``: a plain client, and two transactional ones
* ``2 leaves``: broker 2 is down; ``2 lags``: it is up, and far behind; ``2 copies a batch``, ``2 returns``
* ``4 is added``, ``4 copies a batch``, ``4 joins``: a replica is added, and copies slowly
* ``3 leads``, ``1 cleans``, ``an hour passes``, ``time passes`` (a day and an hour: longer than every default timer)
* with coordination: ``3 reports``, ``message 2 arrives``, ``message 2 is lost``, ``messages arrive``

A step that cannot happen is skipped: a schedule that lacks some of its steps is one, too. Each write is a batch and a
segment of its own, and other traffic never ends (`models.cleaner.Cleaning.active_too`). Replicas in sync copy at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.history import HEADER_TXN
from harness.segments.records import Record
from models import coordination
from models.batch import ABORT, COMMIT, Batch, marker_record
from models.cleaner import UNBOUNDED, Cleaning, clean
from models.coordination import Pair, Report
from models.replica import Replica
from models.replication import Replication
from models.wrongs import Truth, Txn, Wrote, endings, wrongs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from models.coordination import Coordination, Message

DAY_MS: Final = 24 * 60 * 60 * 1000
HOUR_MS: Final = 60 * 60 * 1000
STEP_MS: Final = 1000
"""How long a step takes, where it does not say so itself."""
BEGIN_MS: Final = 1_700_000_000_000
CLEANING: Final = Cleaning(delete_retention_ms=DAY_MS, producer_expiration_ms=DAY_MS, active_too=True)
"""``delete.retention.ms`` and ``producer.id.expiration.ms`` as they are by default."""
PRODUCERS: Final = {"t": 7, "u": 8}
"""The transactional clients, and their producer ids."""
PLAIN: Final = "p"
BROKERS: Final = (1, 2, 3)
ABSENT, ADDED = 2, 4
"""The broker that may go away, and the one that may be added."""
OUTCOMES: Final = {"commits": COMMIT, "aborts": ABORT}


@dataclass(frozen=True)
class Rules:
    """What is played by. ``epoch_bump``: transactions of version 2 (KIP-890).

    ``without``: names of `models.coordination.RULES` that its coordination leaves out.
    """

    epoch_bump: bool = False
    coordinated: bool = False
    without: frozenset[str] = frozenset()


class Open(NamedTuple):
    """A transaction that is open: its number in all, and the nth of its client, from 1."""

    number: int
    nth: int


@dataclass(slots=True)
class Client:
    """A transactional producer's own state."""

    name: str
    producer_id: int
    epoch: int = 0
    sequence: int = 0
    begun: int = 0
    open: Open | None = None


class Done(NamedTuple):
    """What a step did: the batch that a client or its coordinator wrote, and in which transaction."""

    batch: Batch | None = None
    txn: Open | None = None


NOTHING_WRITTEN: Final = Done()


@dataclass(slots=True)
class World:
    """The cluster, and what is true of it. ``down``: brokers that neither copy nor clean nor answer."""

    rules: Rules
    replication: Replication
    protocol: Coordination | None
    now_ms: int = BEGIN_MS
    clients: dict[str, Client] = field(default_factory=lambda: {name: Client(name, i) for name, i in PRODUCERS.items()})
    wrote: list[Wrote] = field(default_factory=list)
    txns: list[Txn] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    was_away: bool = False

    @property
    def replicas(self) -> dict[int, Replica]:
        """All of them, by broker."""
        return self.replication.replicas

    @property
    def up(self) -> list[int]:
        """The brokers that answer."""
        return [broker for broker in self.replicas if broker not in self.down]

    @property
    def truth(self) -> Truth:
        """Everything that was written, and how each transaction ended."""
        return Truth(tuple(self.wrote), tuple(self.txns))

    def wrongs(self) -> list[tuple[int, str]]:
        """Return what each replica in sync has wrong, by the state itself: broker and name, each once."""
        truth, in_sync = self.truth, self.replication.in_sync
        judges = (wrongs, endings)
        return sorted(
            {(broker, str(name)) for broker in in_sync for told in judges for name in told(self.replicas[broker], truth)}
        )

    def take(self, step: str) -> Done | None:
        """Take a step; None where it cannot happen now. Raises ``ValueError`` for words that are no step."""
        action, subject, rest = _parsed(step)
        done = action(self, subject, rest)
        if done is not None:
            self.now_ms += _LASTS_MS.get(step, STEP_MS)
            if self.protocol is not None:
                leader = self.replication.leader_id
                self.protocol = coordination.hear(self.protocol, leader, self.own(leader), self.replication.away)
        return done

    def own(self, broker: int) -> Pair:
        """Return a replica's MCCO and MXFO: how far it is compacted, and how far every transaction has ended in it."""
        replica = self.replicas[broker]
        compacted = replica.high_watermark if "clean-not-copied" in self.rules.without else replica.cleaned_to
        return Pair(compacted or 0, replica.last_stable_offset)

    def tell(self, what: Callable[..., Coordination], *arguments: object) -> None:
        """Have replicas take note, where they are coordinated."""
        if self.protocol is not None:
            self.protocol = what(self.protocol, *arguments)

    def append(self, batch: Batch) -> None:
        """Append a batch, which all in sync copy at once."""
        self.replication.append(batch)
        self.replication.fetch_all()

    def under_way(self) -> list[Message]:
        """Return the messages under way in an order that is the same everywhere, and not that of their sending."""
        sent = self.protocol.sent if self.protocol else ()
        return sorted(sent, key=lambda one: (isinstance(one, Report), one.broker, one.term, one.pair))

    def hears(self, message: Message) -> bool:
        """Whether a message can arrive now."""
        return (self.replication.leader_id if isinstance(message, Report) else message.broker) not in self.down


def begin(rules: Rules) -> World:
    """Return three brokers that broker 1 leads, and nothing written."""
    replicas = {broker: Replica(broker) for broker in BROKERS}
    replication = Replication(replicas, BROKERS[0], rolls=lambda *_: True)
    protocol = coordination.begin(BROKERS, BROKERS[0], rules.without) if rules.coordinated else None
    return World(rules, replication, protocol)


def play(rules: Rules, steps: Iterable[str]) -> World:
    """Return what a schedule leads to."""
    world = begin(rules)
    for step in steps:
        world.take(step)
    return world


# What clients do.


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
    world.wrote.append(Wrote(base, key, deletes, txn.number if txn else None))
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


# What befalls brokers.


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
        world.tell(coordination.joined, broker)
    return NOTHING_WRITTEN


def _add(world: World, broker: int, _: str) -> Done | None:
    if world.was_away:
        return None
    world.was_away = True
    world.replicas[broker] = Replica(broker)
    world.replication.leave(broker)
    world.tell(coordination.add, broker)
    return NOTHING_WRITTEN


def _lead(world: World, broker: int, _: str) -> Done | None:
    if broker not in world.replication.in_sync or broker == world.replication.leader_id:
        return None
    world.tell(coordination.elect, broker, world.own(broker))
    world.replication.elect(broker)
    world.replication.fetch_all()
    return NOTHING_WRITTEN


def _clean(world: World, broker: int, _: str) -> Done | None:
    if broker not in world.replicas or broker in world.down:
        return None
    bounds = world.protocol.bounds(broker) if world.protocol else UNBOUNDED
    return NOTHING_WRITTEN if clean(world.replicas[broker], CLEANING, world.now_ms, bounds) else None


def _pass(*_: object) -> Done:
    return NOTHING_WRITTEN


# What replicas tell each other.


def _report(world: World, broker: int, _: str) -> Done | None:
    if world.protocol is None or broker not in world.replicas or broker in world.down:
        return None
    own = world.own(broker)
    if not coordination.has_news(world.protocol, broker, own):
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
    elif world.hears(message):
        world.tell(coordination.deliver, message, world.replication.away)
    else:
        return None
    return NOTHING_WRITTEN


def _messages(world: World, *_: object) -> Done | None:
    """Let all arrive that can, and what is sent for that."""
    arrived = None
    while ahead := [message for message in world.under_way() if world.hears(message)]:
        world.tell(coordination.deliver, ahead[0], world.replication.away)
        arrived = NOTHING_WRITTEN
    return arrived


_LASTS_MS: Final = {"an hour passes": HOUR_MS, "time passes": DAY_MS + HOUR_MS}
_OF_ANY_BROKER: Final = {"cleans": _clean, "leads": _lead, "reports": _report}
_OF_ABSENT: Final = {
    "leaves": _leave, "lags": _leave, "copies a batch": _copy, "returns": _return,
}  # fmt: skip
_OF_ADDED: Final = {"is added": _add, "copies a batch": _copy, "joins": _return}


def _steps() -> Iterator[tuple[str, tuple[Callable[..., Done | None], object, str]]]:
    for words in _LASTS_MS:
        yield words, (_pass, None, "")
    yield "messages arrive", (_messages, None, "")
    for who in PRODUCERS:
        for verb in OUTCOMES:
            yield f"{who} {verb}", (_end, who, verb)
    for broker in (*BROKERS, ADDED):
        of_this = {ABSENT: _OF_ABSENT, ADDED: _OF_ADDED}.get(broker, {})
        for verb, action in {**_OF_ANY_BROKER, **of_this}.items():
            yield f"{broker} {verb}", (action, broker, verb)


_STEPS: Final = dict(_steps())
_KEYED: Final = {"puts", "deletes"}
_FATES: Final = {"arrives", "is lost"}


@lru_cache(maxsize=4096)
def _parsed(step: str) -> tuple[Callable[..., Done | None], object, str]:
    """Return what a step does, who does it, and the rest of its words."""
    if step in _STEPS:
        return _STEPS[step]
    subject, _, rest = step.partition(" ")
    first, _, last = rest.partition(" ")
    if subject in {PLAIN, *PRODUCERS} and first in _KEYED and last and " " not in last:
        return _write, subject, rest
    if subject == "message" and first.isdigit() and last in _FATES:
        return _message, int(first), last
    raise ValueError(f"{step!r} is no step")
