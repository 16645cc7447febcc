"""One pass of Redpanda's compaction in the model: what goes, when, and what a replica says of itself."""

from dataclasses import replace

from model_logs import data, marker, replica

from harness.broker_files.segments.records import ABORT, COMMIT
from harness.models.log.cleaner import Bounds, Cleaning
from harness.models.log.redpanda import clean, progress
from harness.models.log.replica import Replica

CLEANING = Cleaning(delete_retention_ms=10, producer_expiration_ms=10)
KEPT = Bounds(tombstones=0, markers=0)


def offsets(log: Replica) -> list[int]:
    return [record.offset for batch in log.batches() for record in batch.records]


def test_the_last_record_of_each_key_stays_and_the_active_segment_is_left_alone() -> None:
    log = replica(data(0, "K=v"), data(1, "K=v"), data(2, "L=v"), data(3, "L=v"))
    assert clean(log, CLEANING, 0)
    assert offsets(log) == [1, 2, 3]
    assert not clean(log, CLEANING, 0)


def test_nothing_from_an_open_transaction_on_is_compacted() -> None:
    log = replica(data(0, "K=v"), data(1, "L=v", txn=7), data(2, "K=v"), data(3, "x=v"))
    assert clean(log, CLEANING, 0)
    assert offsets(log) == [0, 1, 2, 3]
    assert progress(log) == Bounds(1, 1)


def test_a_tombstone_waits_for_its_age_and_for_mtro() -> None:
    log = replica(data(0, "K=v"), data(1, "K"), data(2, "x=v"))
    clean(log, CLEANING, 0)
    assert offsets(log) == [1, 2]
    assert not clean(log, CLEANING, 9)
    assert not clean(log, CLEANING, 10, Bounds(tombstones=1))
    assert clean(log, CLEANING, 10, Bounds(tombstones=2))
    assert offsets(log) == [2]


def test_committed_data_become_plain_and_aborted_data_go() -> None:
    log = replica(
        data(0, "K=v", txn=7), marker(1, COMMIT, 7), data(2, "L=v", txn=7), marker(3, ABORT, 7), data(4, "x=v")
    )
    assert progress(log) == Bounds(0, 0)
    clean(log, CLEANING, 0, KEPT)
    assert offsets(log) == [0, 1, 3, 4]
    assert not any(batch.transactional for batch in log.batches() if not batch.control)
    assert progress(log) == Bounds(4, 4)


def test_a_marker_waits_for_its_age_for_mxro_and_for_a_snapshot() -> None:
    written = [data(0, "K=v", txn=7), marker(1, COMMIT, 7)]
    one_roll = replica(*written, data(2, "x=v"))
    clean(one_roll, CLEANING, 0)
    assert not clean(one_roll, CLEANING, 10)
    assert clean(one_roll.fork(), CLEANING, 10, without=frozenset({"snapshot-first"}))
    two_rolls = replica(*written, data(2, "x=v"), data(3, "y=v"))
    clean(two_rolls, CLEANING, 0)
    assert not clean(two_rolls, CLEANING, 9)
    assert not clean(two_rolls, CLEANING, 10, Bounds(markers=1))
    assert clean(two_rolls, CLEANING, 10, Bounds(markers=2))
    assert offsets(two_rolls) == [0, 2, 3]


def test_mxfo_as_the_post_has_it_is_where_transactions_have_ended() -> None:
    log = replica(data(0, "K=v", txn=7), marker(1, COMMIT, 7), data(2, "x=v"))
    assert progress(log, frozenset({"free-not-ended"})) == Bounds(0, 3)


def test_without_a_rule() -> None:
    log = replica(data(0, "K=v"), data(1, "K"), data(2, "x=v"))
    clean(log, CLEANING, 0, without=frozenset({"tombstones-age"}))
    assert offsets(log) == [2]
    log = replica(data(0, "K=v", txn=7), marker(1, COMMIT, 7), data(2, "x=v"), data(3, "x=v"))
    clean(log, CLEANING, 0, without=frozenset({"markers-age", "committed-is-plain"}))
    assert offsets(log) == [0, 2, 3]
    assert next(log.batches()).transactional


def test_the_last_batch_of_a_pass_leaves_its_offsets() -> None:
    log = replica(data(0, "K=v", txn=7), marker(1, ABORT, 7))
    traffic = replace(CLEANING, active_too=True)
    clean(log, traffic, 0)
    clean(log, traffic, 10)
    (batch,) = log.batches()
    assert (batch.base_offset, batch.last_offset, batch.records) == (1, 1, ())
    assert (batch.producer_id, batch.marker) == (-1, None)
    assert not clean(log, traffic, 10)
