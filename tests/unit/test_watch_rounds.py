"""`harness watch`: the order of comparisons, the state, failures, metrics, health, JSON and the page."""

import json
import os
import re
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import UUID

import pytest
from documentation import ROOT
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.clock import NOW_MS, TickingClock
from fakes.progress import FakeProgress

from harness.audit.judge_copies import NO_ROWS
from harness.audit.live import broker_reports
from harness.audit.live.broker_reports import ReplicaStatus, ReplicaStatuses, TransactionDescriptions
from harness.audit.live.cluster import AuditedCluster
from harness.audit.live.compare import AuditAnswers
from harness.audit.live.exposure import Exposure, ExposureKind, Level, ReplicaExposure, TopicExposure
from harness.audit.live.prefilter import Prefiltered, Suspicion, prefilter, prefilter_readable
from harness.audit.live.request import AuditRequest
from harness.audit.live.settle import CheckedReading
from harness.audit.removal_settings import RemovalSettings
from harness.audit.watch import comparisons, run
from harness.audit.watch import status as watch_status
from harness.audit.watch.comparisons import Comparisons, in_order
from harness.audit.watch.status import Checks, WatchChecks, WatchStatus, check
from harness.audit.watch.store import FILE, WatchedPartition, WatchStore
from harness.broker_files.internal_topics.message_format import uuid_text
from harness.errors import HarnessError, UsageError
from harness.host import leftovers
from harness.host.clock import RealClock
from harness.judge.verdict import UnknownReason
from harness.kafka_api import NO_SUCH_TOPIC, NO_TOPIC_ACCESS, TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ClusterClient
from harness.kafka_api.metadata import ClusterState, PartitionState, TopicState
from harness.kafka_api.transactions import OpenTransaction
from harness.spark.options import SparkOptions

OPEN = OpenTransaction(7, 0, 5)
_FOLLOWER = ReplicaStatus(0, 20, 5, 20, (OPEN,))
_LEADERS = {(1, ("t", 0)): ReplicaStatus(0, 20, 20, 20, ()), (1, ("u", 0)): ReplicaStatus(0, 9, 9, 9, None)}
STATUSES = ReplicaStatuses({**_LEADERS, (2, ("t", 0)): _FOLLOWER, (3, ("t", 0)): _FOLLOWER}, {}, {})
SUSPICION = Suspicion("stuck-lso", 2, "t", 0, 5, OPEN, (1,), None, "broker 2 holds it open")
ANSWERS = Prefiltered(STATUSES, TransactionDescriptions({}), (SUSPICION,), ())
FROZEN = ReplicaExposure(ExposureKind.FROZEN, 2, "t", 0, Level.TOO_LATE, "consumers of broker 2 get nothing")
LEVEL = ReplicaExposure(ExposureKind.AWAY, 3, "t", 0, Level.OK, "misses no record")
EXPOSURE = Exposure(
    (TopicExposure("t", Level.TOO_LATE, RemovalSettings(None, None, None, None), (FROZEN, LEVEL), "t: 1 frozen"),),
    ("reassignments are unknown",),
)
FINDING = {"anomaly": "stuck-lso", "offset": 5, "explanation": "a marker <is> missing", "impact": "groups are stuck"}
DIVERGED = {
    "scenario": "t-0", "topic": "t", "partition": 0, "verdict": "anomaly", "reason": "a marker <is> missing",
    "findings": [FINDING, {**FINDING, "offset": 9}],
}  # fmt: skip
UNDECIDED = {
    "scenario": "u-0", "topic": "u", "partition": 0, "verdict": "unknown", "reason": "broker 3 was not read",
    "causes": ["not-read", "behind"], "findings": [],
}  # fmt: skip
AGREES = {**UNDECIDED, "scenario": "u-1", "partition": 1, "verdict": "clean", "reason": "they agree", "causes": None}
PARTITIONS = {
    ("t", 0): WatchedPartition(1, NOW_MS - 9_000, DIVERGED),
    ("u", 0): WatchedPartition(1, NOW_MS - 30_000, UNDECIDED),
    ("u", 1): WatchedPartition(1, NOW_MS - 60_000, AGREES),
    ("gone", 0): WatchedPartition(1, 2, AGREES),
}


