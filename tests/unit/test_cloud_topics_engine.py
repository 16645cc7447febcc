"""Brokers that share one log of Cloud Topics: whose turn it is, whose update is accepted, what a crash leaves."""

from dataclasses import replace

import pytest
from cloud_logs import NAME, RecordedCloud, begun, cloud_of, compact, log_of, shown, spoken, without

from harness.broker_files.segments.batches import iter_batches, iter_records
from harness.models.cloud_topics.cloud import CompactionNeed, need, queue
from harness.models.cloud_topics.compaction import Settings
from harness.models.log.batch import encoded


def test_of_two_brokers_the_first_to_commit_is_accepted() -> None:
    """The other's uploads are in the store and in no log; its next pass starts from what the first made."""
    cloud = cloud_of("A=1", "A=2")
    first, second = begun(cloud, 1), begun(cloud, 2)
    assert cloud.commit(second, now_ms=1) is None
    before = shown(cloud)
    assert cloud.commit(first, now_ms=2) == "made at compaction epoch 0, it is 1"
    assert shown(cloud) == before == ["0-2: A=2@1"]
    assert set(first.update.objects) <= set(cloud.orphans())
    assert not set(second.update.objects) & set(cloud.orphans())
    assert cloud.begin(1, NAME, now_ms=2) is None


def test_a_pass_that_is_over_cannot_be_committed() -> None:
    cloud = cloud_of("A=1")
    job = begun(cloud)
    assert cloud.commit(job, now_ms=0) is None
    with pytest.raises(ValueError, match="the pass of broker 1 over t-0 is over"):
        cloud.commit(job, now_ms=0)


def test_orphans_are_what_was_replaced_or_given_up_not_what_is_about_to_be_committed() -> None:
    cloud = cloud_of("A=1", "A=2")
    written = list(log_of(cloud).objects)
    job = begun(cloud)
    assert cloud.orphans() == []
    assert cloud.crash(1) == [job]
    assert cloud.orphans() == list(job.update.objects)
    assert shown(cloud) == ["0-1: A=1@0", "1-2: A=2@1"]
    compact(cloud, broker=2)
    assert cloud.orphans() == [*written, *job.update.objects]


def test_a_crash_loses_the_passes_of_one_broker_only() -> None:
    cloud = cloud_of("A=1", "A=2")
    lost, other = begun(cloud, 1), begun(cloud, 2)
    assert cloud.crash(1) == [lost]
    with pytest.raises(ValueError, match="is over"):
        cloud.commit(lost, now_ms=0)
    assert cloud.commit(other, now_ms=0) is None
    assert cloud.crash(3) == []


def test_a_crash_between_replaced_objects_where_the_commit_is_not_atomic() -> None:
    cloud = cloud_of("A=1 B=1", "A=", off=without("atomic-commit"))
    job = begun(cloud)
    assert cloud.commit(job, now_ms=0) is None
    assert len(job.updates) == 2
    cloud.crash(1)
    assert cloud.wrong(NAME) == {"false-clean"}
    job = begun(cloud, 2, now_ms=100)
    while job.updates:
        assert cloud.commit(job, now_ms=100) is None
    assert (shown(cloud), cloud.wrong(NAME)) == (["0-2: A=1@0 B=1@1", "2-3:"], {"undeleted"})


def test_batches_are_real_ones() -> None:
    cloud = cloud_of("A=1 B=1", "A=2", "C=1")
    compact(cloud)
    batches = [batch for piece in log_of(cloud).objects for batch in piece.batches]
    assert [batch.base_offset for batch in batches] == [0, 2, 3]
    data = b"".join(map(encoded, batches))
    read = [record for batch in iter_batches(data, source="L1") for record in iter_records(batch, source="L1")]
    assert read == list(log_of(cloud).records())


def test_a_partition_is_created_once() -> None:
    cloud = cloud_of()
    with pytest.raises(ValueError, match="t-0 already exists"):
        cloud.create(NAME, Settings())


def test_a_log_is_eligible_by_its_dirty_ratio() -> None:
    """Three batches of one size; the ratio must be exceeded."""
    cloud = cloud_of("A=1", "B=1")
    log, half = log_of(cloud), Settings(min_cleanable_dirty_ratio=0.5)
    assert need(NAME, log, half, now_ms=30) == CompactionNeed(NAME, 1.0, 30, is_overdue=False)
    compact(cloud)
    assert need(NAME, log_of(cloud), half, now_ms=30) is None
    cloud.produce(NAME, spoken("C=1 D=1"), now_ms=0)
    cloud.produce(NAME, spoken("E=1"), now_ms=20)
    reason = need(NAME, log_of(cloud), half, now_ms=30)
    assert reason is not None
    assert 0.5 < reason.dirty_ratio < 0.6
    exactly = replace(half, min_cleanable_dirty_ratio=reason.dirty_ratio)
    assert need(NAME, log_of(cloud), exactly, now_ms=30) is None


def test_a_log_is_eligible_by_the_age_of_what_is_dirty() -> None:
    settings = Settings(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=40)
    cloud = cloud_of("A=1")
    assert need(NAME, log_of(cloud), settings, now_ms=39) is None
    assert need(NAME, log_of(cloud), settings, now_ms=40) == CompactionNeed(NAME, 1.0, 40, is_overdue=True)
    compact(cloud)
    assert need(NAME, log_of(cloud), settings, now_ms=1000) is None


def test_a_log_is_eligible_for_tombstones_that_may_go() -> None:
    cloud = cloud_of("A=1", "A=")
    compact(cloud, now_ms=5)
    settings = cloud.partitions[NAME].settings
    assert need(NAME, log_of(cloud), settings, now_ms=104) is None
    assert need(NAME, log_of(cloud), settings, now_ms=105) == CompactionNeed(NAME, 0.0, 0, is_overdue=False)
    assert need("empty", log_of(cloud_of()), settings, now_ms=105) is None


def test_turns() -> None:
    late, later = CompactionNeed("late", 0.1, 50, is_overdue=True), CompactionNeed("later", 0.1, 60, is_overdue=True)
    dirty, clean = CompactionNeed("dirty", 0.9, 1, is_overdue=False), CompactionNeed("clean", 0.0, 0, is_overdue=False)
    assert queue([clean, late, dirty, later]) == [later, late, dirty, clean]


def test_workers_pull_and_nodes_do_not_know_of_each_other() -> None:
    cloud = RecordedCloud()
    for name in ("busy", "quiet"):
        cloud.create(name, Settings())
        cloud.produce(name, spoken("A=1"), now_ms=0)
    cloud.produce("busy", spoken("A=2"), now_ms=0)
    assert [cloud.poll(1, now_ms=9), cloud.poll(1, now_ms=9), cloud.poll(1, now_ms=9)] == ["busy", "quiet", None]
    assert cloud.poll(2, now_ms=9) == "busy"
    job = cloud.begin(1, "busy", now_ms=9)
    assert job is not None
    assert cloud.commit(job, now_ms=9) is None
    assert cloud.poll(1, now_ms=9) is None
    assert cloud.begin(2, "busy", now_ms=9) is None
    cloud.crash(1)
    assert cloud.poll(1, now_ms=9) == "quiet"
