"""The operations of clients in models: writes, and ends of transactions. Each returns whether it is possible now.

Raise `UsageError` for a process that is not a client of models, or has no transactions.
"""

from harness.broker_files.segments.records import ABORT, Record, marker_record
from harness.errors import UsageError
from harness.models.log.batch import ModelBatch
from harness.models.log.invariants import Txn, Wrote
from harness.models.world.world import PLAIN, Client, Open, World
from harness.run_folder.history import HEADER_TXN
from harness.schedules.operations import End, EndElsewhere, Restart, Write, WriteBatch


def _client(world: World, process: str) -> Client:
    if process not in world.clients:
        raise UsageError(f"{process} is not a client of models: {', '.join(world.clients)}")
    return world.clients[process]


def _producer(world: World, process: str) -> Client:
    client = _client(world, process)
    if not client.transactional:
        raise UsageError(f"{process} has no transactions in models")
    return client


def write(world: World, operation: Write) -> bool:
    """Write a record; a tombstone only of a key that was written."""
    if operation.deletes and not any(record.key == operation.key for record in world.wrote):
        return False
    return write_batch(world, WriteBatch(operation.process, (operation.key,), (0,) if operation.deletes else ()))


def write_batch(world: World, write: WriteBatch) -> bool:
    """Write a batch; the first record of a transactional client begins a transaction."""
    if not all(world.may_delete(write.process, write.keys[at]) for at in write.tombstones):
        return False
    client, base = _client(world, write.process), world.replication.leader.log_end
    if client.transactional and client.open is None:
        client.begun += 1
        client.open = Open(len(world.txns), client.begun)
        world.txns.append(Txn())
    txn = client.open
    headers = ((HEADER_TXN, f"{write.process}/{txn.nth}".encode()),) if txn else ()
    keys_values = enumerate(keys_and_values(write), base)
    records = tuple(Record(offset, world.now_ms, key, value, headers) for offset, (key, value) in keys_values)
    number = txn.number if txn else None
    for record in records:
        key = (record.key or b"").decode()
        world.wrote.append(Wrote(record.offset, key, record.value is None, number, client.producer_id))
    batch = _batch(world, records, client)
    if client.name != PLAIN and not world.rules.of_groups:
        # Coordinators write each batch with sequence number 0 (``GroupMetadataManager``, ``CoordinatorRuntime``).
        client.sequence += len(records)
    world.append(batch)
    return True


def keys_and_values(batch: WriteBatch) -> list[tuple[bytes, bytes | None]]:
    """Return the keys and values of a batch's records."""
    return [(key.encode(), None if at in batch.tombstones else b"v") for at, key in enumerate(batch.keys)]


def end(world: World, ending: End) -> bool:
    """End the open transaction of a client."""
    client = _producer(world, ending.process)
    if client.open is None:
        return False
    if world.rules.epoch_bump:
        client.raise_epoch()
    return _write_marker(world, client, ending.outcome)


def fence(world: World, restart: Restart) -> bool:
    """Abort the open transaction of a client that restarts with the same transactional id."""
    client = _producer(world, restart.process)
    if client.open is None:
        return False
    client.raise_epoch()
    result = _write_marker(world, client, ABORT)
    client.raise_epoch()
    return result


def end_elsewhere(world: World, ending: EndElsewhere) -> bool:
    """End a transaction that wrote nothing here; version 2 registers only the partitions that it writes to."""
    client = _producer(world, ending.process)
    if client.open is not None or world.rules.epoch_bump:
        return False
    return _write_marker(world, client, ending.outcome)


def _write_marker(world: World, client: Client, outcome: str) -> bool:
    txn, client.open = client.open, None
    record = marker_record(world.replication.leader.log_end, world.now_ms, outcome)
    batch = _batch(world, (record,), client, control=True)
    world.append(batch)
    if txn is not None:
        world.txns[txn.number] = Txn(outcome, batch.base_offset)
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