def cluster_of(counts: Mapping[str, int], cluster_id: str = "id") -> AuditedCluster:
    partition = PartitionState(1, (1, 2), (1, 2))
    topics = {name: TopicState(name, dict.fromkeys(range(count), partition)) for name, count in counts.items()}
    state = ClusterState(cluster_id, {1: Address("b", 1), 2: Address("b", 2)}, topics)
    return AuditedCluster(ClusterClient(lambda: [Address("b", 1)], clock=TickingClock()), state, {})


def cluster_with_a_stuck_replica() -> AuditedCluster:
    stuck = Held(10, 4, open=(OpenTransaction(7, 3, 4),))
    return audited({1: FakeBroker({TP: [Held(10, 10)]}), 2: FakeBroker({TP: [stuck]})})


def checks_of(cluster: AuditedCluster, **more: Any) -> WatchChecks:
    return WatchChecks(NOW_MS - 2_000, 0.5, cluster, cluster, ANSWERS, EXPOSURE, **more)


NAMES = ("stuck-lso", "tombstone-divergence")
CHECKS = checks_of(cluster_of({"t": 1, "u": 3}), unreadable=("v may not be read",))
STATUS = WatchStatus(60.0, CHECKS, PARTITIONS, anomalies=NAMES)


def samples(status: WatchStatus) -> dict[tuple[str, ...], float]:
    every = (sample for family in watch_status.families(status, NOW_MS) for sample in family.samples)
    return {(sample.name.removeprefix(watch_status.PREFIX), *sample.labels.values()): sample.value for sample in every}


def test_a_verdict_on_a_topic_that_was_created_again_since_is_none() -> None:
    former, now = (UUID(int=number) for number in (1, 2))
    partitions = {("t", 0): WatchedPartition(1, 9, {**DIVERGED, watch_status.TOPIC_ID: uuid_text(former)})}
    found = []
    for topic_id in (former, now, None):
        cluster = cluster_of({"t": 1})
        topics = {"t": replace(cluster.state.topics["t"], topic_id=topic_id)}
        checks = checks_of(replace(cluster, state=replace(cluster.state, topics=topics)))
        status = WatchStatus(60.0, checks, partitions, anomalies=NAMES)
        found.append((samples(status)["diverged_partitions", "stuck-lso"], status.current["t", 0].compared_ms))
    assert found == [(1, 9), (0, 0), (1, 9)]


@pytest.mark.parametrize(("suspected", "tried", "before_ms", "now_ms", "topics"), [
    pytest.param({}, {}, 1000, 1000, "new b c a", id="new ones come first, then the oldest comparison"),
    pytest.param({"a": 501, "b": 299}, {}, 1000, 1000, "a new b c", id="a suspect since its comparison precedes all"),
    pytest.param({"a": 501}, {}, 299, 1000, "a new", id="a recent comparison is not repeated without a suspicion"),
    pytest.param({}, {"new": 450, "b": 600}, 1000, 1000, "c new a b", id="a failed one waits as if it were compared"),
    pytest.param({}, {}, 250, 450, "a new", id="a comparison in the future is repeated, as a clock was wrong"),
])  # fmt: skip
def test_order_of_comparisons(suspected: Any, tried: Any, before_ms: int, now_ms: int, topics: str) -> None:
    compared_ms = {"a": 500, "b": 300, "c": 400}
    partitions = {(topic, 0): WatchedPartition(1, time_ms) for topic, time_ms in compared_ms.items()}
    partitions["new", 0] = WatchedPartition(450)
    suspected_ms, tried_ms = ({(topic, 0): ms for topic, ms in times.items()} for times in (suspected, tried))
    assert in_order(partitions, suspected_ms, tried_ms, before_ms, now_ms) == [(topic, 0) for topic in topics.split()]


