"""One pass of Cloud Topics compaction: the index, the rewritten objects, and the ranges recorded as clean."""

from dataclasses import replace

import pytest
from cloud_logs import NAME, begun, cloud_of, compact, log_of, passes_to_clean, shown, spoken, without

from harness.broker_files.segments.records import COMMIT, Record, marker_record
from harness.models.cloud_topics.cloud import need
from harness.models.cloud_topics.compaction import (
    DEFAULT_MAP_BYTES,
    ENTRY_BYTES,
    KeyOffsetMap,
    Settings,
    begin_pass,
    dirty,
    removable,
)
from harness.models.cloud_topics.metastore import (
    L1Object,
    Log,
    TombstoneRange,
    Update,
    appended,
    gaps,
    holds,
    overlap,
    refusal,
    union,
)
from harness.models.log.batch import ModelBatch


def test_ranges() -> None:
    assert union([(5, 7), (0, 2), (2, 3), (4, 4), (6, 9)]) == ((0, 3), (5, 9))
    assert gaps(((0, 3), (5, 9)), 12) == ((3, 5), (9, 12))
    assert gaps(((0, 3), (5, 9)), 4) == ((3, 4),)
    assert gaps((), 2) == ((0, 2),)
    assert gaps((), 0) == gaps(((0, 2),), 2) == ()
    assert [offset for offset in range(12) if holds(((0, 3), (5, 9)), offset)] == [0, 1, 2, 5, 6, 7, 8]
    assert overlap(((0, 3), (5, 9)), 2, 5)
    assert not overlap(((0, 3), (5, 9)), 3, 5)


def test_the_default_map_has_room_for_a_little_more_than_3_3_million_keys() -> None:
    assert (ENTRY_BYTES, DEFAULT_MAP_BYTES) == (40, 134_217_728)
    assert KeyOffsetMap().most_entries == 3_355_443


def test_a_full_map_takes_no_further_key_but_later_offsets_of_those_it_has() -> None:
    latest = KeyOffsetMap(2 * ENTRY_BYTES + 39)
    assert [latest.note(b"a", 4), latest.note(b"b", 3), latest.note(b"c", 2)] == [True, True, False]
    assert [latest.note(b"a", 1), latest.note(b"b", 9)] == [True, True]
    assert ([latest.latest(key) for key in (b"a", b"b", b"c")], len(latest)) == ([4, 9, -1], 2)


def test_a_map_without_room_for_an_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="39 bytes"):
        KeyOffsetMap(39)


def test_one_pass_with_room_for_all_keys() -> None:
    cloud = cloud_of("A=1 B=1 A=2", "C=1 B=", "A=3")
    compact(cloud, now_ms=7)
    log = log_of(cloud)
    assert shown(cloud) == ["0-5: C=1@3 B=@4", "5-6: A=3@5"]
    assert (log.cleaned, log.tombstones, log.compaction_epoch) == (((0, 6),), (TombstoneRange(0, 6, 7),), 1)
    assert dirty(log) == ()


def test_a_full_map_leaves_dirty_what_it_has_not_indexed() -> None:
    """From the end: A is indexed, B does not fit. Offset 2 and all below stay dirty, A=1 below goes nevertheless."""
    cloud = cloud_of("A=1 B=1 B=2 A=2 A=3", entries=1)
    compact(cloud)
    assert (shown(cloud), log_of(cloud).cleaned) == (["0-5: B=1@1 B=2@2 A=3@4"], ((3, 5),))
    compact(cloud)
    assert (shown(cloud), log_of(cloud).cleaned) == (["0-5: B=2@2 A=3@4"], ((0, 5),))


def test_a_full_map_goes_on_while_the_keys_are_its_own() -> None:
    cloud = cloud_of("B=1 A=1 A=2", entries=1)
    compact(cloud)
    assert (shown(cloud), log_of(cloud).cleaned) == (["0-3: B=1@0 A=2@2"], ((1, 3),))


