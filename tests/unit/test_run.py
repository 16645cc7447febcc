"""A run from its options to its end: the schedule, the window, the records, and ends that leave nothing to judge."""

import os
import tempfile
from contextlib import closing, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from fakes.clock import TickingClock
from fakes.cluster import FakeCluster, FakePayload
from fakes.progress import FakeManifest

from harness import errors
from harness.errors import HarnessError, InterruptError, TimeLimitError, UsageError, interruptible
from harness.host import leftovers
from harness.host.clock import Stages
from harness.judge import sessions
from harness.play import run, window
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run, run_schedule, runtime_of
from harness.play.run_player import RunPlayer
from harness.run_folder.history import History, read_lines
from harness.run_folder.store import RunFolder, create_run_folder
from harness.schedules.catalog import CONTROL, SERVED, all_scenarios
from harness.schedules.replay import scenarios_of
from harness.schedules.scenario import Critical
from harness.schedules.schedule import read_schedule, write_schedule
from harness.schedules.timers import DAYS, FAST, STEP_S
from harness.targets.settings import parse_settings
from nemesis import SCRIPTS


def options(anomaly: str = "stuck-lso", **more: Any) -> RunOptions:
    return RunOptions("kafka-4.4", anomaly, **more)


def test_every_run_has_its_control_and_several_anomalies_are_looked_for_in_one_outage() -> None:
    assert [s.name for s in plan_run(options()).scenarios] == ["stuck-lso", "control"]
    assert plan_run(options("all")).scenarios == (*(s for s in all_scenarios() if s.anomaly != SERVED), CONTROL)
    names = [scenario.name for scenario in plan_run(options("stuck-lso,committed-to-aborted")).scenarios]
    assert names == ["committed-to-aborted-value", "committed-to-aborted-delete", "stuck-lso", "control"]


@pytest.mark.parametrize("names", ["stuck-lso,", "stuck", "stuck-lso,none", ""])
def test_an_anomaly_that_nobody_knows_is_named(names: str) -> None:
    with pytest.raises(UsageError, match=f"unknown anomaly '{names.rpartition(',')[2]}'"):
        plan_run(options(names))


def test_a_control_has_no_replica_on_an_absent_broker() -> None:
    made = plan_run(options(brokers=5, replication_factor=4, partitions=2, absent=2))
    assert made.replicas == {
        ("stuck-lso", 0): (1, 4, 2, 3), ("stuck-lso", 1): (4, 5, 2, 3),
        ("control", 0): (1, 4, 5), ("control", 1): (4, 5, 1),
    }  # fmt: skip


def test_the_nemesis_adds_what_it_needs_to_the_timers() -> None:
    made = plan_run(options(nemesis="join"))
    assert made.topic_settings == FAST.topic
    assert made.broker_settings == {**FAST.broker, "replica.fetch.max.bytes": "32768"}


@pytest.mark.parametrize("nemesis", SCRIPTS)
def test_the_user_wins(nemesis: str) -> None:
    of_nemesis = dict.fromkeys(SCRIPTS[nemesis].broker_settings, "1")
    chosen = {"replica.lag.time.max.ms": "2000", **of_nemesis}
    shape: dict[str, Any] = {"brokers": 5, "replication_factor": 5, "absent": 2}  # every nemesis fits there
    made = plan_run(options(nemesis=nemesis, topic_settings={"segment.ms": "9"}, broker_settings=chosen, **shape))
    assert made.topic_settings == {**FAST.topic, "segment.ms": "9"}
    assert made.broker_settings == {**FAST.broker, **chosen}


def test_brokers_with_the_gate_are_local_ones() -> None:
    assert runtime_of(RunOptions("kafka-4.4", "all", gate=True)) == "local"
    assert runtime_of(RunOptions("kafka-4.4", "all")) == "auto"


def test_a_seed_is_taken_or_made_up() -> None:
    assert plan_run(options(seed=0)).seed == 0
    assert plan_run(options()).seed != plan_run(options()).seed


def test_settings_are_distinguished_by_their_scope_and_have_one_value() -> None:
    pairs = ("topic.segment.ms=5", "broker.log.cleaner.backoff.ms = 7", "topic.x=a=b")
    assert parse_settings(pairs) == ({"segment.ms": "5", "x": "a=b"}, {"log.cleaner.backoff.ms": "7"})
    assert parse_settings(("topic.segment.ms=5", "topic.segment.ms= 5")) == ({"segment.ms": "5"}, {})
    with pytest.raises(UsageError, match=r"--set 'topic\.segment\.ms=6': topic\.segment\.ms is '5' already"):
        parse_settings(("topic.segment.ms=5", "broker.segment.ms=6", "topic.segment.ms=6"))