class TestStore:
    def test_what_was_compared_is_there_again_but_of_a_deleted_topic(self, tmp_path: Path) -> None:
        with closing(WatchStore(tmp_path / "new" / "state", "id")) as store:
            store.follow([("t", 0), ("u", 0)], 7)
            store.put({("t", 0): WatchedPartition(7, 9, DIVERGED)})
            before = store.partitions
        stored = {("t", 0): WatchedPartition(7, 9, DIVERGED), ("u", 0): WatchedPartition(7)}
        with closing(WatchStore(tmp_path / "new" / "state", "id")) as store:
            assert store.partitions == before == stored
        with closing(WatchStore(tmp_path, "id")) as store:
            store.follow([("t", 0)], 7)
            store.follow([("u", 0), ("u", 1)], 8)
        with closing(WatchStore(tmp_path, "id")) as store:
            assert store.partitions == dict.fromkeys([("u", 0), ("u", 1)], WatchedPartition(8))

    def test_the_folder_of_another_watch_or_cluster_is_refused(self, tmp_path: Path) -> None:
        with closing(WatchStore(tmp_path, "id")), pytest.raises(UsageError, match="another watch uses it"):
            WatchStore(tmp_path, "id")
        with pytest.raises(UsageError, match="the state of cluster id, not of other; name another folder"):
            WatchStore(tmp_path, "other")
        WatchStore(tmp_path, "id").close()

    def test_a_comparison_is_stored_whole_or_not_at_all(self, tmp_path: Path) -> None:
        with closing(WatchStore(tmp_path, "id")) as store:
            store.follow([("t", 0), ("u", 0)], 7)
            before = store.partitions
            with pytest.raises(TypeError):
                store.put({("t", 0): WatchedPartition(7, 9), ("u", 0): WatchedPartition(7, 9, {"text": b""})})
            assert store.partitions == before
        with closing(WatchStore(tmp_path, "id")) as store:
            assert store.partitions == before

    def test_a_file_that_is_no_state_is_one_sentence(self, tmp_path: Path) -> None:
        (tmp_path / FILE).write_text("something else, longer than a header of SQLite" * 9)
        with pytest.raises(UsageError, match="not a database"):
            WatchStore(tmp_path, "id")
        with pytest.raises(UsageError, match=r"--state .*: (File exists|Not a directory)"):
            WatchStore(tmp_path / FILE, "id")
        (tmp_path / FILE).unlink()
        WatchStore(tmp_path, "id").close()
        with closing(sqlite3.connect(tmp_path / FILE)) as database:
            database.execute("PRAGMA user_version=2")
        with pytest.raises(UsageError, match="another version"):
            WatchStore(tmp_path, "id")


class TestStatus:
    def test_metrics_count_partitions_causes_and_replicas(self) -> None:
        actual = samples(STATUS)
        expected = {
            ("healthy",): 1, ("partitions", "anomaly"): 1, ("partitions", "unknown"): 2, ("partitions", "clean"): 1,
            ("diverged_partitions", "stuck-lso"): 1, ("diverged_partitions", "hanging-transaction"): 0,
            ("diverged_partitions", "tombstone-divergence"): 0, ("undecided_partitions", "not-read"): 1,
            ("undecided_partitions", "behind"): 1, ("undecided_partitions", "not-compared"): 1,
            ("oldest_comparison_seconds",): 60, ("replicas_at_risk", "t", "frozen", "too late"): 1,
            ("suspicions", "stuck-lso"): 1, ("suspicions", "hanging-transaction"): 0, ("open_transactions", "t"): 1,
            ("lso_spread_offsets", "t"): 15, ("unreadable_topics",): 1, ("check_failures_total",): 0,
        }  # fmt: skip
        assert {name: actual.get(name) for name in expected} == expected
        assert not any("away" in name for name in actual), "a replica that misses nothing is not at risk"
        never_compared = {**PARTITIONS, ("u", 2): WatchedPartition(NOW_MS - 90_000)}
        assert samples(replace(STATUS, partitions=never_compared))["oldest_comparison_seconds",] == 90

    def test_every_metric_is_on_the_page_of_the_watch(self) -> None:
        text = (ROOT / "docs/how-to/watch.md").read_text()
        documented = {name.removesuffix("_total") for name in re.findall(r"^\| `([a-z_]+)`", text, re.MULTILINE)}
        metrics = {family.name for family in watch_status.families(STATUS, NOW_MS)}
        assert {name.removeprefix(watch_status.PREFIX) for name in metrics} <= documented

    def test_the_json_has_the_worst_first_and_no_deleted_topic(self) -> None:
        content = json.loads(watch_status.partitions_json(STATUS, NOW_MS)[1])
        assert content["cluster_id"] == "id"
        rows = [("t-0", "anomaly", 9.0), ("u-2", "unknown", None), ("u-0", "unknown", 30.0), ("u-1", "clean", 60.0)]
        assert [(row["scenario"], row["verdict"], row["age_s"]) for row in content["partitions"]] == rows
        assert content["partitions"][0]["findings"] == DIVERGED["findings"]
        assert content["partitions"][1]["causes"] == ["not-compared"]

    def test_the_page_is_one_file_in_which_texts_are_no_markup(self) -> None:
        _, text = watch_status.page(STATUS, NOW_MS)
        assert "1 diverged, 2 undecided, 1 agree" in text
        assert text.index("t-0</th>") < text.index("u-2</th>") < text.index("u-0</th>") < text.index("u-1</th>")
        assert "a marker &lt;is&gt; missing groups are stuck" in text
        assert "consumers of broker 2 get nothing" in text
        assert not re.search(r'(src|href)="(https?:)?//', text)

    @pytest.mark.parametrize(("changes", "wrong"), [
        ({}, []),
        ({"check_failure": "no broker answers"}, ["the last round failed: no broker answers"]),
        ({"comparison_failure": "t-0: gone"}, ["the last comparison failed: t-0: gone"]),
        ({"checks": replace(STATUS.checks, time_ms=NOW_MS - 181_000)},
         ["the last round that succeeded was 181 s ago"]),
    ])  # fmt: skip
    def test_failures_and_old_checks_are_problems(self, changes: Any, wrong: Sequence[str]) -> None:
        status = replace(STATUS, **changes)
        assert watch_status.problems(status, NOW_MS) == wrong
        assert samples(status)["healthy",] == (not wrong)

    def test_health_has_what_is_found_and_what_cannot_be_seen(self) -> None:
        answer = watch_status.health(STATUS)
        assert (answer["partitions"], answer["verdicts"]) == (4, {"anomaly": 1, "unknown": 2, "clean": 1})
        assert answer["notes"] == ["broker 2 holds it open", "v may not be read", "reassignments are unknown"]


