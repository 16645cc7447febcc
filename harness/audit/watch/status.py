"""The checks of a watch, which take seconds, its status, and the metrics, health, JSON and page that show it."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from harness.audit.live.broker_reports import ReplicaStatuses
from harness.audit.live.cluster import METADATA, AuditedCluster, describe
from harness.audit.live.exposure import Exposure, exposure
from harness.audit.live.prefilter import HANGING_TRANSACTION, STUCK_LSO, Prefiltered, prefilter_readable
from harness.audit.watch.store import WatchedPartition
from harness.broker_files.copies.selection import is_named, listed
from harness.errors import HarnessError, WaitTimeoutError
from harness.escape import to_json
from harness.judge.finding import Place, name_of
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN
from harness.kafka_api import NO_SUCH_TOPIC
from harness.kafka_api.connection import ClusterClient
from harness.kafka_api.metadata import describe_cluster
from harness.report.endpoint import HTML, JSON, gauge, round_problems
from harness.report.rendering import render

PREFIX: Final = "compaction_watch_"
NOT_COMPARED: Final = "not-compared"
"""The cause of a partition without a verdict."""
TOPIC_ID: Final = "topic_id"
"""The member of a stored result with the id of the topic that was compared (KIP-516), if it is known."""
SHOWN: Final = 1000
"""The most partitions on the page."""
WORST: Final = (ANOMALY, UNKNOWN, CLEAN)


@dataclass(frozen=True)
class WatchChecks:
    """The result of the checks, which ended at ``time_ms``.

    ``readable``: ``cluster`` with the topics that this user may read; ``unreadable``: a sentence on each other topic.
    ``suspected_since_ms``: when the checks first suspected a partition that they suspect still. ``unseen``: topics with
    stored verdicts that ``cluster`` does not have, and that are not gone (see `unseen_topics`).
    """

    time_ms: int
    took_s: float
    cluster: AuditedCluster
    readable: AuditedCluster
    answers: Prefiltered
    exposure: Exposure
    unreadable: tuple[str, ...] = ()
    suspected_since_ms: Mapping[Place, int] = field(default_factory=dict)
    unseen: frozenset[str] = frozenset()

    def kept(self, stored: Collection[Place]) -> list[Place]:
        """Return every partition of ``cluster``, and the ``stored`` ones of topics that are ``unseen``."""
        return [*self.cluster.state.partitions, *(place for place in stored if place[0] in self.unseen)]


def unseen_topics(cluster: AuditedCluster, patterns: Sequence[str], stored: Collection[Place]) -> frozenset[str]:
    """Return the topics of ``stored`` partitions that ``cluster`` does not have, and that exist, or may exist.

    A topic is gone where every broker that answers says so: one of them may not have heard of it yet, and this user may
    not be allowed to see it, or its settings. Nobody watches topics that ``patterns`` do not name, or that are not
    compacted.
    """
    missing = {topic for topic, _ in stored} - cluster.state.topics.keys() - cluster.settings.keys()
    watched = sorted(topic for topic in missing if not patterns or is_named(topic, patterns))
    if not watched:
        return frozenset()
    request = describe_cluster(watched)
    answers, _ = cluster.client.ask_all(cluster.state.brokers.keys(), lambda _, broker: broker.ask(request), METADATA)
    seen = {name for answer in answers.values() for name, it in answer.topics.items() if it.error != NO_SUCH_TOPIC}
    return frozenset(seen if answers else watched)


def check(
    client: ClusterClient, topics: Sequence[str], before: WatchChecks | None = None, stored: Collection[Place] = ()
) -> WatchChecks:
    """Ask the brokers. ``before``: the previous checks; after them, topics that do not exist are left out.

    Raises `UsageError` as `describe`, and `HarnessError` for another cluster than before.
    """
    started_s = client.clock.now_s()
    cluster = describe(client, topics, may_miss=before is not None)
    cluster_id = cluster.state.cluster_id
    if before is not None and cluster_id != before.cluster.state.cluster_id:
        raise HarnessError(f"the brokers are of another cluster now: {cluster_id}")
    readable, answers, unreadable = prefilter_readable(cluster)
    exposed, now_ms = exposure(readable, answers), client.clock.time_ms()
    suspected = {(suspicion.topic, suspicion.partition) for suspicion in answers.suspicions}
    since_ms = {place: before.suspected_since_ms.get(place, now_ms) if before else now_ms for place in suspected}
    unseen = unseen_topics(cluster, topics, stored)
    took_s = client.clock.now_s() - started_s
    return WatchChecks(now_ms, took_s, cluster, readable, answers, exposed, unreadable, since_ms, unseen)


def open_transactions(statuses: ReplicaStatuses) -> dict[str, int]:
    """Return the number of transactions by topic that are open on any replica."""
    opened = ((tp, transaction) for (_, tp), status in statuses.replicas.items() for transaction in status.open or ())
    return Counter(topic for topic, *_ in {(*tp, t.producer_id, t.first_offset) for tp, t in opened})


def lso_spread(statuses: ReplicaStatuses) -> dict[str, int]:
    """Return the greatest difference by topic of the last stable offsets of one partition's replicas."""
    spreads: dict[str, int] = {}
    for (topic, _), by_broker in statuses.by_partition.items():
        offsets = [status.last_stable_offset for status in by_broker.values()]
        spreads[topic] = max(spreads.get(topic, 0), max(offsets) - min(offsets))
    return spreads