@pytest.mark.parametrize("pair", ["topic.segment.ms", "segment.ms=5", "client.x=5", "topic.=5", "=5", ""])
def test_settings_without_a_scope_or_a_value_are_refused(pair: str) -> None:
    with pytest.raises(UsageError, match=r"give topic\.NAME=VALUE or broker\.NAME=VALUE"):
        parse_settings((pair,))


IN_SYNC = "wait until every replica is in sync"
REMOVED = "wait until missed records are removed on every replica that stays up"


def described(nemesis: str, absent: int = 1, anomaly: str = "stuck-lso") -> list[str]:
    plan = plan_run(options(anomaly, nemesis=nemesis, absent=absent))
    return list(map(str, run_schedule(plan).operations))


def test_a_run_is_one_fixed_schedule() -> None:
    assert described("kill") == [
        "stuck-lso.tx puts K", "control.plain puts D", "control.tx puts K", IN_SYNC, "kill begins on broker 2",
        "stuck-lso.tx commits", "stuck-lso.plain puts K", "control.plain deletes D", "control.tx commits",
        "control.plain puts K", REMOVED, IN_SYNC, "snapshot before-return", "kill ends on broker 2", IN_SYNC,
        "snapshot after-rejoin",
    ]  # fmt: skip


@pytest.mark.parametrize(("chosen", "operations"), [
    ({"nemesis": "kill", "anomaly": "aborted-to-committed"},
     [REMOVED, "aborted-to-committed.tx puts good", "aborted-to-committed.tx commits"]),
    ({"nemesis": "pause", "absent": 2}, ["pause begins on broker 2", "pause begins on broker 3"]),
    ({"nemesis": "relay"}, ["relay: broker 2 is exposed to the removal", "snapshot before-return"]),
], ids=["late transactions", "brokers that leave together", "two acts"])  # fmt: skip
def test_operations_in_a_row(chosen: dict[str, Any], operations: list[str]) -> None:
    assert "\n".join(operations) in "\n".join(described(**chosen))


@pytest.mark.parametrize(("anomaly", "absent"), [("stuck-lso", 2), ("all", 1), ("groups", 1)])
def test_the_schedule_of_a_run_can_be_replayed(tmp_path: Path, anomaly: str, absent: int) -> None:
    path = tmp_path / "schedule.json"
    plan = plan_run(options(anomaly, absent=absent))
    write_schedule(path, run_schedule(plan))
    replayed = scenarios_of(read_schedule(path))
    assert plan_run(options(anomaly, schedule=read_schedule(path))).placement.absent == plan.placement.absent
    for scenario, played in zip(replayed, plan.scenarios[:-1], strict=True):
        assert (scenario.name, scenario.anomaly, scenario.kind) == (played.name, played.anomaly, played.kind)
        assert scenario.critical == played.critical
        for phase in ("before", "outage", "late"):
            texts = [str(operation).partition(" ")[2] for operation in getattr(scenario, phase)]
            expected = [str(operation).partition(" ")[2] for operation in getattr(played, phase)]
            assert [text for text in texts if text != "begins"] == expected


FAILURE = HarnessError("broker 3 ended by itself")


@pytest.mark.parametrize(("error", "is_observing", "end", "is_raised"), [
    (None, True, ("complete", None), False),
    (TimeLimitError("the limit"), True, ("time-limit", "the limit"), False),
    (TimeLimitError("the limit"), False, ("time-limit", "the limit"), False),
    (FAILURE, True, ("failed", str(FAILURE)), False),
    (ValueError("no"), True, ("failed", "ValueError: no"), False),
    (FAILURE, False, ("failed", str(FAILURE)), True),
    (KeyboardInterrupt(), True, ("interrupted", "interrupted"), True),
    (KeyboardInterrupt(), False, ("interrupted", "interrupted"), True),
])  # fmt: skip
def test_the_end_of_a_run_is_written_down(
    error: BaseException | None, end: tuple[str, str | None], *, is_observing: bool, is_raised: bool
) -> None:
    manifest = FakeManifest()
    why = {"refusal": "a refused operation"}
    player = SimpleNamespace(run=Mock(side_effect=error), is_observing=is_observing, failure=why)
    with pytest.raises(type(error)) if error is not None and is_raised else nullcontext():
        run._carry_out(cast("RunPlayer", player), manifest, Stages(TickingClock().now_s))
    assert manifest.ends == [end]
    assert manifest.content == (why if end[0] == "failed" else {})


