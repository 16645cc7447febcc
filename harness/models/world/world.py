"""The cluster on which a schedule is played (`harness.models.world.steps`): its state, and the truth about it."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from harness.broker_files.segments.records import ABORT, COMMIT
from harness.models.log.batch import ModelBatch
from harness.models.log.cleaner import Cleaning
from harness.models.log.invariants import ModelTruth, Txn, Wrote
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication
from harness.models.log.version_rules import VersionRules
from harness.models.world.groups import Offsets, entries_of

DAY_MS: Final = 24 * 60 * 60 * 1000
HOUR_MS: Final = 60 * 60 * 1000
STEP_MS: Final = 1000
"""The time that a step takes, unless the operation has a time."""
BEGIN_MS: Final = 1_700_000_000_000
CLEANING: Final = Cleaning(delete_retention_ms=DAY_MS, producer_expiration_ms=DAY_MS, active_too=True)
"""``delete.retention.ms`` and ``producer.id.expiration.ms`` with their default values."""
PRODUCERS: Final = {"t": 7, "u": 8}
"""The transactional clients, and their producer ids."""
IDEMPOTENT_ID: Final = 9
PLAIN, IDEMPOTENT = "p", "i"
"""The clients without transactions: without a producer id, and with an id."""
BROKERS: Final = (1, 2, 3)
ABSENT: Final = 2
"""The broker that may go down."""
KILL, STOP, PAUSE = "kill", "stop", "pause"
"""The faults of ABSENT: SIGKILL and a start, SIGTERM and a start, SIGSTOP and SIGCONT."""
OUTCOMES: Final = (COMMIT, ABORT)


@dataclass(frozen=True)
class Rules:
    """The rules of a schedule. ``epoch_bump``: transactions of version 2 (KIP-890).

    ``version``: of Kafka. ``of_groups``: the log is a partition of ``__consumer_offsets``
    (`harness.models.world.groups`): a key is a group's partition, and only the group's coordinator deletes it.
    """

    epoch_bump: bool = False
    version: VersionRules = field(default_factory=VersionRules)
    of_groups: bool = False


class Open(NamedTuple):
    """An open transaction: its number among all transactions, and among the transactions of its client, from 1."""

    number: int
    nth: int


@dataclass(slots=True)
class Client:
    """A client's state: its producer id and epoch (-1: none), next sequence number and open transaction."""

    name: str
    producer_id: int
    transactional: bool = True
    epoch: int = 0
    sequence: int = 0
    begun: int = 0
    open: Open | None = None

    def raise_epoch(self) -> None:
        """Raise the epoch, as the end of a transaction may; sequence numbers begin at 0 again."""
        self.epoch += 1
        self.sequence = 0


def _clients() -> dict[str, Client]:
    plain = Client(PLAIN, -1, transactional=False, epoch=-1, sequence=-1)
    transactional = {name: Client(name, producer_id) for name, producer_id in PRODUCERS.items()}
    return {PLAIN: plain, **transactional, IDEMPOTENT: Client(IDEMPOTENT, IDEMPOTENT_ID, transactional=False)}


@dataclass(slots=True)
class World:
    """The cluster, and the truth about it. ``down``: brokers that neither copy nor clean nor answer.

    ``outage``: the fault by which a broker fell behind, once; empty before. ``coordinator``: the offsets of the
    leader's group coordinator (`Rules.of_groups`): loaded when it was elected, with all later entries.
    """

    rules: Rules
    replication: Replication
    cleaning: Cleaning = CLEANING
    now_ms: int = BEGIN_MS
    clients: dict[str, Client] = field(default_factory=_clients)
    wrote: list[Wrote] = field(default_factory=list)
    txns: list[Txn] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    outage: str = ""
    coordinator: Offsets = field(default_factory=Offsets)

    @property
    def replicas(self) -> dict[int, Replica]:
        """The replicas, by broker."""
        return self.replication.replicas

    @property
    def up(self) -> list[int]:
        """The brokers that are not down."""
        return [broker for broker in self.replicas if broker not in self.down]

    @property
    def truth(self) -> ModelTruth:
        """All written records, and how each transaction ended."""
        return ModelTruth(tuple(self.wrote), tuple(self.txns))

    def may_delete(self, client: str, key: str) -> bool:
        """Return whether a client may delete a key: of groups, only the coordinator an offset that it has."""
        if not self.rules.of_groups:
            return True
        drops_pending = self.rules.version.tombstone_drops_pending
        return client == PLAIN and self.coordinator.may_delete(key, drops_pending=drops_pending)

    def append(self, batch: ModelBatch) -> None:
        """Append a batch, which all replicas in sync copy at once."""
        self.replication.append(batch)
        self.replication.fetch_all()
        for entry in entries_of(batch) if self.rules.of_groups else ():
            self.coordinator.apply(entry, drops_pending=True)