def test_cleaned_ranges_are_not_indexed_again_but_rewritten() -> None:
    cloud = cloud_of("A=1 B=1 C=1", entries=3)
    compact(cloud)
    cloud.produce(NAME, spoken("B=2"), now_ms=0)
    stored = cloud.partitions[NAME]
    stored.settings = replace(stored.settings, map_bytes=ENTRY_BYTES)
    compact(cloud)
    assert (shown(cloud), log_of(cloud).cleaned) == (["0-3: A=1@0 C=1@2", "3-4: B=2@3"], ((0, 4),))


def test_dirty_ranges_on_both_sides_of_a_clean_one() -> None:
    """The newest range comes first; the clean range between is skipped, and loses its superseded records."""
    cloud = cloud_of("D=1 C=1", "B=1", entries=1)
    compact(cloud)
    assert log_of(cloud).cleaned == ((2, 3),)
    cloud.produce(NAME, spoken("B=2"), now_ms=0)
    assert dirty(log_of(cloud)) == ((0, 2), (3, 4))
    compact(cloud)
    assert log_of(cloud).cleaned == ((2, 4),)
    assert shown(cloud) == ["0-2: D=1@0 C=1@1", "2-4: B=2@3"]
    assert passes_to_clean(log_of(cloud), cloud.partitions[NAME].settings) == 2


def test_a_dirty_range_without_a_record_takes_one_pass() -> None:
    """L0 may hand over offsets of which nothing is left."""
    cloud = cloud_of()
    cloud.append(NAME, [ModelBatch(0, 3, (), 0)])
    settings = cloud.partitions[NAME].settings
    assert (shown(cloud), log_of(cloud).objects[0].batches) == (["0-4:"], ())
    assert need(NAME, log_of(cloud), settings, now_ms=9) is None
    assert passes_to_clean(log_of(cloud), settings) == 1
    compact(cloud)
    assert (shown(cloud), dirty(log_of(cloud))) == (["0-4:"], ())
    assert passes_to_clean(log_of(cloud), settings) == 0


def test_without_the_whole_prefix_what_is_rewritten_leaves_out_what_is_clean() -> None:
    """Rewritten objects on both sides of one that is not do not become one over it."""
    cloud = cloud_of("D=1", "B=1", entries=1, off=without("whole-prefix"))
    compact(cloud)
    between = log_of(cloud).objects[1]
    cloud.produce(NAME, spoken("C=1"), now_ms=0)
    cloud.partitions[NAME].settings = Settings(object_records=9, without=without("whole-prefix"))
    compact(cloud)
    assert shown(cloud) == ["0-1: D=1@0", "1-2: B=1@1", "2-3: C=1@2"]
    assert log_of(cloud).objects[1] is between


def test_a_tombstone_waits_from_the_commit_that_cleaned_its_range() -> None:
    cloud = cloud_of("A=1", "A=", "B=1")
    job = begun(cloud)
    assert cloud.commit(job, now_ms=70) is None
    assert removable(log_of(cloud), cloud.partitions[NAME].settings, now_ms=169) == ()
    assert cloud.begin(1, NAME, now_ms=169) is None
    assert removable(log_of(cloud), cloud.partitions[NAME].settings, now_ms=170) == ((0, 3),)
    compact(cloud, now_ms=170)
    assert shown(cloud) == ["0-3: B=1@2"]
    assert log_of(cloud).tombstones == ()


def test_ranges_keep_the_times_at_which_they_were_cleaned() -> None:
    cloud = cloud_of("A=1 A=", "B=1 B=", entries=1)
    compact(cloud, now_ms=10)
    compact(cloud, now_ms=60)
    assert log_of(cloud).tombstones == (TombstoneRange(0, 2, 60), TombstoneRange(2, 4, 10))
    compact(cloud, now_ms=110)
    assert shown(cloud) == ["0-2: A=@1", "2-4:"]
    compact(cloud, now_ms=160)
    assert shown(cloud) == ["0-2:", "2-4:"]


