"""The table of timers: the conditions of each scale for a window that opens and is observed."""

import pytest

from harness.errors import UsageError
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.schedules.timers import DAYS, DEFAULT, FAST, FREEZE, MOST_STEPS, TIMERS, Timers, find_timers

WHAT_IS_CLEANED = {"cleanup.policy", "delete.retention.ms", "message.timestamp.type"}
"""Topic settings that say what a pass removes, or which clock it uses; every other one says when a pass begins."""


@pytest.mark.parametrize("timers", TIMERS.values(), ids=TIMERS)
def test_a_window_opens_in_which_every_removal_is_observed(timers: Timers) -> None:
    assert find_timers(timers.name) is timers
    assert timers.summary
    assert timers.topic["cleanup.policy"] == "compact"
    retention_ms, segment_ms = int(timers.topic["delete.retention.ms"]), int(timers.topic["segment.ms"])
    assert timers.filler_period_s * 1000 < segment_ms, "segments roll"
    assert timers.observe_period_s * 1000 < retention_ms, "a record is seen before it is removed"
    window_of_brokers_ms = (timers.window_s + MOST_STEPS * timers.clock_step_s) * 1000
    assert window_of_brokers_ms > 2 * (retention_ms + segment_ms)
    assert int(timers.broker["producer.id.expiration.ms"]) < window_of_brokers_ms


@pytest.mark.parametrize("timers", TIMERS.values(), ids=TIMERS)
def test_the_freeze_covers_whatever_begins_a_pass_and_outlasts_the_run(timers: Timers) -> None:
    assert set(timers.topic) - WHAT_IS_CLEANED <= set(FREEZE)
    run_ms = (timers.window_s + timers.settle_s) * 1000
    assert int(FREEZE["max.compaction.lag.ms"]) > int(FREEZE["segment.ms"]) > run_ms
    assert float(timers.topic["min.cleanable.dirty.ratio"]) < 1.0 == float(FREEZE["min.cleanable.dirty.ratio"])


def test_a_run_of_minutes_or_days_can_be_resumed() -> None:
    assert [timers.name for timers in TIMERS.values() if timers.is_resumable] == ["10m", "default"]


def test_days_are_those_of_kafka_and_steps_of_clocks_pass_them_but_not_the_seven_days_of_coordinators() -> None:
    for timers in (DAYS, DEFAULT):
        assert timers.topic["delete.retention.ms"] == timers.broker["producer.id.expiration.ms"] == "86400000"
    assert int(DAYS.topic["delete.retention.ms"]) < DAYS.clock_step_s * 1000
    assert MOST_STEPS * DAYS.clock_step_s < 7 * 24 * 3600


@pytest.mark.parametrize(("name", "near"), [("fats", FAST.name), ("10", "10m"), ("defaults", DEFAULT.name)])
def test_an_unknown_name_is_reported_with_the_nearest(name: str, near: str) -> None:
    message = rf"unknown set of timers '{name}'; did you mean {near}.*\? \(known: fast, 10m, days, default\)"
    with pytest.raises(UsageError, match=message) as refused:
        find_timers(name)
    assert refused.value.exit_code == 254


def test_runs_that_do_not_wait_for_replicas_put_no_clocks_forward() -> None:
    with pytest.raises(UsageError, match="--timers days: runs of --anomaly served do not put clocks forward"):
        plan_run(RunOptions("kafka-4.4", "served", timers=DAYS.name))
