"""The cluster that a schedule is played on (`models.steps`): its state, and what is true of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from models.batch import ABORT, COMMIT, Batch
from models.cleaner import Cleaning
from models.coordination import Report
from models.systems import KAFKA, redpanda_without
from models.wrongs import Truth, Txn, Wrote, endings, indexed, wrongs

if TYPE_CHECKING:
    from collections.abc import Callable

    from models.coordination import Coordination, Message, Pair
    from models.replica import Replica
    from models.replication import Replication
    from models.systems import System

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

    ``without``: names of `models.coordination.RULES` that its coordination leaves out, and of `models.redpanda.RULES`
    where brokers are ``redpanda``'s.
    """

    epoch_bump: bool = False
    coordinated: bool = False
    without: frozenset[str] = frozenset()
    redpanda: bool = False

    @property
    def system(self) -> System:
        """What its brokers do to a replica."""
        return redpanda_without(self.without) if self.redpanda else KAFKA


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
        judges = (wrongs, endings, indexed)
        return sorted(
            {
                (broker, str(name))
                for broker in in_sync
                for told in judges
                for name in told(self.replicas[broker], truth)
            }
        )

    def own(self, broker: int) -> Pair:
        """Return a replica's MCCO and MXFO: how far it is compacted, and how far every transaction has ended in it."""
        replica = self.replicas[broker]
        own = self.rules.system.own(replica)
        return own._replace(tombstones=replica.high_watermark) if "clean-not-copied" in self.rules.without else own

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
