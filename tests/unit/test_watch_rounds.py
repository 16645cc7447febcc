"""`harness watch`: the order of comparisons, the state, failures, metrics, health, JSON and the page."""

import json
import os
import re
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from documentation import ROOT
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.clock import NOW_MS, TickingClock
from fakes.progress import FakeProgress

from harness.audit.judge_copies import NO_ROWS
from harness.audit.live.broker_reports import (
    ReplicaStatus,
    ReplicaStatuses,
    TransactionDescriptions,
    UnreadableTopicError,
)
from harness.audit.live.cluster import AuditedCluster
from harness.audit.live.compare import AuditAnswers
from harness.audit.live.exposure import Exposure, ExposureKind, Level, ReplicaExposure, TopicExposure
from harness.audit.live.prefilter import Prefiltered, Suspicion, prefilter, prefilter_readable
from harness.audit.live.request import AuditRequest
from harness.audit.live.settle import CheckedReading
from harness.audit.removal_settings import RemovalSettings
from harness.audit.watch import comparisons, run
from harness.audit.watch.checks import Checks
from harness.audit.watch.comparisons import Comparisons, in_order
from harness.audit.watch.status import (
    PREFIX,
    WatchChecks,
    WatchStatus,
    check,
    families,
    health,
    lso_spread,
    open_transactions,
    page,
    partitions_json,
    problems,
)
from harness.audit.watch.store import FILE, WatchedPartition, WatchStore
from harness.errors import HarnessError, UsageError
from harness.host import leftovers
from harness.host.clock import RealClock
from harness.judge.verdict import UnknownReason
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ClusterClient
from harness.kafka_api.metadata import ClusterState, PartitionState, TopicState
from harness.kafka_api.transactions import OpenTransaction
from harness.spark.options import SparkOptions

OPEN = OpenTransaction(7, 0, 5)
STATUSES = ReplicaStatuses(
    {
        (1, ("t", 0)): ReplicaStatus(0, 20, 20, 20, ()),
        (2, ("t", 0)): ReplicaStatus(0, 20, 5, 20, (OPEN,)),
        (3, ("t", 0)): ReplicaStatus(0, 20, 5, 20, (OPEN,)),
        (1, ("u", 0)): ReplicaStatus(0, 9, 9, 9, None),
    },
    {},
    {},
)
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


def checks_of(cluster: AuditedCluster, **more: Any) -> WatchChecks:
    return WatchChecks(NOW_MS - 2_000, 0.5, cluster, cluster, ANSWERS, EXPOSURE, **more)


NAMES = ("stuck-lso", "tombstone-divergence")
STATUS = WatchStatus(
    60.0, checks_of(cluster_of({"t": 1, "u": 3}), unreadable=("v may not be read",)), PARTITIONS, anomalies=NAMES
)


