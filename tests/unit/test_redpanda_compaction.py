"""One pass of Redpanda's compaction in the model: what goes, when, and what a replica says of itself."""

from __future__ import annotations

from dataclasses import replace

from harness.broker_files.segments.records import ABORT, COMMIT, Record, marker_record
from harness.models.log.batch import ModelBatch
from harness.models.log.cleaner import Bounds, Cleaning
from harness.models.log.redpanda import clean, progress
from harness.models.log.replica import Replica

CLEANING = Cleaning(delete_retention_ms=10, producer_expiration_ms=10)
KEPT = Bounds(tombstones=0, markers=0)


def data(offset: int, key: str, value: bytes | None = b"v", *, in_txn: bool = False) -> ModelBatch:
    return ModelBatch(
        base_offset=offset,
        last_offset=offset,
        records=(Record(offset, 0, key.encode(), value),),
        max_timestamp_ms=0,
        producer_id=7 if in_txn else -1,
        transactional=in_txn,
    )


def marker(offset: int, outcome: str) -> ModelBatch:
    return replace(data(offset, "", in_txn=True), records=(marker_record(offset, 0, outcome),), control=True)


def replica_of(*batches: ModelBatch) -> Replica:
    """Return a replica with a segment for each batch, the last of which is active, and all replicated."""
    replica = Replica(1)
    for batch in batches:
        replica.append(batch, roll=True)
    replica.advance_high_watermark(replica.log_end)
    return replica


def offsets(replica: Replica) -> list[int]:
    return [record.offset for batch in replica.batches() for record in batch.records]


def test_the_last_record_of_each_key_stays_and_the_active_segment_is_left_alone() -> None:
    replica = replica_of(data(0, "K"), data(1, "K"), data(2, "L"), data(3, "L"))
    assert clean(replica, CLEANING, 0)
    assert offsets(replica) == [1, 2, 3]
    assert not clean(replica, CLEANING, 0)


def test_nothing_from_an_open_transaction_on_is_compacted() -> None:
    replica = replica_of(data(0, "K"), data(1, "L", in_txn=True), data(2, "K"), data(3, "x"))
    assert clean(replica, CLEANING, 0)
    assert offsets(replica) == [0, 1, 2, 3]
    assert progress(replica) == Bounds(1, 1)


def test_a_tombstone_waits_for_its_age_and_for_mtro() -> None:
    replica = replica_of(data(0, "K"), data(1, "K", None), data(2, "x"))
    clean(replica, CLEANING, 0)
    assert offsets(replica) == [1, 2]
    assert not clean(replica, CLEANING, 9)
    assert not clean(replica, CLEANING, 10, Bounds(tombstones=1))
    assert clean(replica, CLEANING, 10, Bounds(tombstones=2))
    assert offsets(replica) == [2]


def test_committed_data_become_plain_and_aborted_data_go() -> None:
    replica = replica_of(
        data(0, "K", in_txn=True), marker(1, COMMIT), data(2, "L", in_txn=True), marker(3, ABORT), data(4, "x")
    )
    assert progress(replica) == Bounds(0, 0)
    clean(replica, CLEANING, 0, KEPT)
    assert offsets(replica) == [0, 1, 3, 4]
    assert not any(batch.transactional for batch in replica.batches() if not batch.control)
    assert progress(replica) == Bounds(4, 4)


def test_a_marker_waits_for_its_age_for_mxro_and_for_a_snapshot() -> None:
    written = [data(0, "K", in_txn=True), marker(1, COMMIT)]
    one_roll = replica_of(*written, data(2, "x"))
    clean(one_roll, CLEANING, 0)
    assert not clean(one_roll, CLEANING, 10)
    assert clean(one_roll.fork(), CLEANING, 10, without=frozenset({"snapshot-first"}))
    two_rolls = replica_of(*written, data(2, "x"), data(3, "y"))
    clean(two_rolls, CLEANING, 0)
    assert not clean(two_rolls, CLEANING, 9)
    assert not clean(two_rolls, CLEANING, 10, Bounds(markers=1))
    assert clean(two_rolls, CLEANING, 10, Bounds(markers=2))
    assert offsets(two_rolls) == [0, 2, 3]


def test_mxfo_as_the_post_has_it_is_where_transactions_have_ended() -> None:
    replica = replica_of(data(0, "K", in_txn=True), marker(1, COMMIT), data(2, "x"))
    assert progress(replica, frozenset({"free-not-ended"})) == Bounds(0, 3)


def test_without_a_rule() -> None:
    replica = replica_of(data(0, "K"), data(1, "K", None), data(2, "x"))
    clean(replica, CLEANING, 0, without=frozenset({"tombstones-age"}))
    assert offsets(replica) == [2]
    replica = replica_of(data(0, "K", in_txn=True), marker(1, COMMIT), data(2, "x"), data(3, "x"))
    clean(replica, CLEANING, 0, without=frozenset({"markers-age", "committed-is-plain"}))
    assert offsets(replica) == [0, 2, 3]
    assert next(replica.batches()).transactional


def test_the_last_batch_of_a_pass_leaves_its_offsets() -> None:
    replica = replica_of(data(0, "K", in_txn=True), marker(1, ABORT))
    traffic = replace(CLEANING, active_too=True)
    clean(replica, traffic, 0)
    clean(replica, traffic, 10)
    (placeholder,) = replica.batches()
    assert (
        placeholder.base_offset,
        placeholder.last_offset,
        placeholder.records,
        placeholder.producer_id,
        placeholder.marker,
    ) == (1, 1, (), -1, None)
    assert not clean(replica, traffic, 10)