@dataclass
class WatchStatus:
    """The status of a watch now.

    ``checks``: the last that succeeded. Failures: of the last checks and comparison. ``anomalies``: names that
    comparisons may find; None for a watch that only checks. ``failed``: the partitions whose last comparison failed,
    with the number of partitions that were compared together.
    """

    every_s: float
    checks: WatchChecks
    partitions: Mapping[Place, WatchedPartition] = field(default_factory=dict)
    check_failure: str | None = None
    comparison_failure: str | None = None
    check_failures: int = 0
    comparison_failures: int = 0
    comparisons: int = 0
    anomalies: Sequence[str] | None = None
    failed: Mapping[Place, int] = field(default_factory=dict)

    @property
    def current(self) -> dict[Place, WatchedPartition]:
        """Every partition that exists or may exist, also without a comparison of the topic that has its name now."""
        new, checks = WatchedPartition(self.checks.time_ms), self.checks
        ids = checks.cluster.topic_ids

        def latest(place: Place) -> WatchedPartition:
            partition = self.partitions.get(place, new)
            compared = partition.result.get(TOPIC_ID)
            is_other = compared is not None and ids.get(place[0], compared) != compared
            return WatchedPartition(partition.first_seen_ms) if is_other else partition

        return {place: latest(place) for place in sorted(checks.kept(self.partitions))}

    @property
    def notes(self) -> tuple[str, ...]:
        """Missing answers and suspicions of the checks, each in a sentence."""
        checks = self.checks
        suspicions = (suspicion.explanation for suspicion in checks.answers.suspicions)
        unseen = (f"topic {topic} is not seen any more: its last verdicts remain" for topic in sorted(checks.unseen))
        failed = [f"the last comparison failed of {listed(list(map(name_of, self.failed)))}"] if self.failed else ()
        return (*suspicions, *checks.unreadable, *unseen, *failed, *checks.exposure.notes)


@dataclass
class Checks:
    """The checks of a watch, which take seconds."""

    client: ClusterClient
    topics: Sequence[str]
    report: Callable[[str], None]
    status: WatchStatus

    def check(self) -> None:
        """Check once. A failure is reported once, and the checks before it remain."""
        status = self.status
        try:
            status.checks = check(self.client, self.topics, status.checks, status.partitions)
        except Exception as error:  # noqa: BLE001  (it is in metrics and health, and the next checks may succeed)
            failure = reason_of(error)
            if failure != status.check_failure:
                self.report(f"watch: the checks failed: {failure}; they are repeated")
            status.check_failure, status.check_failures = failure, status.check_failures + 1
        else:
            status.check_failure = None

    def wait(self) -> None:
        """Wait for the next checks, which may suspect partitions, for the time between two of them at most."""
        status, checks = self.status, self.status.checks
        with suppress(WaitTimeoutError):
            self.client.clock.wait_until(lambda: status.checks is not checks, status.every_s, "the next checks")


def problems(status: WatchStatus, now_ms: int) -> list[str]:
    """Return a sentence on each problem of the watch itself; [] where it is healthy."""
    wrong = round_problems(status.check_failure, status.checks.time_ms, status.every_s, now_ms)
    return [*wrong, *([f"the last comparison failed: {failure}"] if (failure := status.comparison_failure) else [])]


def health(status: WatchStatus) -> dict[str, Any]:
    """Return the answer of ``/health`` without the problems."""
    partitions = status.current
    return {
        "cluster_id": status.checks.cluster.state.cluster_id,
        "partitions": len(partitions),
        "verdicts": dict(Counter(_verdict(partition) for partition in partitions.values())),
        "exposure": status.checks.exposure.level.label,
        "notes": list(status.notes),
    }


