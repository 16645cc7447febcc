"""The aftermath: when it is rejected, and the settings that it restores in a cluster that a run has frozen."""

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.admin import RecordingAdmin
from fakes.runtime import FakeRuntime

from harness.errors import UsageError
from harness.play.aftermath import EXPIRIES, REMEDIES, Aftermath, raise_if_pointless
from harness.play.options import RunOptions
from harness.play.run_plan import RunPlan, plan_run
from harness.systems.kafka import KafkaControl


def asked(anomaly: str = "stuck-lso", **options: Any) -> RunPlan:
    return plan_run(RunOptions("kafka-4.4", anomaly, **{"partitions": 3, **options}))


@pytest.mark.parametrize("anomaly", ["stuck-lso", "all"])
@pytest.mark.parametrize("nemesis", ["kill", "pause", "partition", "join", "catch-up"])
def test_a_broker_that_may_be_stuck_on_three_partitions_is_followed(anomaly: str, nemesis: str) -> None:
    raise_if_pointless(asked(anomaly, nemesis=nemesis))


def test_more_partitions_than_remedies_do_no_harm() -> None:
    raise_if_pointless(asked(partitions=4))


@pytest.mark.parametrize(
    "test",
    [asked("tombstone-divergence"), asked("aborted-to-committed"), asked(nemesis="none")],
    ids=["a tombstone", "no transaction that stays open", "nobody is away"],
)
def test_where_nothing_can_be_stuck_there_is_nothing_to_follow(test: RunPlan) -> None:
    with pytest.raises(UsageError, match="give --anomaly stuck-lso or all, and a nemesis that takes a broker away"):
        raise_if_pointless(test)


@pytest.mark.parametrize("partitions", [1, 2])
def test_each_remedy_needs_a_partition(partitions: int) -> None:
    assert len(REMEDIES) == 3
    with pytest.raises(UsageError, match=r"3 remedies, each on a separate partition: give --partitions 3 or more"):
        raise_if_pointless(asked(partitions=partitions))


def aftermath(test: RunPlan, cluster: Any) -> Aftermath:
    nothing: Any = None
    return Aftermath(test, cluster, nothing, nothing, io.StringIO(), lambda _text: None)


def test_only_partitions_that_can_be_stuck_are_followed() -> None:
    test = asked("all")
    cluster = SimpleNamespace(exposed=[tp for tp in test.replicas if tp[0] != "control"])
    assert aftermath(test, cluster).partitions == [("stuck-lso", 0), ("stuck-lso", 1), ("stuck-lso", 2)]


@pytest.mark.parametrize(("settings", "expiration_ms"), [({"producer.id.expiration.ms": "700"}, 700), ({}, 86_400_000)])
def test_it_waits_for_the_expiration_that_brokers_have(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], expiration_ms: int
) -> None:
    waited_s: list[float] = []
    thawed: list[object] = []
    monkeypatch.setattr(Aftermath, "_traffic", lambda _, duration_s: waited_s.append(duration_s))
    for verb in ("look", "_restart"):
        monkeypatch.setattr(Aftermath, verb, lambda *_: ["stuck"])
    test = replace(asked(), broker_settings=settings)
    aftermath(test, SimpleNamespace(exposed=(), thaw=thawed.append)).run()
    assert thawed == [test.topic_settings]
    assert waited_s == [expiration_ms * EXPIRIES / 1000]


@pytest.mark.parametrize(
    ("timers", "before"),
    [
        ("fast", {"min.cleanable.dirty.ratio": "0.0001", "max.compaction.lag.ms": "200", "segment.ms": "100"}),
        ("10m", {"min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": None, "segment.ms": "10000"}),
    ],
)
def test_compaction_goes_on_as_before_the_freeze(timers: str, before: dict[str, str | None]) -> None:
    actions: list[str] = []
    runtime = FakeRuntime()
    admin = RecordingAdmin(runtime, (1,), {}, actions)
    KafkaControl(runtime, admin).thaw(["stuck-lso", "control"], asked(timers=timers).topic_settings)
    assert actions == [f"topics stuck-lso, control: {before}"]
