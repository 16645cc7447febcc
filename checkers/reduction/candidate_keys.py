"""The keys whose final state may differ between replicas, found by reading every record once.

Every key is hashed and sent to the task of its hash's bucket, sixteen bytes for each record. That task compares the
last committed record of each key on each replica. The checkers judge the candidate keys, which may be healthy; a key
that is not a candidate has not diverged.

A key with a later record at or beyond the bound, because of which some replica may have cleaned, is not a candidate.
Every other key is a candidate unless its last value (none, for a tombstone or no record) is the same on every replica
whose log does not start after it, and no log that starts after it has a tombstone. Keys of records whose transaction is
misjudged are always candidates.

Two keys with the same hash (64 bits) count as one key; a difference is missed if the other key hides it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from checkers.evidence.schemas import INT, LONG, TEXT, table
from checkers.evidence.tables import PARTITION, PLACE, RunPartition
from checkers.reduction.segments import Array, Longs, ReplicaSegment, read_segments, shares
from checkers.replay.batch_outcomes import ABORTED, OPEN
from harness.broker_files.segments.batches import CONTROL, TRANSACTIONAL, until_cut
from harness.broker_files.segments.blocks import Block, Unpacked, iter_blocks, key_hashes, unpack

Hashes = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.uint8]

TOMBSTONE, NOT_COMMITTED, IS_OPEN, LATER, MISJUDGED = 1, 2, 4, 8, 16
"""Flags of a record: a tombstone; believed aborted or open; open; at or beyond the bound; of a misjudged batch."""
_FLAG_BITS = 8
_FLAGS_OF = {ABORTED: NOT_COMMITTED, OPEN: NOT_COMMITTED | IS_OPEN}

BUCKET_RECORDS: Final = 2_000_000
"""About the number of records of each bucket, sixteen bytes each."""
TASK_BYTES: Final = 64 << 20
"""Bytes of segment files that one task reads."""
SEND_ROWS: Final = 1 << 21
KEYS_A_PARTITION: Final = 2_000
"""About the limit of candidate keys of a partition, shared by its buckets. Keys beyond the limit are counted."""

BELIEF: Final = np.dtype([("producer", np.int64), ("start", np.int64), ("flags", np.uint8)])
"""The flags of the records of a producer from an offset on, up to the start of its next belief."""
_BELIEFS = table(segment=INT, beliefs=t.BinaryType())
_SENT = table(run=TEXT, topic=TEXT, partition=INT, bucket=INT, broker=INT, hashes=t.BinaryType(), places=t.BinaryType())

CANDIDATE_RECORDS = table(run=TEXT, topic=TEXT, partition=INT, broker=INT, **{"from": LONG}, to=LONG, left_out=LONG)
"""Ranges of offsets to read. ``left_out``: in a separate row, the number of candidate keys beyond the limit."""


def candidate_keys(
    beliefs: DataFrame, segments: Sequence[ReplicaSegment], records: Mapping[RunPartition, int], tasks: int
) -> DataFrame:
    """Return `CANDIDATE_RECORDS` of some partitions: every record of each candidate key.

    ``beliefs``: ``segment`` and ``beliefs``, of `BELIEF`, about the transactional spans of that file, in any number of
    rows. ``records``: the number of records of the partitions to read. ``tasks``: of Spark, that compare.
    """
    candidate_schema = to_arrow_schema(CANDIDATE_RECORDS)
    log_starts: dict[RunPartition, dict[int, int]] = {}
    for segment in segments:
        log_starts.setdefault(segment.place, {})[segment.broker] = segment.log_start
    buckets = {place: max(1, -(-count // BUCKET_RECORDS)) for place, count in records.items()}

    def send(
        segment: ReplicaSegment, _index: int, packed: Sequence[bytes], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        if segment.place in buckets:
            yield from _send(segment, buckets[segment.place], _Beliefs(packed), schema)

    def compare(bucket: pa.Table) -> pa.Table:
        place = tuple(bucket.column(name)[0].as_py() for name in PLACE)
        limit = max(1, KEYS_A_PARTITION // buckets[place])
        return _compare(bucket, place, log_starts[place], limit, candidate_schema)

    numbers = [index for index, segment in enumerate(segments) if segment.place in buckets]
    readers = max(1, len(shares([segments[index] for index in numbers], TASK_BYTES)))
    files = beliefs.sparkSession.createDataFrame([(number, None) for number in numbers], _BELIEFS)
    by_file = files.unionAll(beliefs.select(*_BELIEFS.names)).repartition(readers, "segment").groupBy("segment")
    requests = by_file.agg(f.collect_list("beliefs"))
    sent = read_segments(requests, segments, _SENT, send).repartition(tasks, *PARTITION, "bucket")
    return sent.groupBy(*PARTITION, "bucket").applyInArrow(compare, CANDIDATE_RECORDS)


def packed_beliefs(spans: DataFrame) -> DataFrame:
    """Return ``segment`` and ``beliefs``, of `BELIEF`, about transactional producer spans with beliefs."""
    schema = to_arrow_schema(_BELIEFS)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            segments, producers, starts = (batch.column(name).to_numpy() for name in columns[:3])
            flags = np.array([_FLAGS_OF.get(belief, 0) for belief in batch.column("belief").to_pylist()], np.uint8)
            flags |= batch.column("misjudged").to_numpy(zero_copy_only=False) * np.uint8(MISJUDGED)
            yield pa.RecordBatch.from_pylist(beliefs_by_file(segments, producers, starts, flags), schema)

    columns = "segment", "producer_id", "base_offset", "belief", "misjudged"
    return spans.where("transactional").select(*columns).mapInArrow(pack, _BELIEFS)


def beliefs_by_file(segments: Array, producers: Longs, starts: Longs, flags: Array) -> list[dict[str, Any]]:
    """Return a row for each file: ``segment``, and its ``beliefs`` of `BELIEF`."""
    beliefs = np.empty(len(segments), BELIEF)
    beliefs["producer"], beliefs["start"], beliefs["flags"] = producers, starts, flags
    numbers = np.unique(segments).tolist()
    return [{"segment": number, "beliefs": beliefs[segments == number].tobytes()} for number in numbers]


class _Beliefs:
    """A replica's beliefs about the transactional batches of one file, by producer and offset."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        beliefs = np.concatenate([np.empty(0, BELIEF), *(np.frombuffer(data, BELIEF) for data in packed)])
        beliefs = beliefs[np.lexsort((beliefs["start"], beliefs["producer"]))]
        producers, firsts = np.unique(beliefs["producer"], return_index=True)
        self._by_producer: dict[int, tuple[Longs, Flags]] = {
            producer: (np.ascontiguousarray(mine["start"]), mine["flags"])
            for producer, mine in zip(producers.tolist(), np.split(beliefs, firsts[1:]), strict=False)
        }

    def of(self, block: Block, log_end: int) -> Flags:
        """Return the flags of each batch of a block that lies before the log end."""
        batches = block.batches
        batch_flags = np.zeros(len(batches), np.uint8)
        is_data = (batches["attributes"] & (TRANSACTIONAL | CONTROL)) == TRANSACTIONAL
        data_batches = np.flatnonzero(is_data & (batches["last_offset"] < log_end))
        producers = batches["producer_id"][data_batches]
        for producer in np.unique(producers).tolist():
            mine = data_batches[producers == producer]
            starts, flags = self._by_producer[producer]
            batch_flags[mine] = flags[np.searchsorted(starts, batches["base_offset"][mine], "right") - 1]
        return batch_flags


