"""The cluster on which a schedule is played (`harness.models.world.steps`): its state, and the truth about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from harness.broker_files.segments.records import ABORT, COMMIT
from harness.models.log.batch import ModelBatch
from harness.models.log.cleaner import Bounds, Cleaning
from harness.models.log.invariants import ModelTruth, Txn, Wrote, hidden_by_txnindex, violations, wrong_final_states
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication
from harness.models.log.systems import KAFKA, BrokerSystem, progress_of, redpanda_without
from harness.models.log.version_rules import VersionRules
from harness.models.world.coordination import Coordination, CoordinationMessage
from harness.models.world.groups import Offsets, consequences, entries_of

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
ABSENT, ADDED = 2, 4
"""The broker that may go down, and the broker that may be added."""
KILL, STOP, PAUSE = "kill", "stop", "pause"
"""The faults of ABSENT: SIGKILL and a start, SIGTERM and a start, SIGSTOP and SIGCONT."""
OUTCOMES: Final = (COMMIT, ABORT)


@dataclass(frozen=True)
class Rules:
    """The rules of a schedule. ``epoch_bump``: transactions of version 2 (KIP-890).

    ``without``: rules of `harness.models.world.coordination.RULES` that are left out, and of
    `harness.models.log.redpanda.RULES` for brokers of ``redpanda``. ``version``: of Kafka. ``of_groups``: the log is a
    partition of ``__consumer_offsets`` (`harness.models.world.groups`): a key is a group's partition, and only the
    group's coordinator deletes it. ``gate``: no cleaner begins a pass while an assigned replica is out of the ISR.
    ``fresh_copies``: a replica that is being added begins its copy with an empty log, and again after each change of
    its leader. Both are rules of the agent of `harness gate`.
    """

    epoch_bump: bool = False
    coordinated: bool = False
    without: frozenset[str] = frozenset()
    redpanda: bool = False
    version: VersionRules = field(default_factory=VersionRules)
    of_groups: bool = False
    gate: bool = False
    fresh_copies: bool = False

    @property
    def system(self) -> BrokerSystem:
        """The compaction of the brokers."""
        return redpanda_without(self.without) if self.redpanda else KAFKA


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


class StepResult(NamedTuple):
    """The result of a step: the batch that a client or its coordinator wrote, and its transaction."""

    batch: ModelBatch | None = None
    txn: Open | None = None


NOTHING_WRITTEN: Final = StepResult()


@dataclass(slots=True)
class World:
    """The cluster, and the truth about it. ``down``: brokers that neither copy nor clean nor answer.

    ``stray``: logs of replicas that were unassigned while their brokers were down. ``outage``: the fault by which a
    broker fell behind, once; empty before. ``coordinator``: the offsets of the leader's group coordinator
    (`Rules.of_groups`): loaded when it was elected, with all later entries. ``adding``: replicas that are
    being added. ``fed_by``: the leader from which the copy of a replica began (`Rules.fresh_copies`).
    """

    rules: Rules
    replication: Replication
    protocol: Coordination | None
    cleaning: Cleaning = CLEANING
    now_ms: int = BEGIN_MS
    clients: dict[str, Client] = field(default_factory=_clients)
    wrote: list[Wrote] = field(default_factory=list)
    txns: list[Txn] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    stray: dict[int, Replica] = field(default_factory=dict)
    outage: str = ""
    coordinator: Offsets = field(default_factory=Offsets)
    adding: set[int] = field(default_factory=set)
    fed_by: dict[int, int] = field(default_factory=dict)

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

    def violations(self) -> list[tuple[int, str]]:
        """Return the violations of each replica in sync, from its state: broker and name, each once."""
        return self._names(violations, wrong_final_states, hidden_by_txnindex)

    def consequences(self) -> list[tuple[int, str]]:
        """Return the consequences for groups if the broker of a replica in sync coordinates them, as `violations`."""
        drops_pending = self.rules.version.tombstone_drops_pending
        return self._names(partial(consequences, drops_pending=drops_pending)) if self.rules.of_groups else []

    def _names(self, *checks: Callable[[Replica, ModelTruth], Iterator[str]]) -> list[tuple[int, str]]:
        truth, in_sync = self.truth, self.replication.in_sync
        return sorted(
            {
                (broker, str(name))
                for broker in in_sync
                for check in checks
                for name in check(self.replicas[broker], truth)
            }
        )

    def may_delete(self, client: str, key: str) -> bool:
        """Return whether a client may delete a key: of groups, only the coordinator an offset that it has."""
        if not self.rules.of_groups:
            return True
        drops_pending = self.rules.version.tombstone_drops_pending
        return client == PLAIN and self.coordinator.may_delete(key, drops_pending=drops_pending)

    def progress(self, broker: int) -> Bounds:
        """Return a replica's MCCO and MXFO."""
        return progress_of(self.rules.system, self.replicas[broker], self.rules.without)

    def coordinate(self, change: Callable[..., Coordination], *arguments: object) -> StepResult:
        """Apply a change to the protocol state, if replicas are coordinated."""
        if self.protocol is not None:
            self.protocol = change(self.protocol, *arguments)
        return NOTHING_WRITTEN

    def append(self, batch: ModelBatch) -> None:
        """Append a batch, which all replicas in sync copy at once."""
        self.replication.append(batch)
        self.replication.fetch_all()
        for entry in entries_of(batch) if self.rules.of_groups else ():
            self.coordinator.apply(entry, drops_pending=True)

    def in_flight(self) -> list[CoordinationMessage]:
        """Return the messages in flight in a deterministic order, which is not the order of sending."""
        return sorted(self.protocol.sent) if self.protocol else []

    def can_arrive(self, message: CoordinationMessage) -> bool:
        """Return whether a message can arrive now."""
        return self.protocol is not None and self.protocol.receiver(message) not in self.down