class TestChecks:
    @pytest.fixture
    def cluster(self, monkeypatch: pytest.MonkeyPatch) -> AuditedCluster:
        self.described = cluster_with_a_stuck_replica()
        monkeypatch.setattr("harness.audit.watch.status.describe", lambda *_, **__: self.described)
        return self.described

    def test_a_suspicion_has_the_time_when_it_was_first_made(self, cluster: AuditedCluster) -> None:
        first = check(cluster.client, ())
        assert (first.suspected_since_ms, first.exposure.level > Level.OK) == ({TP: first.time_ms}, True)
        cluster.client.clock.now += 60  # type: ignore[attr-defined]
        second = check(cluster.client, (), first)
        assert (second.suspected_since_ms, second.time_ms > first.time_ms) == ({TP: first.time_ms}, True)

    def test_another_cluster_than_before_is_an_error(self, cluster: AuditedCluster) -> None:
        first = check(cluster.client, ())
        self.described = replace(cluster, state=replace(cluster.state, cluster_id="other"))
        with pytest.raises(HarnessError, match="another cluster now: other"):
            check(cluster.client, (), first)

    @pytest.mark.parametrize(("settings", "patterns", "errors", "unseen"), [
        pytest.param({}, (), (NO_SUCH_TOPIC, NO_SUCH_TOPIC), set(), id="deleted"),
        pytest.param({}, ("v*",), (NO_SUCH_TOPIC, None), {"v"}, id="one broker has not heard of it"),
        pytest.param({}, (), (NO_TOPIC_ACCESS,) * 2, {"v"}, id="its access was revoked"),
        pytest.param({}, (), (None, None), {"v"}, id="its settings cannot be seen"),
        pytest.param({}, (), (), {"v"}, id="nobody answers"),
        pytest.param({"v": {"cleanup.policy": "delete"}}, (), (None,), set(), id="no longer compacted"),
        pytest.param({}, ("t",), (None,), set(), id="no longer named"),
    ])  # fmt: skip
    def test_a_finding_remains_unless_the_brokers_say_that_its_topic_is_gone(  # noqa: PLR0917
        self, settings: Any, patterns: tuple[str, ...], errors: tuple[str | None, ...], unseen: set[str],
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        cluster = replace(cluster_of({"t": 1}), settings=settings)
        topics = ({"v": TopicState("v", {}, error=error)} for error in errors)
        answers = {broker: ClusterState("id", {}, topic) for broker, topic in enumerate(topics)}
        monkeypatch.setattr(cluster.client, "ask_all", lambda *_: (answers, {}))
        stored = {("t", 0): WatchedPartition(7), ("v", 0): WatchedPartition(7, 9, DIVERGED)}
        checks = checks_of(cluster, unseen=watch_status.unseen_topics(cluster, patterns, stored))
        assert checks.unseen == unseen
        with closing(WatchStore(tmp_path, "id")) as store:
            store.follow(stored, 7)
            store.put(stored)
            store.follow(checks.kept(store.partitions), 8)
            status = WatchStatus(60.0, checks, store.partitions, anomalies=NAMES)
        assert samples(status)["diverged_partitions", "stuck-lso"] == len(unseen)
        assert ("topic v is not seen any more: its last verdicts remain" in status.notes) == bool(unseen)

    def test_a_topic_that_may_not_be_read_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(cluster: AuditedCluster) -> Prefiltered:
            for topic in cluster.state.topics:
                if topic == "u":
                    raise broker_reports.UnreadableTopicError(topic)
            return ANSWERS

        monkeypatch.setattr("harness.audit.live.prefilter.prefilter", refuse)
        readable, answers, unreadable = prefilter_readable(cluster_of({"t": 2, "u": 1}))
        assert (list(readable.state.partitions), answers) == ([("t", 0), ("t", 1)], ANSWERS)
        assert unreadable == ("this user may not read topic u: an audit needs Describe and Read on it",)

    def test_no_topic_at_all_has_no_suspicion(self) -> None:
        assert prefilter(cluster_of({})).suspicions == ()

    def test_a_transaction_that_is_open_on_two_replicas_counts_once(self) -> None:
        assert watch_status.open_transactions(STATUSES) == {"t": 1}
        assert watch_status.lso_spread(STATUSES) == {"t": 15, "u": 0}


class NothingRead:
    """Stands for Spark: no replica was read."""

    session = None

    def compare(self, _answers: AuditAnswers, places: Sequence[TopicPartition]) -> CheckedReading:
        return CheckedReading((), NO_ROWS, {place: (UnknownReason("not-read", "it is down"),) for place in places})


class TestComparisons:
    @pytest.fixture
    def watch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Comparisons]:
        self.sizes = {("t", 0): 100, ("u", 0): 100, ("u", 1): 100}
        self.batches, self.lines = list[list[TopicPartition]](), list[str]()
        self.verdicts = dict.fromkeys(self.sizes, "clean")
        self.failure: Exception | None = None
        self.failing, self.gone = set(self.sizes), set[TopicPartition]()
        monkeypatch.setattr(comparisons, "partition_sizes", lambda *given: {tp: self.sizes[tp] for tp in given[2]})
        monkeypatch.setattr(Comparisons, "_compare", lambda watch, batch: self.compare(watch, batch))  # noqa: PLW0108
        cluster = cluster_of({"t": 1, "u": 2})
        checks = replace(checks_of(cluster), answers=replace(ANSWERS, suspicions=()))
        request = AuditRequest([], (), rate_limit_bytes_s=10, spool_limit_bytes=1000)
        with closing(WatchStore(tmp_path, "id")) as store:
            status = WatchStatus(20.0, checks)
            yield Comparisons(request, cluster.client, store, NothingRead(), self.lines.append, status)  # type: ignore[arg-type]

    def compare(self, watch: Comparisons, batch: list[TopicPartition]) -> dict[TopicPartition, WatchedPartition]:
        self.batches.append(batch)
        if self.failure is not None and self.failing & set(batch):
            raise self.failure
        now_ms = watch.client.clock.time_ms()
        results = {tp: {"verdict": self.verdicts[tp], "reason": "why"} for tp in batch if tp not in self.gone}
        return {place: WatchedPartition(1, now_ms, result) for place, result in results.items()}

    def passes(self, watch: Comparisons, seconds: float) -> Comparisons:
        watch.client.clock.now += seconds  # type: ignore[attr-defined]
        return watch

    @pytest.mark.parametrize("are_gone", [False, True])
    def test_a_batch_is_what_the_rate_allows_between_two_checks_and_partitions_that_are_gone_meanwhile_count(
        self, watch: Comparisons, *, are_gone: bool
    ) -> None:
        self.gone = set(self.sizes) if are_gone else set()
        assert [watch.compare_next() for _ in range(3)] == [True, True, False]
        assert self.batches == [[("t", 0), ("u", 0)], [("u", 1)]]
        self.gone.clear()
        assert self.passes(watch, 21).compare_next()
        assert self.batches[2] == [("t", 0), ("u", 0)]
        assert watch.status.comparisons == (2 if are_gone else 5)

    def test_a_suspect_goes_first_although_it_was_just_compared(self, watch: Comparisons) -> None:
        while watch.compare_next():
            pass
        self.passes(watch, 1)
        watch.status.checks = replace(watch.status.checks, suspected_since_ms={("u", 1): watch.client.clock.time_ms()})
        assert self.passes(watch, 1).compare_next()
        assert self.batches[-1] == [("u", 1)]
        assert not watch.compare_next()

    def test_a_failure_is_reported_keeps_verdicts_and_lets_others_go_first(self, watch: Comparisons) -> None:
        assert watch.compare_next()
        stored = watch.store.partitions["t", 0]
        self.passes(watch, 21)
        self.failure = ValueError("a bug\nwith details")
        assert not watch.compare_next()
        assert self.batches[-1] == [("u", 1), ("t", 0)]
        assert watch.status.comparison_failure == "u-1, t-0: a bug"
        assert (watch.store.partitions["t", 0], watch.status.comparison_failures) == (stored, 1)
        self.failure = None
        assert watch.compare_next()
        assert self.batches[-1] == [("u", 0)]
        assert watch.status.comparison_failure is None

    def test_a_partition_that_always_fails_does_not_keep_others_from_being_compared(self, watch: Comparisons) -> None:
        self.failure, self.failing = ValueError("a bug"), {("t", 0)}
        watch.request = replace(watch.request, rate_limit_bytes_s=None)
        watch.tried_ms["gone", 0] = 1
        for _ in range(12):
            self.passes(watch, 7).compare_next()
        assert {place for place, it in watch.store.partitions.items() if it.compared_ms} == {("u", 0), ("u", 1)}
        assert all(batch == [("t", 0)] or ("t", 0) not in batch for batch in self.batches[3:])
        assert "the last comparison failed of t-0" in watch.status.notes
        assert watch.status.failed.keys() == {("t", 0)}
        assert ("gone", 0) not in watch.tried_ms

    def test_changed_verdicts_are_printed(self, watch: Comparisons) -> None:
        self.verdicts["t", 0] = "anomaly"
        watch.compare_next()
        self.passes(watch, 30).compare_next()
        self.verdicts["t", 0] = "clean"
        for _ in range(3):
            self.passes(watch, 30).compare_next()
        assert self.lines == ["watch: t-0: anomaly: why", "watch: t-0: clean: why"]

    def test_failed_checks_are_reported_once(self, watch: Comparisons, monkeypatch: pytest.MonkeyPatch) -> None:
        before, errors = watch.status.checks, iter([HarnessError("down"), HarnessError("down"), RuntimeError("a bug")])

        def fail(*_: Any) -> None:
            raise next(errors)

        monkeypatch.setattr("harness.audit.watch.status.check", fail)
        checks = Checks(watch.client, (), self.lines.append, watch.status)
        for _ in range(3):
            checks.check()
        assert (watch.status.checks, watch.status.check_failure, watch.status.check_failures) == (before, "a bug", 3)
        assert len(self.lines) == 2
        monkeypatch.setattr("harness.audit.watch.status.check", lambda *_: before)
        checks.check()
        assert watch.status.check_failure is None


