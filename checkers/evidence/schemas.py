"""The schemas of the evidence tables. Each ends in ``problem``: why the rest of a file is unreadable."""

from pyspark.sql import types as t

LONG, INT, TEXT, FLAG = t.LongType(), t.IntegerType(), t.StringType(), t.BooleanType()


def table(**columns: t.DataType) -> t.StructType:
    """Return the schema of a table with these columns."""
    return t.StructType([t.StructField(name, type_) for name, type_ in columns.items()])


def _evidence(**columns: t.DataType) -> t.StructType:
    return table(run=TEXT, **columns, problem=TEXT)


_REPLICA_FILE: dict[str, t.DataType] = {
    "snapshot": TEXT, "source": TEXT, "broker": INT, "topic": TEXT, "partition": INT
}  # fmt: skip
"""The columns that a file's path gives. ``source`` is disk or fetch."""

ENTRIES = _evidence(
    **_REPLICA_FILE, judged=FLAG,
    base_offset=LONG, last_offset=LONG, leader_epoch=INT, crc=LONG,
    producer_id=LONG, producer_epoch=INT, transactional=FLAG, control=FLAG, marker=TEXT,
    horizon_ms=LONG, max_timestamp_ms=LONG,
    first_in_batch=FLAG, offset=LONG, key=t.BinaryType(), tombstone=FLAG, txn=TEXT,
)  # fmt: skip
"""A row is one record, or one batch without records (a control batch, or a batch that compaction emptied): then
``offset``, ``key``, ``tombstone`` and ``txn`` (the record header) are null. ``judged``: whether the row's source is
judged: the replica's files, or the batches that its broker served if its files are not Kafka logs."""

ABORTS = _evidence(**_REPLICA_FILE, producer_id=LONG, first_offset=LONG, last_offset=LONG)
"""``.txnindex`` entries; ``last_offset`` is the offset of the ABORT marker (`CompletedTxn`)."""

PRODUCERS = _evidence(
    **_REPLICA_FILE, as_of=LONG, producer_id=LONG, producer_epoch=INT, last_offset=LONG, first_offset=LONG
)
"""Entries of producer snapshots: the replica's state of each producer when its log ended at ``as_of``; ``first_offset``
is the first offset of the producer's open transaction, else null. A snapshot without producers is one row of nulls."""

EPOCHS = _evidence(**_REPLICA_FILE, leader_epoch=INT, start_offset=LONG)
"""Entries of a replica's ``leader-epoch-checkpoint``."""

COORDINATORS = _evidence(broker=INT, partition=INT, offset=LONG, transactional_id=TEXT, producer_id=LONG, state=TEXT)
"""Records of ``__transaction_state``; ``producer_id`` and ``state`` are null for an expired transactional id. For a
running cluster: the answers of each transaction coordinator; ``partition`` is null."""

STATES = _evidence(
    snapshot=TEXT, broker=INT, topic=TEXT, partition=INT, served=FLAG,
    log_start=LONG, high_watermark=LONG, last_stable_offset=LONG,
    aborted=t.ArrayType(t.ArrayType(LONG)), open=t.ArrayType(t.ArrayType(LONG)),
    cleaner_offset=LONG, directory_id=TEXT, last_segment=LONG, log_end=LONG,
    read_bound=LONG, listed_to=LONG, complete=FLAG, leader=INT, leader_epoch=INT, start_checkpoint=LONG,
)  # fmt: skip
"""The state of a replica at a snapshot. ``served``: the broker was asked over the wire; else the state comes from
checkpoints, and ``last_stable_offset``, ``aborted`` and ``open`` are null. For runs: ``leader`` and ``leader_epoch`` of
the partition. For copies: ``last_segment``, the last segment's first offset; ``log_end``, after the last complete
batch; ``start_checkpoint``, the log start offset in the broker's checkpoint, or null. For a running cluster (see
`harness.audit.live.spool`): ``log_end``, up to which the log was read; ``read_bound``, an offset that every replica had
before any was read; ``listed_to``, up to which the broker listed aborted transactions; and ``complete``."""

HISTORY = _evidence(
    index=LONG, type=TEXT, f=TEXT, op=LONG, time_ms=LONG, process=TEXT, part=TEXT, phase=TEXT,
    transactional_id=TEXT, txn=LONG,
    topic=TEXT, partition=INT, offset=LONG, key=t.BinaryType(), tombstone=FLAG,
    broker=INT, position=LONG, records=t.ArrayType(table(offset=LONG, key=TEXT)),
)  # fmt: skip
"""Client operations, as `harness.run_folder.history` writes them."""

_ENTRIES_SEEN = t.ArrayType(table(offset=LONG, kind=TEXT, producer_id=LONG))
OBSERVATIONS = _evidence(
    time_ms=LONG, broker=INT, topic=TEXT, partition=INT,
    log_start=LONG, high_watermark=LONG, last_stable_offset=LONG, log_end=LONG,
    batches=LONG, digest=LONG, appeared=_ENTRIES_SEEN, removed=_ENTRIES_SEEN,
)  # fmt: skip
"""The observer's observations, as `harness.cluster.observe` writes them."""

SETTINGS = _evidence(delete_retention_ms=LONG, min_compaction_lag_ms=LONG)
"""Settings of a run's topics, from the manifest (`parse.retentions_ms`); null if they are unknown."""