def samples(status: WatchStatus) -> dict[tuple[str, ...], float]:
    every = (sample for family in families(status, NOW_MS) for sample in family.samples)
    return {(sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value for sample in every}


class TestOrder:
    SEEN: Mapping[tuple[str, int], WatchedPartition] = {
        ("a", 0): WatchedPartition(1, 500),
        ("b", 0): WatchedPartition(1, 300),
        ("c", 0): WatchedPartition(1, 400),
        ("new", 0): WatchedPartition(450),
    }

    def test_new_ones_come_first_then_the_oldest_comparison(self) -> None:
        assert in_order(self.SEEN, {}, {}, 1000) == [("new", 0), ("b", 0), ("c", 0), ("a", 0)]

    def test_who_is_suspected_since_its_comparison_comes_before_all(self) -> None:
        assert in_order(self.SEEN, {("a", 0): 501, ("b", 0): 299}, {}, 1000)[0] == ("a", 0)

    def test_a_recent_comparison_is_not_repeated_without_a_suspicion(self) -> None:
        assert in_order(self.SEEN, {("a", 0): 501}, {}, 299) == [("a", 0), ("new", 0)]

    def test_who_failed_waits_as_if_it_had_been_compared(self) -> None:
        tried = {("new", 0): 450, ("b", 0): 600}
        assert in_order(self.SEEN, {}, tried, 1000) == [("c", 0), ("new", 0), ("a", 0), ("b", 0)]


class TestStore:
    def test_what_was_compared_is_there_again(self, tmp_path: Path) -> None:
        with closing(WatchStore(tmp_path / "new" / "state", "id")) as store:
            store.follow([("t", 0), ("u", 0)], 7)
            store.put({("t", 0): WatchedPartition(7, 9, DIVERGED)})
            before = store.partitions
        with closing(WatchStore(tmp_path / "new" / "state", "id")) as store:
            assert store.partitions == before == {
                ("t", 0): WatchedPartition(7, 9, DIVERGED), ("u", 0): WatchedPartition(7)
            }  # fmt: skip

    def test_a_deleted_topic_is_forgotten_and_a_new_one_begins(self, tmp_path: Path) -> None:
        with closing(WatchStore(tmp_path, "id")) as store:
            store.follow([("t", 0)], 7)
            store.follow([("u", 0), ("u", 1)], 8)
        with closing(WatchStore(tmp_path, "id")) as store:
            assert store.partitions == {("u", 0): WatchedPartition(8), ("u", 1): WatchedPartition(8)}

    def test_another_cluster_is_refused(self, tmp_path: Path) -> None:
        WatchStore(tmp_path, "id").close()
        with pytest.raises(UsageError, match="the state of cluster id, not of other; name another folder"):
            WatchStore(tmp_path, "other")
        WatchStore(tmp_path, "id").close()

    def test_two_watches_cannot_share_a_folder(self, tmp_path: Path) -> None:
        first = WatchStore(tmp_path, "id")
        with pytest.raises(UsageError, match="another watch uses it"):
            WatchStore(tmp_path, "id")
        first.close()
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

    def test_the_state_of_another_version_is_refused(self, tmp_path: Path) -> None:
        WatchStore(tmp_path, "id").close()
        with closing(sqlite3.connect(tmp_path / FILE)) as database:
            database.execute("PRAGMA user_version=2")
        with pytest.raises(UsageError, match="another version"):
            WatchStore(tmp_path, "id")


class TestStatus:
    def test_metrics_count_partitions_causes_and_replicas(self) -> None:
        found = samples(STATUS)
        expected = {
            ("healthy",): 1, ("partitions", "anomaly"): 1, ("partitions", "unknown"): 2, ("partitions", "clean"): 1,
            ("diverged_partitions", "stuck-lso"): 1, ("diverged_partitions", "hanging-transaction"): 0,
            ("diverged_partitions", "tombstone-divergence"): 0, ("undecided_partitions", "not-read"): 1,
            ("undecided_partitions", "behind"): 1, ("undecided_partitions", "not-compared"): 1,
            ("oldest_comparison_seconds",): 60, ("replicas_at_risk", "t", "frozen", "too late"): 1,
            ("suspicions", "stuck-lso"): 1, ("suspicions", "hanging-transaction"): 0, ("open_transactions", "t"): 1,
            ("lso_spread_offsets", "t"): 15, ("unreadable_topics",): 1, ("check_failures_total",): 0,
        }  # fmt: skip
        assert {name: found.get(name) for name in expected} == expected
        assert not any("away" in name for name in found), "a replica that misses nothing is not at risk"

    def test_a_partition_that_was_never_compared_ages_since_it_was_first_seen(self) -> None:
        status = replace(STATUS, partitions={**PARTITIONS, ("u", 2): WatchedPartition(NOW_MS - 90_000)})
        assert samples(status)["oldest_comparison_seconds",] == 90

    def test_every_metric_is_on_the_page_of_the_watch(self) -> None:
        text = (ROOT / "docs/how-to/watch.md").read_text()
        documented = {name.removesuffix("_total") for name in re.findall(r"^\| `([a-z_]+)`", text, re.MULTILINE)}
        assert {family.name.removeprefix(PREFIX) for family in families(STATUS, NOW_MS)} <= documented

    def test_the_json_has_the_worst_first_and_no_deleted_topic(self) -> None:
        content = json.loads(partitions_json(STATUS, NOW_MS)[1])
        assert content["cluster_id"] == "id"
        assert [(row["scenario"], row["verdict"], row["age_s"]) for row in content["partitions"]] == [
            ("t-0", "anomaly", 9.0), ("u-2", "unknown", None), ("u-0", "unknown", 30.0), ("u-1", "clean", 60.0)
        ]  # fmt: skip
        assert content["partitions"][0]["findings"] == DIVERGED["findings"]
        assert content["partitions"][1]["causes"] == ["not-compared"]

    def test_the_page_is_one_file_in_which_texts_are_no_markup(self) -> None:
        _, text = page(STATUS, NOW_MS)
        assert "1 diverged, 2 undecided, 1 agree" in text
        assert text.index("t-0</th>") < text.index("u-2</th>") < text.index("u-0</th>") < text.index("u-1</th>")
        assert "a marker &lt;is&gt; missing groups are stuck" in text
        assert "consumers of broker 2 get nothing" in text
        assert not re.search(r'(src|href)="(https?:)?//', text)

    @pytest.mark.parametrize(
        ("changes", "wrong"),
        [
            ({}, []),
            ({"check_failure": "no broker answers"}, ["the last round failed: no broker answers"]),
            ({"comparison_failure": "t-0: gone"}, ["the last comparison failed: t-0: gone"]),
            ({"checks": replace(STATUS.checks, time_ms=NOW_MS - 181_000)},
             ["the last round that succeeded was 181 s ago"]),
        ],
    )  # fmt: skip
    def test_failures_and_old_checks_are_problems(self, changes: Any, wrong: Sequence[str]) -> None:
        status = replace(STATUS, **changes)
        assert problems(status, NOW_MS) == wrong
        assert samples(status)["healthy",] == (not wrong)

    def test_health_has_what_is_found_and_what_cannot_be_seen(self) -> None:
        answer = health(STATUS)
        assert (answer["partitions"], answer["verdicts"]) == (4, {"anomaly": 1, "unknown": 2, "clean": 1})
        assert answer["notes"] == ["broker 2 holds it open", "v may not be read", "reassignments are unknown"]


class TestChecks:
    @pytest.fixture
    def cluster(self, monkeypatch: pytest.MonkeyPatch) -> AuditedCluster:
        stuck = Held(10, 4, open=(OpenTransaction(7, 3, 4),))
        cluster = audited({1: FakeBroker({TP: [Held(10, 10)]}), 2: FakeBroker({TP: [stuck]})})
        self.described = cluster
        monkeypatch.setattr("harness.audit.watch.status.describe", lambda *_, **__: self.described)
        return cluster

    def test_a_suspicion_has_the_time_when_it_was_first_made(self, cluster: AuditedCluster) -> None:
        first = check(cluster.client, ())
        assert first.suspected_since_ms == {TP: first.time_ms}
        assert first.exposure.level > Level.OK
        cluster.client.clock.now += 60  # type: ignore[attr-defined]
        second = check(cluster.client, (), first)
        assert (second.suspected_since_ms, second.time_ms > first.time_ms) == ({TP: first.time_ms}, True)

    def test_another_cluster_than_before_is_an_error(self, cluster: AuditedCluster) -> None:
        first = check(cluster.client, ())
        self.described = replace(cluster, state=replace(cluster.state, cluster_id="other"))
        with pytest.raises(HarnessError, match="another cluster now: other"):
            check(cluster.client, (), first)

    def test_a_topic_that_may_not_be_read_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(cluster: AuditedCluster) -> Prefiltered:
            for topic in cluster.state.topics:
                if topic == "u":
                    raise UnreadableTopicError(topic)
            return ANSWERS

        monkeypatch.setattr("harness.audit.live.prefilter.prefilter", refuse)
        readable, answers, unreadable = prefilter_readable(cluster_of({"t": 2, "u": 1}))
        assert (list(readable.state.partitions), answers) == ([("t", 0), ("t", 1)], ANSWERS)
        assert unreadable == ("this user may not read topic u: an audit needs Describe and Read on it",)

    def test_no_topic_at_all_has_no_suspicion(self) -> None:
        assert prefilter(cluster_of({})).suspicions == ()

    def test_a_transaction_that_is_open_on_two_replicas_counts_once(self) -> None:
        assert (open_transactions(STATUSES), lso_spread(STATUSES)) == ({"t": 1}, {"t": 15, "u": 0})


class FakeComparer:
    """Stands for Spark: what is compared agrees."""

    session = None


class TestComparisons:
    @pytest.fixture
    def watch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Comparisons]:
        self.sizes = {("t", 0): 100, ("u", 0): 100, ("u", 1): 100}
        self.batches: list[list[tuple[str, int]]] = []
        self.lines: list[str] = []
        self.verdicts = dict.fromkeys(self.sizes, "clean")
        self.failure: Exception | None = None
        monkeypatch.setattr(
            comparisons, "partition_sizes", lambda *given: {place: self.sizes[place] for place in given[2]}
        )
        monkeypatch.setattr(Comparisons, "_compare", lambda watch, batch: self.compare(watch, batch))  # noqa: PLW0108
        cluster = cluster_of({"t": 1, "u": 2})
        checks = replace(checks_of(cluster), answers=replace(ANSWERS, suspicions=()))
        request = AuditRequest([], (), rate_limit_bytes_s=10, spool_limit_bytes=1000)
        with closing(WatchStore(tmp_path, "id")) as store:
            status = WatchStatus(20.0, checks)
            yield Comparisons(request, cluster.client, store, FakeComparer(), self.lines.append, status)  # type: ignore[arg-type]

    def compare(self, watch: Comparisons, batch: list[tuple[str, int]]) -> dict[tuple[str, int], WatchedPartition]:
        self.batches.append(batch)
        if self.failure is not None:
            raise self.failure
        now_ms = watch.client.clock.time_ms()
        results = {place: {"verdict": self.verdicts[place], "reason": "why"} for place in batch}
        return {place: WatchedPartition(1, now_ms, result) for place, result in results.items()}

    def passes(self, watch: Comparisons, seconds: float) -> None:
        watch.client.clock.now += seconds  # type: ignore[attr-defined]

    def test_a_batch_is_what_the_rate_allows_between_two_checks(self, watch: Comparisons) -> None:
        assert [watch.compare_next() for _ in range(3)] == [True, True, False]
        assert self.batches == [[("t", 0), ("u", 0)], [("u", 1)]]
        self.passes(watch, 21)
        assert watch.compare_next()
        assert self.batches[2] == [("t", 0), ("u", 0)]
        assert watch.status.comparisons == 5

    def test_a_suspect_goes_first_although_it_was_just_compared(self, watch: Comparisons) -> None:
        while watch.compare_next():
            pass
        self.passes(watch, 1)
        watch.status.checks = replace(watch.status.checks, suspected_since_ms={("u", 1): watch.client.clock.time_ms()})
        self.passes(watch, 1)
        assert watch.compare_next()
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

    def test_changed_verdicts_are_printed(self, watch: Comparisons) -> None:
        self.verdicts["t", 0] = "anomaly"
        watch.compare_next()
        self.passes(watch, 30)
        watch.compare_next()
        self.verdicts["t", 0] = "clean"
        for _ in range(3):
            self.passes(watch, 30)
            watch.compare_next()
        assert self.lines == ["watch: t-0: anomaly: why", "watch: t-0: clean: why"]

    def test_checks_that_fail_are_reported_once_and_keep_the_last(
        self, watch: Comparisons, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before, errors = watch.status.checks, iter([HarnessError("down"), HarnessError("down"), RuntimeError("a bug")])

        def fail(*_: Any) -> None:
            raise next(errors)

        monkeypatch.setattr("harness.audit.watch.checks.check", fail)
        checks = Checks(watch.client, (), self.lines.append, watch.status)
        for _ in range(3):
            checks.check()
        assert (watch.status.checks, watch.status.check_failure, watch.status.check_failures) == (before, "a bug", 3)
        assert len(self.lines) == 2
        monkeypatch.setattr("harness.audit.watch.checks.check", lambda *_: before)
        checks.check()
        assert watch.status.check_failure is None


def test_what_a_killed_watch_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "work_root", lambda: tmp_path / "work")
    mine, other = tmp_path / "state", tmp_path / "other"
    for run_id, folder in (("watch-1", mine), ("watch-2", other), ("watch-3", mine)):
        leftovers.claim_work_dir(run_id, folder)
    for run_id in ("watch-1", "watch-2"):
        leftovers.change_owner(tmp_path / "work" / run_id, started_s=1.0)
    leftovers.remove_abandoned(mine)
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["watch-2", "watch-3"]


