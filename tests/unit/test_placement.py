"""Placement of replicas, and the table of timers: the conditions of each scale for a window that opens."""

from itertools import combinations
from typing import Any

import pytest

from harness.errors import UsageError
from harness.schedules.placement import Placement, place
from harness.schedules.timers import DAYS, DEFAULT, FREEZE, MOST_STEPS, TIMERS, Timers, find_timers


def shape(**changes: Any) -> Placement:
    return place(**{"brokers": 3, "replication_factor": 3, "partitions": 1, "absent": 1, **changes})


def test_three_brokers_are_the_published_layout_and_leaders_of_more_are_spread() -> None:
    assert shape() == Placement()
    assert shape().replicas(0) == (1, 3, 2)
    assert shape().replicas(0, control=True) == (1, 3)
    subject = shape(brokers=5, partitions=4)
    assert [subject.replicas(p)[0] for p in range(4)] == [1, 3, 4, 5]


@pytest.mark.parametrize("brokers", range(3, 8))
@pytest.mark.parametrize("partitions", [1, 4])
def test_every_shape_keeps_the_rules(brokers: int, partitions: int) -> None:
    for absent, factor in combinations(range(1, brokers + 1), 2):
        subject = shape(brokers=brokers, replication_factor=factor, partitions=partitions, absent=absent)
        assert subject.brokers == tuple(range(1, brokers + 1))
        assert len(subject.absent) == absent
        for partition in range(partitions):
            replicas = subject.replicas(partition)
            assert len(set(replicas)) == len(replicas) == factor
            assert replicas[0] in subject.staying
            assert set(subject.absent) <= set(replicas) <= set(subject.brokers)
            assert set(subject.replicas(partition, control=True)) <= set(subject.staying)


@pytest.mark.parametrize(("numbers", "expected"), [
    ({"brokers": 2}, "--brokers 2: give 3 to 7"),
    ({"brokers": 8}, "--brokers 8: give 3 to 7"),
    ({"partitions": 0}, "--partitions 0"),
    ({"replication_factor": 1}, "--replication-factor 1: give 2 to 3"),
    ({"replication_factor": 4}, "--replication-factor 4: give 2 to 3"),
    ({"absent": 0}, "--absent 0: give 1 to 2"),
    ({"absent": 3}, "--absent 3: give 1 to 2"),
    ({"replication_factor": 2, "absent": 2}, "--absent 2: give 1 to 1"),
])  # fmt: skip
def test_numbers_that_do_not_fit_are_refused(numbers: dict[str, int], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        shape(**numbers)


WHAT_IS_CLEANED = {"cleanup.policy", "delete.retention.ms", "message.timestamp.type"}
"""Topic settings that say what a pass removes, or which clock it uses; every other one says when a pass begins."""


@pytest.mark.parametrize("timers", TIMERS.values(), ids=TIMERS)
def test_a_window_opens_in_which_every_removal_is_observed_and_a_freeze_outlasts_the_run(timers: Timers) -> None:
    assert find_timers(timers.name) is timers
    assert timers.summary
    assert timers.topic["cleanup.policy"] == "compact"
    retention_ms, segment_ms = int(timers.topic["delete.retention.ms"]), int(timers.topic["segment.ms"])
    assert timers.filler_period_s * 1000 < segment_ms, "segments roll"
    assert timers.observe_period_s * 1000 < retention_ms, "a record is seen before it is removed"
    window_of_brokers_ms = (timers.window_s + MOST_STEPS * timers.clock_step_s) * 1000
    assert window_of_brokers_ms > 2 * (retention_ms + segment_ms)
    assert int(timers.broker["producer.id.expiration.ms"]) < window_of_brokers_ms
    assert set(timers.topic) - WHAT_IS_CLEANED <= set(FREEZE), "the freeze covers whatever begins a pass"
    run_ms = (timers.window_s + timers.settle_s) * 1000
    assert int(FREEZE["max.compaction.lag.ms"]) > int(FREEZE["segment.ms"]) > run_ms
    assert float(timers.topic["min.cleanable.dirty.ratio"]) < 1.0 == float(FREEZE["min.cleanable.dirty.ratio"])


def test_minutes_can_be_resumed_and_steps_of_clocks_pass_days_but_not_the_seven_days_of_coordinators() -> None:
    assert [timers.name for timers in TIMERS.values() if timers.is_resumable] == ["10m", "default"]
    for timers in (DAYS, DEFAULT):
        assert timers.topic["delete.retention.ms"] == timers.broker["producer.id.expiration.ms"] == "86400000"
    assert int(DAYS.topic["delete.retention.ms"]) < DAYS.clock_step_s * 1000
    assert MOST_STEPS * DAYS.clock_step_s < 7 * 24 * 3600
