"""The model's rules on logs of a few batches, written out: what the cleaner keeps and what a broker believes.

Each batch is its own segment unless stated otherwise, and the last one is active, so never cleaned.
"""

from dataclasses import replace

import pytest
from model_logs import data, emptied, marker, replica

from harness.broker_files.segments.records import ABORT, COMMIT
from harness.broker_files.side_files.producer_state import AbortedTxn
from harness.models.log.batch import ModelBatch
from harness.models.log.cleaner import Cleaning, clean
from harness.models.log.replica import Replica
from harness.models.log.replication import Replication
from harness.models.log.version_rules import VersionRules, rules_of

pytestmark = pytest.mark.commit

RETENTION_MS = 100
EXPIRATION_MS = 1000
CLEANING = Cleaning(delete_retention_ms=RETENTION_MS, producer_expiration_ms=EXPIRATION_MS)


def grow(log: Replica, key: str = "filler") -> None:
    """Roll, so that the active segment can be cleaned."""
    log.append(data(log.log_end, f"{key}=x"), roll=True)
    log.advance_high_watermark(log.log_end)


def run(log: Replica, now_ms: int = 0) -> bool:
    return clean(log, CLEANING, now_ms)


def shown(log: Replica) -> list[str]:
    """Show each batch: its offsets, then its records, a marker's type, or nothing."""
    lines = []
    for batch in log.batches():
        pairs = (((r.key or b"").decode(), "" if r.value is None else f"={r.value.decode()}") for r in batch.records)
        content = batch.marker or " ".join(map("".join, pairs))
        lines.append(f"{batch.base_offset}-{batch.last_offset} {content}".strip())
    return lines


def test_the_last_value_of_a_key_stays_and_batches_keep_their_offsets() -> None:
    log = replica(data(0, "a=1", "b=1", "a=2"), data(3, "b=2", "a=3"), data(5, "c=1"), data(6, "a=4"))
    assert run(log)
    assert shown(log) == ["3-4 b=2 a=3", "5-5 c=1", "6-6 a=4"]
    assert [segment.base_offset for segment in log.segments] == [0, 6]
    assert log.cleaned_to == 6


@pytest.mark.parametrize(("log", "cleaned_to"), [
    (replica(data(0, "a=1"), data(1, "a=2"), data(2, "b=1", txn=7), data(3, "c=1")), 2),
    (replica(data(0, "a=1"), data(1, "a=2"), data(2, "a=3"), high_watermark=1), 1),
    (replica(data(0, "a=1"), data(1, "b=1", txn=7), marker(2, COMMIT, 7), data(3, "a=2"), high_watermark=2), 1),
    (replica(data(0, "a=1", txn=7), data(1, "a=2"), data(2, "a=3")), None),
], ids=["open transaction", "high watermark", "marker beyond the high watermark", "open from the start"])  # fmt: skip
def test_nothing_is_cleaned_from_the_segment_of_the_last_stable_offset_on(log: Replica, cleaned_to: int | None) -> None:
    assert run(log) == (cleaned_to is not None)
    assert log.cleaned_to == cleaned_to


OPEN = data(0, "k=1", txn=7)
COMMITTED = (OPEN, marker(1, COMMIT, 7))
TWICE = (*COMMITTED, data(2, "l=1", txn=7), marker(3, COMMIT, 7), data(4, "l=2"))


@pytest.mark.parametrize(("batches", "remembered", "until_ms", "kept"), [
    (COMMITTED, False, EXPIRATION_MS, ["0-0 k=1", "1-1 commit"]),
    (TWICE, False, EXPIRATION_MS, ["0-0 k=1", "1-1 commit", "4-4 l=2"]),
    ((*COMMITTED, data(2, "k=2")), True, EXPIRATION_MS, ["0-0", "1-1 commit", "2-2 k=2"]),
    ((*COMMITTED, data(2, "k=2")), True, 2 * EXPIRATION_MS, ["2-2 k=2"]),
    ((COMMITTED[0], marker(1, COMMIT, 7, epoch=1), data(2, "k=2")), True, EXPIRATION_MS, ["1-1", "2-2 k=2"]),
], ids=[
    "with a batch of its transaction", "each by its own transaction",
    "with the producer's last batch, which stays empty", "not after the producer expired",
    "emptied, where it raised the epoch",
])  # fmt: skip
def test_a_commit_stays(batches: tuple[ModelBatch, ...], until_ms: int, kept: list[str], *, remembered: bool) -> None:
    log = replica(*batches)
    if not remembered:
        log.producers.clear()
    for now_ms in range(0, until_ms, 200):
        grow(log)
        run(log, now_ms)
    assert shown(log)[: len(kept)] == kept
    assert not remembered or next(log.batches()).control == (kept[0] == "1-1")
    assert remembered or next(log.batches()).delete_horizon_ms is None