class NothingRead:
    """Stands for Spark: no replica was read."""

    session = None

    def compare(self, _answers: AuditAnswers, places: Sequence[tuple[str, int]]) -> CheckedReading:
        return CheckedReading((), NO_ROWS, {place: (UnknownReason("not-read", "it is down"),) for place in places})


def test_a_comparison_is_stored_as_in_verdict_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Held(10, 4, open=(OpenTransaction(7, 3, 4),))
    cluster = audited({1: FakeBroker({TP: [Held(10, 10)]}), 2: FakeBroker({TP: [stuck]})})
    for module in ("status", "comparisons"):
        monkeypatch.setattr(f"harness.audit.watch.{module}.describe", lambda *_, **__: cluster)
    monkeypatch.setattr("harness.audit.live.compare.add_groups", lambda verdict, *_: verdict)
    with closing(WatchStore(tmp_path, "id")) as store:
        watch = Comparisons(
            AuditRequest([Address("b", 1)], ()), cluster.client, store, NothingRead(), print,  # type: ignore[arg-type]
            WatchStatus(60.0, check(cluster.client, ())),
        )  # fmt: skip
        assert watch.compare_next(), watch.status.comparison_failure
        row = json.loads(partitions_json(watch.status, watch.client.clock.time_ms())[1])["partitions"][0]
        assert (row["scenario"], row["verdict"], row["findings"][0]["anomaly"]) == ("t-0", "anomaly", "stuck-lso")
        assert samples(watch.status)["diverged_partitions", "stuck-lso"] == 1
        assert "consumers" in page(watch.status, NOW_MS)[1]
        assert not watch.compare_next()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_comparison_and_leaves_nothing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "work_root", lambda: tmp_path / "work")
    monkeypatch.setattr(run, "check", lambda *_: STATUS.checks)
    monkeypatch.setattr(comparisons, "partition_sizes", lambda *given: dict.fromkeys(given[2], 1))
    lines: list[str] = []
    answers: list[int] = []

    def compare(*_: Any) -> None:
        (address,) = (line.split()[2].removesuffix("/,") for line in lines if "listens" in line)
        paths = ("/", "/partitions", "/metrics")
        answers.extend(urlopen(f"{address}{path}", timeout=10).status for path in paths)  # noqa: S310  (of this test)
        os.kill(os.getpid(), number)
        RealClock().wait_until(lambda: False, 30, "the signal")

    monkeypatch.setattr(Comparisons, "_compare", compare)
    threads = set(threading.enumerate())
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        code = run.watch_until_signal(
            AuditRequest([], ()),
            every_s=0.1,
            state=tmp_path / "state",
            listen=("127.0.0.1", 0),
            spark=SparkOptions(),
            progress=FakeProgress(),
            report=lines.append,
        )
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert (code, answers, lines[-1]) == (0, [200, 200, 200], "watch: ended")
    RealClock().wait_until(lambda: set(threading.enumerate()) <= threads, 10, "the threads to end")
    assert list((tmp_path / "work").iterdir()) == []
    WatchStore(tmp_path / "state", "id").close()


def test_a_watch_of_checks_alone_needs_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "work_root", lambda: tmp_path / "work")
    monkeypatch.setattr(run, "check", lambda *_: STATUS.checks)
    monkeypatch.setitem(sys.modules, "harness.audit.watch.comparisons", None)
    lines: list[str] = []
    served: list[str] = []

    def wait(_: Checks) -> None:
        (address,) = (line.split()[2].removesuffix("/,") for line in lines if "listens" in line)
        served.extend(urlopen(f"{address}{path}", timeout=10).read().decode() for path in ("/partitions", "/metrics"))  # noqa: S310  (of this test)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Checks, "wait", wait)
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        code = run.watch_until_signal(
            AuditRequest([], ()), every_s=60, state=tmp_path / "state", listen=("127.0.0.1", 0), spark=None,
            progress=FakeProgress(), report=lines.append,
        )  # fmt: skip
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert (code, lines[-1]) == (0, "watch: ended")
    assert {row["reason"] for row in json.loads(served[0])["partitions"]} == {"it is not compared: --checks-only"}
    assert 'suspicions{anomaly="stuck-lso"} 1.0' in served[1]
    assert "oldest_comparison" not in served[1]
