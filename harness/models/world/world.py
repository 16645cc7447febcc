"""A cluster on which a schedule is played, operation by operation: its state is a function of the operations alone.

`MODEL` has the operations that it performs. There are a plain client ``p``, an idempotent client ``i``, and two
transactional clients, ``t`` and ``u``. Broker 2 may be down, or join. Replicas in sync copy at once. An operation that
is impossible in the current state is skipped, so that a schedule without some of its operations is a schedule, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from harness.broker_files.segments.records import ABORT, Record, marker_record
from harness.errors import UsageError
from harness.models.log.batch import ModelBatch
from harness.models.log.cleaner import UNBOUNDED, Cleaning
from harness.models.log.invariants import ModelTruth, Txn, Wrote
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication
from harness.models.log.systems import KAFKA
from harness.models.log.version_rules import VersionRules
from harness.models.world.groups import Offsets, entries_of, load
from harness.run_folder.history import HEADER_TXN
from harness.schedules import operations as ops
from harness.schedules.schedule import SchedulePlayer
from harness.schedules.timers import DAY_MS, HOUR_MS

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
FAULTS = KILL, STOP, PAUSE = "kill", "stop", "pause"
"""The faults of ABSENT: SIGKILL and a start, SIGTERM and a start, SIGSTOP and SIGCONT."""


@dataclass(frozen=True)
class Rules:
    """The rules of a schedule. ``epoch_bump``: transactions of version 2 (KIP-890).

    ``version``: of Kafka. ``of_groups``: the log is a partition of ``__consumer_offsets``
    (`harness.models.world.groups`): a key is a group's partition, and only the group's coordinator deletes it.
    """

    epoch_bump: bool = False
    version: VersionRules = field(default_factory=VersionRules)
    of_groups: bool = False


@dataclass(slots=True)
class Client:
    """A client's state: its producer id and epoch (-1: none), and the next sequence number.

    ``begun`` counts its transactions. ``open_txn``: the number of the open one among all transactions.
    """

    name: str
    producer_id: int
    transactional: bool = True
    epoch: int = 0
    sequence: int = 0
    begun: int = 0
    open_txn: int | None = None

    def raise_epoch(self) -> None:
        """Raise the epoch, as the end of a transaction may; sequence numbers begin at 0 again."""
        self.epoch, self.sequence = self.epoch + 1, 0


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


def begin(
    rules: Rules,
    brokers: Sequence[int] = BROKERS,
    *,
    cleaning: Cleaning = CLEANING,
    rolls: Callable[[Replica, ModelBatch], bool] = lambda *_: True,
) -> World:
    """Return brokers of which the first leads, and nothing written. ``rolls``: see `Replication`."""
    replicas = {broker: Replica(broker, stable_at_batch=rules.version.stable_at_batch) for broker in brokers}
    return World(rules, Replication(replicas, brokers[0], rolls=rolls), cleaning)


def take(world: World, operation: ops.Operation) -> bool:
    """Perform an operation, and return whether it is possible now. Raises `UsageError` for one without a rule here."""
    if not MODEL.supports(operation):
        raise UsageError(f"models do not perform this operation: {operation}")
    done = ACTIONS[type(operation)](world, operation)
    if done:
        passes = isinstance(operation, ops.TimePasses)
        world.now_ms += DAY_MS + HOUR_MS if passes else STEP_MS
    return done


def _write(world: World, write: ops.Write) -> bool:
    """Write a record; a tombstone only of a key that was written."""
    if write.deletes and not any(record.key == write.key for record in world.wrote):
        return False
    return _write_batch(world, ops.WriteBatch(write.process, (write.key,), (0,) if write.deletes else ()))


def _write_batch(world: World, write: ops.WriteBatch) -> bool:
    """Write a batch; the first record of a transactional client begins a transaction."""
    if not all(world.may_delete(write.process, write.keys[at]) for at in write.tombstones):
        return False
    client, base = _client(world, write.process), world.replication.leader.log_end
    if client.transactional and client.open_txn is None:
        client.begun += 1
        client.open_txn = len(world.txns)
        world.txns.append(Txn())
    headers = ((HEADER_TXN, f"{write.process}/{client.begun}".encode()),) if client.transactional else ()
    records = []
    for offset, (key, value) in enumerate(keys_and_values(write), base):
        records.append(Record(offset, world.now_ms, key, value, headers))
        world.wrote.append(Wrote(offset, key.decode(), value is None, client.open_txn))
    batch = _batch(world, tuple(records), client)
    if client.name != PLAIN and not world.rules.of_groups:
        # Coordinators write each batch with sequence number 0 (``GroupMetadataManager``, ``CoordinatorRuntime``).
        client.sequence += len(records)
    world.append(batch)
    return True


def keys_and_values(batch: ops.WriteBatch) -> list[tuple[bytes, bytes | None]]:
    """Return the keys and values of a batch's records."""
    return [(key.encode(), None if at in batch.tombstones else b"v") for at, key in enumerate(batch.keys)]