@pytest.mark.parametrize(("log", "aborted", "open_from"), [
    ((OPEN, data(1, "l=1", txn=7, epoch=1), marker(2, ABORT, 7, epoch=2)), [AbortedTxn(7, 0, 2, 3)], None),
    ((OPEN, emptied(1, 7)), [], 0),
    ((marker(0, ABORT, 7),), [], None),
    ((OPEN, data(1, "l=1", txn=8), marker(2, ABORT, 8)), [AbortedTxn(8, 1, 2, 0)], 0),
], ids=["a marker of any epoch", "an emptied marker", "a marker without data", "another is open"])  # fmt: skip
def test_ends_of_transactions(log: tuple[ModelBatch, ...], aborted: list[AbortedTxn], open_from: int | None) -> None:
    """An entry of the index has the first offset that is still open."""
    after = replica(*log)
    assert (after.aborted, after.producers[7].current_txn_first_offset) == (aborted, open_from)
    assert after.last_stable_offset == (after.log_end if open_from is None else open_from)


def test_a_producer_with_an_open_transaction_never_expires() -> None:
    log = replica(OPEN, data(1, "l=1", idempotent=8), data(2, "m=1", idempotent=9, at_ms=500))
    log.expire(EXPIRATION_MS, EXPIRATION_MS)
    assert sorted(log.producers) == [7, 9]


def test_truncation_takes_the_producers_back() -> None:
    log = replica(OPEN, data(1, "l=1"), marker(2, ABORT, 7), data(3, "m=1", txn=8))
    log.truncate(2)
    assert shown(log) == ["0-0 k=1", "1-1 l=1"]
    assert {producer_id: producer.current_txn_first_offset for producer_id, producer in log.producers.items()} == {7: 0}
    assert (log.log_end, log.high_watermark) == (2, 2)
    assert [(segment.base_offset, segment.aborted) for segment in log.segments] == [(0, []), (1, []), (2, [])]


def test_truncation_leaves_out_markers_if_all_producers_have_expired() -> None:
    """``UnifiedLog.rebuildProducerState``; found by `bench/cleaner_passes.py`."""
    log = replica(data(0, "k=1", txn=7), marker(1, ABORT, 7), data(2, "l=1"))
    log.expire(EXPIRATION_MS, EXPIRATION_MS)
    log.truncate(2)
    assert log.last_stable_offset == 2
    log = Replica(1)
    for number, batch in enumerate((data(0, "k=1", txn=7), marker(1, ABORT, 7), data(2, "l=1"))):
        log.append(batch, roll=number == 1)
    log.advance_high_watermark(2)
    log.expire(EXPIRATION_MS, EXPIRATION_MS)
    log.truncate(2)
    assert log.last_stable_offset == 0


def test_truncation_inside_a_segment_takes_back_its_aborted_transactions() -> None:
    log = Replica(1)
    for batch in (OPEN, marker(1, ABORT, 7), data(2, "l=1", txn=7), marker(3, ABORT, 7)):
        log.append(batch)
    log.truncate(3)
    assert log.segments[0].aborted == [AbortedTxn(7, 0, 1, 2)]
    assert log.producers[7].current_txn_first_offset == 2


def test_a_log_start_takes_whole_segments_only() -> None:
    log = replica(data(0, "a=1", "b=1"), data(2, "c=1", "d=1"), data(4, "e=1"))
    log.delete_before(3)
    assert shown(log) == ["2-3 c=1 d=1", "4-4 e=1"]
    assert log.log_start == 3