def test_what_a_killed_watch_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "work_root", lambda: tmp_path / "work")
    mine, other = tmp_path / "state", tmp_path / "other"
    for run_id, folder in (("watch-1", mine), ("watch-2", other), ("watch-3", mine)):
        leftovers.claim_work_dir(run_id, folder)
    for run_id in ("watch-1", "watch-2"):
        leftovers.change_owner(tmp_path / "work" / run_id, started_s=1.0, started=None)
    leftovers.remove_abandoned(mine)
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["watch-2", "watch-3"]


def test_a_comparison_is_stored_as_in_verdict_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_with_a_stuck_replica()
    for module in ("status", "comparisons"):
        monkeypatch.setattr(f"harness.audit.watch.{module}.describe", lambda *_, **__: cluster)
    monkeypatch.setattr("harness.audit.live.compare.add_groups", lambda verdict, *_: verdict)
    request, status = AuditRequest([Address("b", 1)], ()), WatchStatus(60.0, check(cluster.client, ()))
    with closing(WatchStore(tmp_path, "id")) as store:
        watch = Comparisons(request, cluster.client, store, NothingRead(), print, status)  # type: ignore[arg-type]
        assert watch.compare_next(), watch.status.comparison_failure
        row = json.loads(watch_status.partitions_json(watch.status, watch.client.clock.time_ms())[1])["partitions"][0]
        assert (row["scenario"], row["verdict"], row["findings"][0]["anomaly"]) == ("t-0", "anomaly", "stuck-lso")
        assert samples(watch.status)["diverged_partitions", "stuck-lso"] == 1
        assert "consumers" in watch_status.page(watch.status, NOW_MS)[1]
        assert not watch.compare_next()