def families(status: WatchStatus, now_ms: int) -> Iterator[Metric]:
    """Yield every metric (`docs/how-to/watch.md` describes each)."""
    checks, partitions = status.checks, status.current.values()
    oldest_ms = min((partition.compared_ms or partition.first_seen_ms for partition in partitions), default=now_ms)
    gauges: dict[str, tuple[str, float]] = {
        "healthy": ("1 where the health endpoint answers 200.", not problems(status, now_ms)),
        "interval_seconds": ("Time between checks.", status.every_s),
        "check_seconds": ("Duration of the last checks.", checks.took_s),
        "last_check_timestamp_seconds": ("End of the last checks that succeeded.", checks.time_ms / 1000),
        "unreadable_topics": ("Topics that this user may not read.", len(checks.unreadable)),
    }
    if status.anomalies is not None:
        gauges["oldest_comparison_seconds"] = ("Age of the oldest comparison.", max(now_ms - oldest_ms, 0) / 1000)
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(PREFIX + name, text, value=value)
    counters = {"check_failures": "Checks that failed.", "comparison_failures": "Comparisons that failed."}
    for name, text in {**counters, "comparisons": "Partitions that were compared."}.items():
        yield CounterMetricFamily(PREFIX + name, text, value=getattr(status, name))
    verdicts = Counter(map(_verdict, partitions))
    diverged = Counter(name for p in partitions for name in {f["anomaly"] for f in p.result.get("findings", ())})
    undecided = Counter(
        cause for p in partitions if _verdict(p) == UNKNOWN for cause in p.result.get("causes", [NOT_COMPARED])
    )
    exposed = (replica for topic in checks.exposure.topics for replica in topic.replicas if replica.level)
    at_risk = Counter((replica.topic, replica.kind.value, replica.level.label) for replica in exposed)
    anomalies = {HANGING_TRANSACTION, *(status.anomalies or ())}
    suspected, statuses = Counter(it.anomaly for it in checks.answers.suspicions), checks.answers.statuses
    suspicions = {STUCK_LSO: 0, HANGING_TRANSACTION: 0, **suspected}
    labelled: dict[str, tuple[str, str, Mapping[Any, float]]] = {
        "partitions": ("Partitions.", "verdict", {**dict.fromkeys(WORST, 0), **verdicts}),
        "diverged_partitions": ("Diverged partitions.", "anomaly", {**dict.fromkeys(anomalies, 0), **diverged}),
        "undecided_partitions": ("Undecided partitions.", "cause", {NOT_COMPARED: 0, **undecided}),
        "replicas_at_risk": ("Replicas out of the ISR, being added or frozen.", "topic kind level", at_risk),
        "suspicions": ("Suspicions of the checks.", "anomaly", suspicions),
        "open_transactions": ("Transactions open on any replica.", "topic", open_transactions(statuses)),
        "lso_spread_offsets": ("Greatest difference of LSOs of a partition.", "topic", lso_spread(statuses)),
    }
    for name, (text, labels, values) in labelled.items():
        yield gauge(PREFIX + name, text, labels, values)


def partitions_json(status: WatchStatus, now_ms: int) -> tuple[str, str]:
    """Return the latest verdict of each partition, the worst first, with its findings as in ``verdict.json``."""
    content = {"schema": 1, "cluster_id": status.checks.cluster.state.cluster_id}
    return JSON, f"{to_json({**content, 'partitions': list(_rows(status, now_ms))})}\n"


def page(status: WatchStatus, now_ms: int) -> tuple[str, str]:
    """Return the page, which needs no other resource."""
    rows = list(_rows(status, now_ms))
    replicas = [replica for topic in status.checks.exposure.topics for replica in topic.replicas if replica.level]
    return HTML, render(
        "watch.html",
        cluster_id=status.checks.cluster.state.cluster_id,
        checked_s=(now_ms - status.checks.time_ms) / 1000,
        counts=Counter(row["verdict"] for row in rows),
        problems=problems(status, now_ms),
        notes=status.notes,
        replicas=sorted(replicas, key=lambda replica: (-replica.level, replica.topic, replica.partition)),
        rows=rows[:SHOWN],
        omitted=len(rows) - SHOWN,
    )


def _rows(status: WatchStatus, now_ms: int) -> Iterator[dict[str, Any]]:
    """Yield the partitions, the worst verdict first, the oldest comparison first."""

    def rank(item: tuple[Place, WatchedPartition]) -> tuple[int, int]:
        return WORST.index(_verdict(item[1])), item[1].compared_ms

    for place, partition in sorted(status.current.items(), key=rank):
        fallback = {"scenario": name_of(place), "topic": place[0], "partition": place[1], "verdict": UNKNOWN}
        why = "it is not compared: --checks-only" if status.anomalies is None else "it was not compared yet"
        unseen = {"reason": why, "causes": [NOT_COMPARED], "findings": []}
        compared_ms = partition.compared_ms or None
        age_s = None if compared_ms is None else (now_ms - compared_ms) / 1000
        yield {**(partition.result or {**fallback, **unseen}), "compared_ms": compared_ms, "age_s": age_s}


def _verdict(partition: WatchedPartition) -> str:
    return str(partition.result.get("verdict", UNKNOWN))


def reason_of(error: Exception) -> str:
    """Return the first line of an error's message; its type if it has none."""
    return (str(error) or type(error).__name__).strip().splitlines()[0]