def test_neighbours_become_one_segment_up_to_a_size() -> None:
    log = replica(*(data(n, f"k{n}=1") for n in range(6)))
    assert clean(log, Cleaning(delete_retention_ms=0, producer_expiration_ms=0, group_batches=2), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4, 5]
    assert sorted(log.snapshots) == [2, 4, 5]


def test_segments_more_than_2_31_offsets_apart_stay_apart_unless_they_are_empty() -> None:
    """``Cleaner.groupSegmentsBySize``; found by `bench/cleaner_passes.py`."""
    far = 2**31
    log = replica(data(0, "a=1"), data(far, "b=1"), data(far + 1, "b=2"), data(2 * far, "end=1"))
    assert clean(log, CLEANING, 0)
    assert [segment.base_offset for segment in log.segments] == [0, far, 2 * far]
    log.segments[1].batches.clear()
    log.append(data(2 * far + 1, "end=2"), roll=True)
    assert clean(log, CLEANING, 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2 * far, 2 * far + 1]


def test_what_is_younger_than_the_lag_is_left_alone() -> None:
    """The first segment with a younger record ends the cleanable range (``LogCleanerManager.cleanableOffsets``)."""
    lagging = replace(CLEANING, min_compaction_lag_ms=50)
    log = replica(data(0, "a=1"), data(1, "a=2", at_ms=60), data(2, "a=3"), data(3, "end=1"))
    assert clean(log, lagging, 100)
    assert shown(log) == ["0-0 a=1", "1-1 a=2", "2-2 a=3", "3-3 end=1"]
    assert log.cleaned_to == 1
    assert clean(log, lagging, 110)
    assert shown(log) == ["2-2 a=3", "3-3 end=1"]


def test_a_leaders_epoch_begins_with_its_election_and_is_forgotten_without_a_batch() -> None:
    one, two, three = (replica(data(0, "a=1")) for _ in range(3))
    replication = Replication({1: one, 2: two, 3: three}, 1, rolls=lambda *_: True)
    replication.elect(2)
    assert two.epochs == {0: 0, 1: 1}
    replication.elect(3)
    assert (two.epochs, three.epochs) == ({0: 0}, {0: 0, 2: 1})
    replication.append(replace(data(1, "a=2"), leader_epoch=2))
    replication.fetch_all()
    assert one.epochs == two.epochs == three.epochs == {0: 0, 2: 1}


def test_a_log_start_moves_the_epoch_that_it_falls_into() -> None:
    log = replica(data(0, "a=1"), replace(data(1, "b=1"), leader_epoch=3), replace(data(2, "c=1"), leader_epoch=4))
    log.delete_before(2)
    assert log.epochs == {4: 2}
    log = replica(data(0, "a=1", "b=1"), replace(data(2, "c=1"), leader_epoch=4))
    log.delete_before(1)
    assert log.epochs == {0: 1, 4: 2}


def test_what_lies_before_the_log_start_goes_with_the_next_segment() -> None:
    log = replica(data(0, "a=1"))
    log.delete_before(1)
    assert shown(log) == ["0-0 a=1"]
    grow(log)
    assert shown(log) == ["1-1 filler=x"]


def test_a_follower_begins_at_the_batch_that_the_log_start_lies_in() -> None:
    leader, behind = replica(data(0, "a=1"), data(1, "b=1", "c=1"), data(3, "d=1")), replica(data(0, "a=1"))
    replication = Replication({1: leader, 2: behind}, 1, rolls=lambda *_: True, away={2})
    replication.delete_records(2)
    replication.come_back(2)
    assert (behind.log_start, [segment.base_offset for segment in behind.segments]) == (2, [1, 3])
    assert behind.epochs == {0: 2}