def test_a_tombstone_in_a_dirty_range_stays_however_old() -> None:
    """The map has no room for it: something of its key may be below."""
    cloud = cloud_of("A=1 A= B=1", entries=1)
    compact(cloud, now_ms=10_000)
    assert shown(cloud) == ["0-3: A=1@0 A=@1 B=1@2"]
    assert log_of(cloud).tombstones == ()


def test_a_superseded_tombstone_goes_at_once() -> None:
    cloud = cloud_of("A=1 A= A=2")
    compact(cloud)
    assert (shown(cloud), log_of(cloud).tombstones) == (["0-3: A=2@2"], ())


def test_what_is_appended_during_a_pass_stays_and_stays_dirty() -> None:
    cloud = cloud_of("A=1")
    job = begun(cloud)
    cloud.produce(NAME, spoken("A="), now_ms=0)
    assert cloud.commit(job, now_ms=0) is None
    assert (shown(cloud), dirty(log_of(cloud))) == (["0-1: A=1@0", "1-2: A=@1"], ((1, 2),))


def test_small_objects_become_one_and_batches_stay_what_they_are() -> None:
    cloud = cloud_of("A=1 B=1", "C=1", "B=2", object_records=3)
    unchanged = log_of(cloud).objects[1].batches[0]
    compact(cloud)
    first, second, third = log_of(cloud).objects[0].batches
    assert shown(cloud) == ["0-4: A=1@0 C=1@2 B=2@3"]
    assert second is unchanged
    assert (first.base_offset, first.last_offset) == (0, 1)
    assert third.records[0].offset == 3


def test_the_last_timestamp_of_a_batch_is_that_of_what_is_left() -> None:
    records = (Record(0, 5, b"A", b"1"), Record(1, 9, b"B", b"1"))
    for append_time, left_ms in ((False, 5), (True, 9)):
        log = appended(Log(), [ModelBatch(0, 1, records, 9, append_time=append_time)])
        log = appended(log, [ModelBatch(2, 2, (Record(2, 10, b"B", b"2"),), 10)])
        made = begin_pass(log, Settings(), now_ms=20)
        assert made is not None
        assert made.objects[0].batches[0].max_timestamp_ms == left_ms


def test_l0_leaves_out_control_batches_and_their_offsets() -> None:
    marker = ModelBatch(0, 0, (marker_record(0, 0, COMMIT),), 0, transactional=True, control=True)
    with pytest.raises(ValueError, match="no control batches"):
        appended(Log(), [marker])
    with pytest.raises(ValueError, match="no open transactions"):
        appended(Log(), [replace(marker, control=False)])
    log = appended(Log(), [ModelBatch(3, 3, (Record(3, 0, b"A", b"1"),), 0)])
    assert [(piece.base_offset, piece.end_offset) for piece in log.objects] == [(0, 4)]


def test_what_cannot_be_appended() -> None:
    log = appended(Log(), [ModelBatch(0, 0, (Record(0, 0, b"A", b"1"),), 0)])
    with pytest.raises(ValueError, match="the log ends at 1"):
        appended(log, [ModelBatch(0, 0, (Record(0, 0, b"A", b"1"),), 0)])
    with pytest.raises(ValueError, match="without a key"):
        appended(log, [ModelBatch(1, 1, (Record(1, 0, None, b"1"),), 0)])
    assert appended(log, []) is log


def test_updates_that_the_metastore_refuses() -> None:
    cloud = cloud_of("A=1 B=1", "C=1")
    compact(cloud)
    log = log_of(cloud)
    assert refusal(log, Update(1, (), None)) is None
    assert refusal(log, Update(0, (), None)) == "made at compaction epoch 0, it is 1"
    assert refusal(log, Update(0, (), None), without("compaction-epoch")) is None
    for first, end in ((1, 3), (0, 1)):
        torn = Update(1, (L1Object(first, end, ()),), None)
        assert refusal(log, torn) == f"offsets {first} to {end} split an object"
        assert refusal(log, torn, without("aligned-extents")) is None