def _client(world: World, process: str, *, has_transactions: bool = False) -> Client:
    if process not in world.clients:
        raise UsageError(f"{process} is not a client of models: {', '.join(world.clients)}")
    client = world.clients[process]
    if has_transactions and not client.transactional:
        raise UsageError(f"{process} has no transactions in models")
    return client


def _end(world: World, end: ops.End) -> bool:
    client = _client(world, end.process, has_transactions=True)
    if client.open_txn is None:
        return False
    if world.rules.epoch_bump:
        client.raise_epoch()
    return _write_marker(world, client, end.outcome)


def _restart(world: World, restart: ops.Restart) -> bool:
    """Abort the open transaction of a client that restarts with the same transactional id."""
    client = _client(world, restart.process, has_transactions=True)
    if client.open_txn is None:
        return False
    client.raise_epoch()
    _write_marker(world, client, ABORT)
    client.raise_epoch()
    return True


def _end_elsewhere(world: World, end: ops.EndElsewhere) -> bool:
    """End a transaction that wrote nothing here; version 2 registers only the partitions that it writes to."""
    client = _client(world, end.process, has_transactions=True)
    if client.open_txn is not None or world.rules.epoch_bump:
        return False
    return _write_marker(world, client, end.outcome)


def _write_marker(world: World, client: Client, outcome: str) -> bool:
    txn, client.open_txn = client.open_txn, None
    record = marker_record(world.replication.leader.log_end, world.now_ms, outcome)
    world.append(_batch(world, (record,), client, control=True))
    if txn is not None:
        world.txns[txn] = Txn(outcome, record.offset)
    return True


def _batch(world: World, records: tuple[Record, ...], client: Client, *, control: bool = False) -> ModelBatch:
    return ModelBatch(
        records[0].offset,
        records[-1].offset,
        records,
        world.now_ms,
        leader_epoch=world.replication.leader_epoch,
        producer_id=client.producer_id,
        producer_epoch=client.epoch,
        base_sequence=-1 if control else client.sequence,
        transactional=client.transactional,
        control=control,
    )


def _inject(world: World, inject: ops.Inject) -> bool:
    broker = inject.broker
    if broker != ABSENT or world.outage or world.replication.leader_id == broker:
        return False
    world.outage = inject.fault
    if broker in world.replicas:
        world.replication.leave(broker)
    world.down.add(broker)
    return True


def _heal(world: World, heal: ops.Heal) -> bool:
    broker = heal.broker
    if broker not in world.replication.away | world.down:
        return False
    world.down.discard(broker)
    if broker in world.replicas:
        replica = world.replicas[broker]
        if world.outage == KILL:
            replica.recover()
        elif world.outage == STOP:
            replica.reopen()
        world.replication.come_back(broker)
    return True


def _join(world: World, join: ops.JoinIsr) -> bool:
    """Give a broker without a replica one, which joins at once."""
    if join.broker != ABSENT or join.broker in world.replicas or join.broker in world.down:
        return False
    world.replicas[join.broker] = Replica(join.broker, stable_at_batch=world.rules.version.stable_at_batch)
    world.replication.come_back(join.broker)
    return True


def _lead(world: World, elect: ops.ElectLeader) -> bool:
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


def _delete_records(world: World, delete: ops.DeleteRecords) -> bool:
    world.replication.delete_records(max(world.replication.leader.log_end - delete.keeps, 0))
    world.replication.fetch_all()
    return True


def _clean(world: World, cleaner_pass: ops.CleanerPass) -> bool:
    """Run a pass of each cleaner, which may keep aging batches until time passes; return whether any has work."""
    cleaning = replace(world.cleaning, delete_retention_ms=DAY_MS) if cleaner_pass.keeps else world.cleaning
    live = [world.replicas[broker] for broker in cleaner_pass.brokers if broker in world.up]
    has_work = [KAFKA.clean(replica, cleaning, world.now_ms, UNBOUNDED) for replica in live]
    return any(has_work)


def _expire(world: World, _: ops.ProducersExpire) -> bool:
    for broker in world.up:
        world.replicas[broker].expire(world.now_ms, 0)
    return True


ACTIONS: Final[Mapping[type, Callable[[World, Any], bool]]] = {
    ops.Write: _write,
    ops.WriteBatch: _write_batch,
    ops.End: _end,
    ops.EndElsewhere: _end_elsewhere,
    ops.Restart: _restart,
    ops.DeleteRecords: _delete_records,
    ops.ElectLeader: _lead,
    ops.Inject: _inject,
    ops.Heal: _heal,
    ops.CleanerPass: _clean,
    ops.JoinIsr: _join,
    ops.ProducersExpire: _expire,
    ops.TimePasses: lambda *_: True,
    ops.Rest: lambda *_: True,
}
"""The function of each operation that models perform; it returns whether the operation is possible now."""
MODEL: Final = SchedulePlayer("models", frozenset(ACTIONS), frozenset({ops.OUTAGE, *FAULTS}))
"""Broker 2 may have these faults, once. After kill and stop it starts again."""