def test_a_killed_broker_knows_what_is_left_in_its_log() -> None:
    log = replica(OPEN, marker(1, ABORT, 7), data(2, "l=1", idempotent=8), data(3, "l=2", txn=9))
    log.recover()
    assert [segment.aborted for segment in log.segments] == [[], [AbortedTxn(7, 0, 1, 2)], [], []]
    assert (sorted(log.producers), log.producers[9].current_txn_first_offset) == ([7, 8, 9], 3)
    del log.producers[7]
    grow(log)
    run(log)
    log.recover()
    assert shown(log)[:2] == ["1-1 abort", "2-2 l=1"]
    assert [segment.aborted for segment in log.segments] == [[], [], []], "nothing of the transaction is left"
    assert log.producers[9].current_txn_first_offset == 3


def test_a_start_drops_the_snapshots_of_deleted_records() -> None:
    """``ProducerStateManager.truncateAndReload``; found by `bench/cleaner_passes.py`."""
    for start in (Replica.reopen, Replica.recover):
        log = replica(data(0, "k=1", txn=7), marker(1, ABORT, 7), data(2, "l=1"))
        log.delete_before(1)
        assert sorted(log.snapshots) == [1, 2]
        start(log)
        assert sorted(log.snapshots) == [2]


def test_what_comes_in_one_answer_is_noted_after_all_of_it() -> None:
    leader = Replica(1)
    for batch in (OPEN, marker(1, ABORT, 7), data(2, "a=1"), data(3, "l=1", txn=8)):
        leader.append(batch)
    leader.append(marker(4, ABORT, 8))
    replication = Replication({1: leader, 2: Replica(2)}, 1, rolls=lambda *_: False)
    replication.fetch(2)
    later = AbortedTxn(8, 3, 4, 5)
    assert leader.segments[0].aborted == [AbortedTxn(7, 0, 1, 2), later]
    assert replication.replicas[2].segments[0].aborted == [AbortedTxn(7, 0, 1, 3), later]


def test_a_restart_with_nothing_left_forgets_an_open_transaction() -> None:
    log = replica(OPEN)
    log.reopen()
    assert log.producers[7].current_txn_first_offset == 0
    log.delete_before(1)
    log.reopen()
    assert log.producers == {}
    assert log.epochs == {}


@pytest.mark.parametrize(("batches", "answers"), [
    ((), {(0, 5): True}), ((emptied(0, 7),), {(0, 5): True}),
    ((data(0, "k=1", "l=1", txn=7),), {(0, 2): True, (0, 3): False}), ((OPEN,), {(1, 0): True, (1, 1): False}),
    ((marker(0, ABORT, 7),), {(0, 0): True, (0, 1): False}),
])  # fmt: skip
def test_a_producers_next_batch(batches: tuple[ModelBatch, ...], answers: dict[tuple[int, int], bool]) -> None:
    """By epoch and sequence number."""
    log = replica(*batches)
    assert {number: log.accepts(7, *number) for number in answers} == answers


def test_which_batch_stays_for_its_offset_depends_on_the_version() -> None:
    aborted = (data(0, "a=1"), marker(1, ABORT, 7), data(2, "l=1", txn=7), marker(3, ABORT, 7))
    for stays in (True, False):
        log = replica(*aborted)
        log.producers.clear()
        assert clean(log, replace(CLEANING, last_of_pass_stays=stays), 0)
        assert ("2-2" in shown(log)) == stays
    log = replica(*aborted, high_watermark=3)
    log.unreplicated.clear()
    log.producers.clear()
    assert clean(log, replace(CLEANING, last_of_pass_stays=False), 0)
    assert "2-2" in shown(log), "it ends at the high watermark"


def test_an_open_transaction_from_before_the_log_start() -> None:
    log = replica(OPEN, data(1, "a=1", "b=1", "c=1"), data(4, "d=1"))
    log.delete_before(2)
    assert log.last_stable_offset == 2
    log.stable_at_batch = True
    assert log.last_stable_offset == 1
    log.delete_before(5)
    assert log.last_stable_offset == 5


def test_rules_of_versions() -> None:
    of_4_0, of_4_4 = (VersionRules(stays, True, True) for stays in (True, False))
    expected = {"3.9.2": VersionRules(True, False, False), "4.0.2": of_4_0, "4.3.1": of_4_0, "4.4.0": of_4_4}
    expected["5.0.0"] = of_4_4
    assert {version: rules_of(version) for version in expected} == expected
