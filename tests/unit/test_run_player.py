"""The window: it is open when every critical record is gone from every broker that is up."""

from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from fakes.cluster import FakeCluster, FakePayload

from harness.errors import HarnessError, WaitTimeoutError
from harness.play import window
from harness.play.options import RunOptions
from harness.play.run_plan import plan_run
from harness.play.run_player import RunPlayer
from harness.run_folder.history import History, read_lines
from harness.schedules.catalog import CONTROL
from harness.schedules.scenario import Critical
from harness.schedules.timers import DAYS, STEP_S

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


def test_a_window_that_does_not_open_ends_the_wait_and_not_the_run() -> None:
    assert waited(cluster_of(set())) == ["the window does not open: the critical tombstones and markers to be removed"]


def held_window(replicas: tuple[int, ...], removed: set[tuple[int, int, int]], held: set[int]) -> FakeCluster:
    cluster = cluster_of(removed, replicas=replicas)
    window.wait_removed(cluster, [FakePayload()], 20.0, lambda broker, _: broker in held)
    return cluster


@pytest.mark.parametrize(("removed", "held"), [(set(), {1, 3}), (ON_ONE, {3})])
def test_a_gate_that_holds_a_partition_is_not_waited_for(removed: set[tuple[int, int, int]], held: set[int]) -> None:
    assert held_window((1, 3, 2), removed, held).clock.now == 0


@pytest.mark.parametrize(("replicas", "held"), [((1, 3, 2), {1}), ((1, 3), {1, 3})])
def test_a_gate_explains_only_what_it_holds_and_what_others_miss(replicas: tuple[int, ...], held: set[int]) -> None:
    with pytest.raises(WaitTimeoutError):
        held_window(replicas, set(), held)


def test_what_fails_meanwhile_ends_the_run() -> None:
    cluster = cluster_of(EVERYWHERE)
    cluster.checks.append(Mock(side_effect=HarnessError("broker 3 ended by itself")))
    with pytest.raises(HarnessError, match="broker 3 ended by itself"):
        waited(cluster)