def _send(segment: ReplicaSegment, buckets: int, beliefs: _Beliefs, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    pending: list[tuple[Hashes, Longs]] = []
    rows = 0
    with segment.path.open("rb", buffering=0) as file:
        # Checksums were computed when the file was scanned.
        for block in until_cut(iter_blocks(file, source=str(segment.path), verify_crc=False)):
            flags = beliefs.of(block, segment.log_end)
            for unpacked in unpack(block, block.batches["last_offset"] < segment.log_end):
                pending.append(_packed(segment, unpacked, flags))
                rows += len(pending[-1][0])
                if rows >= SEND_ROWS:
                    yield _distributed(segment, buckets, pending, schema)
                    pending, rows = [], 0
    if rows:
        yield _distributed(segment, buckets, pending, schema)


def _packed(segment: ReplicaSegment, unpacked: Unpacked, flags: Flags) -> tuple[Hashes, Longs]:
    """Return hash and place of each record with a key from the log start on; a place is an offset with flags."""
    offsets = unpacked.offset
    bits = flags[unpacked.batch] | unpacked.is_tombstone.view(np.uint8)
    bits |= (offsets >= segment.bound).view(np.uint8) * np.uint8(LATER)
    hashes, places = key_hashes(unpacked), (offsets << _FLAG_BITS) | bits
    keyed = (unpacked.key_size >= 0) & (offsets >= segment.log_start)
    return (hashes, places) if keyed.all() else (hashes[keyed], places[keyed])


def _distributed(
    segment: ReplicaSegment, buckets: int, pending: list[tuple[Hashes, Longs]], schema: pa.Schema
) -> pa.RecordBatch:
    hashes, places = (np.concatenate(column) for column in zip(*pending, strict=True))
    numbers = (hashes % np.uint64(buckets)).astype(np.uint16)
    order = np.argsort(numbers, kind="stable")
    cuts = np.searchsorted(numbers[order], np.arange(buckets + 1)).tolist()
    head, hashes, places = segment.replica, hashes[order], places[order]
    rows = [
        {**head, "bucket": bucket, "hashes": hashes[start:end].tobytes(), "places": places[start:end].tobytes()}
        for bucket, (start, end) in enumerate(pairwise(cuts))
        if end > start
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def _compare(
    bucket: pa.Table, place: RunPartition, log_starts: dict[int, int], limit: int, schema: pa.Schema
) -> pa.Table:
    """Return the records of at most ``limit`` candidate keys; replicas without records are compared, too."""
    brokers = bucket.column("broker").to_numpy()
    hashes = [np.frombuffer(value.as_buffer(), np.uint64) for value in bucket.column("hashes")]
    placed = np.concatenate([np.frombuffer(value.as_buffer(), np.int64) for value in bucket.column("places")])
    owned = np.repeat(brokers, [len(share) for share in hashes])
    grouped = pa.array(np.concatenate(hashes)).dictionary_encode()
    groups, keys = grouped.indices.to_numpy(), len(grouped.dictionary)
    is_candidate = _differ(placed, owned, groups, keys, log_starts)
    rows = np.flatnonzero(is_candidate[groups])
    # Keep the keys with the lowest offsets, so that the first record of a misjudged transaction is among them.
    numbers = np.flatnonzero(is_candidate)
    lowest = np.full(keys, np.iinfo(np.int64).max)
    np.minimum.at(lowest, groups[rows], placed[rows])
    is_candidate[numbers[np.argsort(lowest[numbers])[limit:]]] = False
    rows = rows[is_candidate[groups[rows]]]
    offsets = placed[rows] >> _FLAG_BITS
    head = dict(zip(PLACE, place, strict=True))
    left_out = len(numbers) - int(is_candidate.sum())
    columns: dict[str, Any] = {name: [value] * len(rows) for name, value in {**head, "left_out": None}.items()}
    candidates = pa.Table.from_pydict({**columns, "broker": owned[rows], "from": offsets, "to": offsets}, schema)
    more = [{**head, "left_out": left_out}] if left_out else []
    return pa.concat_tables([candidates, pa.Table.from_pylist(more, schema)])


def _differ(
    placed: Longs, owned: npt.NDArray[np.int32], groups: npt.NDArray[np.int32], count: int, log_starts: dict[int, int]
) -> npt.NDArray[np.bool_]:
    """Return for each key (a group number) whether its replicas may differ."""
    # A later committed record excludes its key.
    counts = placed & NOT_COMMITTED == 0
    later = (placed & LATER != 0) & ((placed & NOT_COMMITTED == 0) | (placed & IS_OPEN != 0))
    values, ends = [], []
    for broker in log_starts:
        mine = np.flatnonzero((owned == broker) & counts)
        last = np.full(count, -1)
        np.maximum.at(last, groups[mine], placed[mine])
        # Without a committed record the place is -1: all flags are set, including the flag of tombstones.
        ends.append(last >> _FLAG_BITS)
        values.append(np.where(last & TOMBSTONE == 0, ends[-1], -1))
    highest = np.max(values, axis=0)
    # A tombstone after the value counts, too, where the log starts between them.
    covers = (np.array(list(log_starts.values()))[:, None] <= highest) | (np.array(ends) > highest)
    differs: npt.NDArray[np.bool_] = ((np.array(values) < highest) & covers).any(axis=0)
    differs[groups[later]] = False
    differs[groups[placed & MISJUDGED != 0]] = True
    return differs