@pytest.mark.parametrize("fails", [True, False])
def test_stale_requests_are_unknown_unless_all_were_sent(monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
    def sent(*_: Any, **__: Any) -> Any:
        yield "a batch"
        if fails:
            raise HarnessError("no coordinator")

    monkeypatch.setattr(run, "accepted_stale_requests", sent)
    monkeypatch.setattr(run, "delete_records_of_requests", lambda _: None)
    manifest: Any = Mock(content={})
    run._send_stale_requests(plan_run(options(nemesis="none")), Mock(), manifest)
    assert manifest.content == {"accepted_requests": ["a batch"], "stale_requests_sent": not fails}


@pytest.mark.parametrize("status", ["interrupted", "complete", None])
def test_an_interrupt_says_what_is_kept_and_where(tmp_path: Path, status: str | None) -> None:
    folder = RunFolder(tmp_path)
    if status is not None:
        folder.write_json(folder.manifest_path, {"status": status})
    kept = f"the collected evidence is kept in {tmp_path}/, without a verdict"
    judged = f"the run is kept in {tmp_path}/, and `harness check {tmp_path}` judges it"
    with pytest.raises(InterruptError) as raised, interruptible(lambda: run._interruption_message(folder)):
        raise KeyboardInterrupt
    assert str(raised.value) == f"interrupted; {judged if status == 'complete' else kept}"
    assert raised.value.exit_code == errors.EXIT_INTERRUPTED


def test_latest_points_at_a_run_only_once_it_has_a_verdict(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = (create_run_folder(tmp_path, "kafka-4.4", "all", name) for name in ("first", "second"))
    latest = first.path.with_name("latest")
    assert not latest.is_symlink()
    for folder in (first, second):
        run._point_latest_here(folder)
        assert latest.resolve() == folder.path
    latest.unlink()
    latest.mkdir()
    run._point_latest_here(first)
    assert "latest does not point at" in caplog.text, "a verdict holds where no link can be made"


def test_seconds_are_added_up_by_stage() -> None:
    clock, reported = TickingClock(), list[str]()
    subject = Stages(clock.now_s, reported.append)
    for text, seconds in (("boot", 2), ("clean", 5), ("boot", 1)):
        subject.begin(text)
        clock.now += seconds
    subject.end()
    subject.end()
    assert run._timings_s(subject) == {"boot": 3, "clean": 5, "total": 8}
    assert reported == ["boot", "clean", "boot"]


@pytest.mark.parametrize("error", [HarnessError("the restart failed"), FileExistsError("applications.jsonl")])
def test_a_failed_application_is_told_and_takes_nothing_away(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.play.applications.follow", Mock(side_effect=error))
    manifest: Any = FakeManifest(content={"status": "complete"})
    prepared: Any = SimpleNamespace(plan=None, installed="Kafka Streams")
    nothing: Any = None
    run._follow_up(prepared, nothing, nothing, manifest, lambda _: None)
    assert manifest.content == {"status": "complete", "application_failure": str(error), "evidence": {}}


@pytest.mark.parametrize(("meanwhile", "asked", "times"), [(True, 0, 1), (False, 0, 0), (True, 2, 1), (False, 2, 1)])
def test_checkers_are_planned_once_meanwhile_or_only_where_there_is_something_to_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, meanwhile: bool, asked: int, times: int
) -> None:
    """A run of days has no Spark before its end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "setpriority", lambda *_: None)
    monkeypatch.setattr(leftovers, "end_processes", lambda *_args, **_named: 0)
    planned, nothing = cast("Any", "planned"), cast("Any", None)
    prepare = Mock(return_value=planned)
    monkeypatch.setattr(sessions, "prepare_beside", prepare)
    prepared_run: Any = SimpleNamespace(plan=SimpleNamespace(options=SimpleNamespace(spark=None)),
                                        equipment=SimpleNamespace(java=None))  # fmt: skip
    workspace: Any = SimpleNamespace(run_id="r")
    with run._checkers(workspace, nothing, prepared_run, meanwhile=meanwhile) as prepared:
        assert [prepared().result() for _ in range(asked)] == [planned] * asked
    assert prepare.call_count == times


EVERYWHERE = {(broker, partition, offset) for broker in (1, 3) for partition in (0, 1) for offset in (10, 20)}
ON_ONE = {record for record in EVERYWHERE if record[0] == 1}
NOTHING: Any = None


def cluster_of(
    removed: set[tuple[int, int, int]], all_removed_at_s: float = 1000, replicas: tuple[int, ...] = (1, 3, 2)
) -> FakeCluster:
    """Return a cluster without broker 2; `FakeObserver` says what is removed when."""
    cluster = FakeCluster({(CONTROL.name, number): replicas for number in (0, 1)}, away=frozenset({2}))
    cluster.observer.removed, cluster.observer.all_removed_at_s = removed, all_removed_at_s
    return cluster


def waited(cluster: FakeCluster, *unseen: Critical) -> list[str]:
    messages: list[str] = []
    run = RunPlayer(plan_run(RunOptions("kafka-4.4", "stuck-lso")), cluster, NOTHING, NOTHING, messages.append)
    run._payloads["control"] = FakePayload(*unseen)
    run._wait_removed()
    return messages


@pytest.mark.parametrize("gone", sorted(EVERYWHERE))
def test_nothing_was_missed_only_where_everything_is_kept_everywhere(gone: tuple[int, int, int]) -> None:
    payloads = [FakePayload()]
    assert window.is_kept(cluster_of(set()), payloads)
    assert not window.is_kept(cluster_of({gone}), payloads)
    assert window.is_kept(cluster_of({gone}, replicas=(1, 3)), payloads), "nobody could have missed that"
    assert not window.is_kept(cluster_of(set()), [FakePayload(Critical.MARKER)]), "unobserved records may be gone"


@pytest.mark.parametrize("still", [None, *sorted(EVERYWHERE)])
def test_a_window_is_open_where_every_record_is_gone_from_every_replica(still: tuple[int, int, int] | None) -> None:
    cluster = cluster_of(EVERYWHERE - {still}, all_removed_at_s=5)
    assert waited(cluster) == []
    assert (cluster.clock.now, cluster.clock.bounds_s) == (5 if still else 0, [20.0])


def test_clocks_are_put_forward_until_everything_is_gone(tmp_path: Path) -> None:
    cluster = cluster_of(set(), all_removed_at_s=2 * STEP_S + 1)
    plan = plan_run(RunOptions("kafka-4.4", "stuck-lso", timers=DAYS.name))
    run = RunPlayer(plan, cluster, NOTHING, NOTHING, NOTHING)
    run._payloads["control"] = FakePayload()
    with closing(History(tmp_path / "history.jsonl", cluster.clock)) as history:
        run._history = history
        assert run._wait_removed()
    steps = [n * 25 * 3600 for n in (1, 2, 3)]
    assert cluster.runtime.actions == [f"skew {broker} by {step} s" for step in steps for broker in (1, 2, 3)]
    noted = [event["offset_s"] for event in read_lines(tmp_path / "history.jsonl") if event["type"] == "ok"]
    assert noted == steps


def test_a_replica_whose_cleaner_is_late_on_purpose_is_not_waited_for() -> None:
    cluster = cluster_of(ON_ONE)
    cluster.late = frozenset({3})
    assert waited(cluster) == []
    assert cluster.clock.now == 0
    assert not window.is_kept(cluster, [FakePayload()])


@pytest.mark.parametrize("unseen", CONTROL.critical)
def test_what_nobody_ever_saw_is_not_gone(unseen: Critical) -> None:
    (result,) = waited(cluster_of(EVERYWHERE), unseen)
    assert result.startswith("the window does not open: ")


def test_a_window_that_does_not_open_ends_the_wait_and_what_fails_meanwhile_ends_the_run() -> None:
    assert waited(cluster_of(set())) == ["the window does not open: the critical tombstones and markers to be removed"]
    cluster = cluster_of(EVERYWHERE)
    cluster.checks.append(Mock(side_effect=HarnessError("broker 3 ended by itself")))
    with pytest.raises(HarnessError, match="broker 3 ended by itself"):
        waited(cluster)


def held_window(replicas: tuple[int, ...], removed: set[tuple[int, int, int]], held: set[int]) -> FakeCluster:
    cluster = cluster_of(removed, replicas=replicas)
    window.wait_removed(cluster, [FakePayload()], 20.0, lambda broker, _: broker in held)
    return cluster


@pytest.mark.parametrize(("removed", "held"), [(set(), {1, 3}), (ON_ONE, {3})])
def test_a_gate_that_holds_a_partition_is_not_waited_for(removed: set[tuple[int, int, int]], held: set[int]) -> None:
    assert held_window((1, 3, 2), removed, held).clock.now == 0


@pytest.mark.parametrize(("replicas", "held"), [((1, 3, 2), {1}), ((1, 3), {1, 3})])
def test_a_gate_explains_only_what_it_holds_and_what_others_miss(replicas: tuple[int, ...], held: set[int]) -> None:
    with pytest.raises(errors.WaitTimeoutError):
        held_window(replicas, set(), held)
