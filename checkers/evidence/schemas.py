"""The tables that evidence consists of. Each ends in ``problem``: why the rest of a file cannot be read."""

from __future__ import annotations

from pyspark.sql import types as t

LONG, INT, TEXT, FLAG = t.LongType(), t.IntegerType(), t.StringType(), t.BooleanType()


def _table(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, type_) for name, type_ in columns.items()])


def _evidence(**columns: t.DataType) -> t.StructType:
    return _table(run=TEXT, **columns, problem=TEXT)


_REPLICA_FILE: dict[str, t.DataType] = {
    "snapshot": TEXT,
    "source": TEXT,
    "broker": INT,
    "topic": TEXT,
    "partition": INT,
}
"""What the place of a replica's file tells. ``source`` is disk or fetch."""

ENTRIES = _evidence(
    **_REPLICA_FILE,
    judged=FLAG,
    base_offset=LONG,
    last_offset=LONG,
    leader_epoch=INT,
    crc=LONG,
    producer_id=LONG,
    producer_epoch=INT,
    transactional=FLAG,
    control=FLAG,
    marker=TEXT,
    horizon_ms=LONG,
    max_timestamp_ms=LONG,
    first_in_batch=FLAG,
    offset=LONG,
    key=t.BinaryType(),
    tombstone=FLAG,
    txn=TEXT,
)
"""A row is one record, or one batch that has none to show (a marker, or emptied by compaction): then
``offset``, ``key``, ``tombstone`` and ``txn`` (the record header) are null. ``judged``: this source is what a replica
is judged by at that snapshot: its files, or what its broker served where those are not in a form to be read."""

ABORTS = _evidence(
    **_REPLICA_FILE,
    producer_id=LONG,
    first_offset=LONG,
    last_offset=LONG,
)
"""``.txnindex`` entries; ``last_offset`` is the ABORT marker's (`CompletedTxn`)."""

PRODUCERS = _evidence(
    **_REPLICA_FILE,
    as_of=LONG,
    producer_id=LONG,
    producer_epoch=INT,
    last_offset=LONG,
    first_offset=LONG,
)
"""Entries of producer snapshots: what a replica remembered of each producer when its log ended at ``as_of``;
``first_offset`` is that of the transaction that it held open, null where there was none. A snapshot that remembers
nobody is one row without a producer."""

EPOCHS = _evidence(
    **_REPLICA_FILE,
    leader_epoch=INT,
    start_offset=LONG,
)
"""Leader epochs that a replica knows, and where each began."""

COORDINATORS = _evidence(
    broker=INT,
    partition=INT,
    offset=LONG,
    transactional_id=TEXT,
    producer_id=LONG,
    state=TEXT,
)
"""Records of ``__transaction_state``; ``producer_id`` and ``state`` are null where an id was forgotten. Of a running
cluster: what each coordinator said when it was asked; ``partition`` is null."""

STATES = _evidence(
    snapshot=TEXT,
    broker=INT,
    topic=TEXT,
    partition=INT,
    served=FLAG,
    log_start=LONG,
    high_watermark=LONG,
    last_stable_offset=LONG,
    aborted=t.ArrayType(t.ArrayType(LONG)),
    open=t.ArrayType(t.ArrayType(LONG)),
    cleaner_offset=LONG,
    directory_id=TEXT,
    last_segment=LONG,
    log_end=LONG,
    cut=FLAG,
)
"""What a broker says of a replica at a snapshot. ``served``: asked over the wire; else only checkpoints tell,
and ``last_stable_offset``, ``aborted`` and ``open`` are null. ``last_segment``: where
the last segment begins, of copies; ``log_end``: the offset after the last whole batch, of copies and of what was read
from a running cluster; ``cut``: whether the log goes on where the latter was ended on purpose."""

HISTORY = _evidence(
    index=LONG,
    type=TEXT,
    f=TEXT,
    op=LONG,
    time_ms=LONG,
    process=TEXT,
    part=TEXT,
    phase=TEXT,
    transactional_id=TEXT,
    txn=LONG,
    topic=TEXT,
    partition=INT,
    offset=LONG,
    key=TEXT,
    tombstone=FLAG,
    broker=INT,
    position=LONG,
    records=t.ArrayType(_table(offset=LONG, key=TEXT)),
)
"""Client operations, as `harness.run_folder.history` writes them."""

_NOTED = t.ArrayType(_table(offset=LONG, kind=TEXT, producer_id=LONG))
OBSERVATIONS = _evidence(
    time_ms=LONG,
    broker=INT,
    topic=TEXT,
    partition=INT,
    log_start=LONG,
    high_watermark=LONG,
    last_stable_offset=LONG,
    log_end=LONG,
    batches=LONG,
    digest=LONG,
    appeared=_NOTED,
    removed=_NOTED,
)
"""What the observer saw, as `harness.cluster.observe` writes it."""

SETTINGS = _evidence(
    delete_retention_ms=LONG,
    min_compaction_lag_ms=LONG,
)
"""What the topics of a run are set to, as `checkers.evidence.retentions` has it of the manifest; null where it does
not tell."""