@pytest.mark.parametrize(("replicas", "cause"), [((1, 2), "not-read"), ((1, 3), "changing")])
def test_a_partition_that_is_reassigned_while_it_is_compared_is_unknown(
    replicas: tuple[int, ...], cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = audited({1: FakeBroker({TP: [Held(10, 10)]}), 2: FakeBroker({TP: [Held(10, 10)]})})
    topic = TopicState("t", {0: PartitionState(1, replicas, replicas)})
    after = replace(before, state=replace(before.state, topics={"t": topic}))
    described = iter([before, after])
    monkeypatch.setattr("harness.audit.watch.status.describe", lambda *_, **__: before)
    monkeypatch.setattr("harness.audit.watch.comparisons.describe", lambda *_, **__: next(described))
    monkeypatch.setattr("harness.audit.live.compare.add_groups", lambda verdict, *_: verdict)
    request, status = AuditRequest([Address("b", 1)], ()), WatchStatus(60.0, check(before.client, ()))
    with closing(WatchStore(tmp_path, "id")) as store:
        watch = Comparisons(request, before.client, store, NothingRead(), print, status)  # type: ignore[arg-type]
        assert watch.compare_next(), watch.status.comparison_failure
        assert store.partitions[TP].result["causes"][0] == cause


@pytest.fixture
def watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    monkeypatch.setattr(leftovers, "work_root", lambda: tmp_path / "work")
    monkeypatch.setattr(watch_status, "check", lambda *_: STATUS.checks)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield partial(
        run.watch_until_signal, AuditRequest([], ()), state=tmp_path / "state", listen=("127.0.0.1", 0),
        progress=FakeProgress(),
    )  # fmt: skip
    for number, handler in before.items():
        signal.signal(number, handler)


def fetched(lines: list[str], *paths: str) -> list[str]:
    """Return what the watch that printed these lines serves."""
    (address,) = (line.split()[2].removesuffix("/,") for line in lines if "listens" in line)
    return [urlopen(f"{address}{path}", timeout=10).read().decode() for path in paths]  # noqa: S310  (of this test)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_watch(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watching: Any) -> None:
    monkeypatch.setattr(comparisons, "partition_sizes", lambda *given: dict.fromkeys(given[2], 1))
    lines, pages = list[str](), list[str]()

    def compare(*_: Any) -> None:
        pages.extend(fetched(lines, "/", "/partitions", "/metrics"))
        os.kill(os.getpid(), number)
        RealClock().wait_until(lambda: False, 30, "the signal")

    monkeypatch.setattr(Comparisons, "_compare", compare)
    threads = set(threading.enumerate())
    code = watching(every_s=0.1, spark=SparkOptions(), report=lines.append)
    assert (code, len(pages), lines[-1]) == (0, 3, "watch: ended")
    RealClock().wait_until(lambda: set(threading.enumerate()) <= threads, 10, "the threads to end")
    assert list((tmp_path / "work").iterdir()) == []
    WatchStore(tmp_path / "state", "id").close()


def test_checks_alone_need_no_spark(monkeypatch: pytest.MonkeyPatch, watching: Any) -> None:
    monkeypatch.setitem(sys.modules, "harness.audit.watch.comparisons", None)
    lines, served = list[str](), list[str]()

    def wait(_: Checks) -> None:
        served.extend(fetched(lines, "/partitions", "/metrics"))
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Checks, "wait", wait)
    assert (watching(every_s=60, spark=None, report=lines.append), lines[-1]) == (0, "watch: ended")
    assert {row["reason"] for row in json.loads(served[0])["partitions"]} == {"it is not compared: --checks-only"}
    assert 'suspicions{anomaly="stuck-lso"} 1.0' in served[1]
    assert "oldest_comparison" not in served[1]
