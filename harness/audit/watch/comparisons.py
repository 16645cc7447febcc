"""The comparisons of a watch, in Spark: suspected partitions first, then by the age of the last comparison."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final

from checkers.anomalies import FINDERS
from harness.audit.live.cluster import describe
from harness.audit.live.compare import ReplicaComparer, answers_of, metadata_log
from harness.audit.live.metadata_log import verify_controllers
from harness.audit.live.request import AuditRequest
from harness.audit.live.spool import partition_sizes, waves_of
from harness.audit.watch.status import TOPIC_ID, Checks, WatchStatus, reason_of
from harness.audit.watch.store import WatchedPartition, WatchStore
from harness.broker_files.copies.selection import listed
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.json_codec import to_json
from harness.judge.finding import Place, by_place, name_of
from harness.judge.progress import Progress
from harness.judge.verdict import CLEAN
from harness.kafka_api.connection import ClusterClient
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import forget, has_ended

MOST_IN_BATCH: Final = 1000
"""Partitions that are compared together: nearly empty ones take about as long as a single one.

If the comparison of several partitions fails, each half of them is compared separately, until the cause is alone.
"""
MS: Final = 1000


@dataclass
class Comparisons:
    """The comparisons of a watch. ``tried_ms``: when a comparison of a partition failed last."""

    request: AuditRequest
    client: ClusterClient
    store: WatchStore
    comparer: ReplicaComparer
    report: Callable[[str], None]
    status: WatchStatus
    tried_ms: dict[Place, int] = field(default_factory=dict)

    def compare_next(self) -> bool:
        """Compare the partitions that are due first; return whether to go on at once."""
        batch: Sequence[Place] = ()
        status = self.status
        try:
            checks, now_ms = status.checks, self.client.clock.time_ms()
            self.store.follow(checks.kept(self.store.partitions), now_ms)
            status.partitions = self.store.partitions
            current = status.current
            self.tried_ms = {place: time_ms for place, time_ms in self.tried_ms.items() if place in current}
            status.failed = {place: count for place, count in status.failed.items() if place in current}
            readable = {place: current[place] for place in checks.readable.state.partitions}
            before_ms = now_ms - int(status.every_s * MS)
            due = in_order(readable, checks.suspected_since_ms, self.tried_ms, before_ms, now_ms)
            if not due:
                return False
            count = status.failed.get(due[0], 2 * MOST_IN_BATCH)
            together = [place for place in due if status.failed.get(place, 2 * MOST_IN_BATCH) == count]
            due = together[: max(count // 2, 1)]
            rate, most_bytes = self.request.rate_limit_bytes_s, self.request.spool_limit_bytes
            most_bytes = most_bytes if rate is None else min(most_bytes, int(rate * status.every_s))
            batch = waves_of(partition_sizes(checks.readable, checks.answers.statuses, due), most_bytes)[0]
            compared = self._compare(batch)
            self._store(compared)
            status.failed = {place: count for place, count in status.failed.items() if place not in batch}
            # A partition that is gone waits for the next checks, which leave it out.
            self.tried_ms |= dict.fromkeys(set(batch) - compared.keys(), self.client.clock.time_ms())
        except Exception as error:  # noqa: BLE001  (it is in metrics and health, and other partitions are compared)
            if self.comparer.session is not None and has_ended(self.comparer.session):
                self.comparer.close()
                forget()
            self.tried_ms |= dict.fromkeys(batch, self.client.clock.time_ms())
            status.failed = {**status.failed, **dict.fromkeys(batch, len(batch))}
            names = f"{listed(list(map(name_of, batch)))}: " if batch else ""
            failure = f"{names}{reason_of(error)}"
            status.comparison_failure, status.comparison_failures = failure, status.comparison_failures + 1
            self.report(f"watch: a comparison failed: {failure}")
            return False
        status.comparison_failure = None
        return True

    def _compare(self, batch: Sequence[Place]) -> dict[Place, WatchedPartition]:
        topics = sorted({topic for topic, _ in batch})
        cluster = describe(self.client, topics, may_miss=True).only(set(batch))
        if not cluster.state.partitions:
            return {}  # deleted meanwhile
        answers = answers_of(self.request, cluster)
        reading = self.comparer.compare(answers, list(cluster.state.partitions))
        after = describe(self.client, topics, may_miss=True)
        verdict = answers.verdict(reading, {}, after)
        if verdict.findings and self.request.controllers:
            log = metadata_log(self.request, after, self.comparer.workspace.path)
            verdict = answers.verdict(reading, {}, after, log)
        findings, now_ms = by_place(verdict.findings), self.client.clock.time_ms()
        compared = {}
        for scenario in verdict.scenarios:
            place = scenario.topic, scenario.partition or 0
            result = {**to_json(scenario), "findings": to_json(findings.get(place, []))}
            if (topic_id := cluster.topic_ids.get(scenario.topic)) is not None:
                result[TOPIC_ID] = topic_id
            compared[place] = WatchedPartition(self.store.partitions[place].first_seen_ms, now_ms, result)
        return compared

    def _store(self, compared: Mapping[Place, WatchedPartition]) -> None:
        before = self.store.partitions
        self.store.put(compared)
        self.status.partitions = self.store.partitions
        self.status.comparisons += len(compared)
        for place, partition in compared.items():
            verdict, reason = partition.result["verdict"], partition.result["reason"]
            if verdict != before[place].result.get("verdict", CLEAN):
                self.report(f"watch: {name_of(place)}: {verdict}: {reason}")


def in_order(
    partitions: Mapping[Place, WatchedPartition],
    suspected_since_ms: Mapping[Place, int],
    tried_ms: Mapping[Place, int],
    before_ms: int,
    now_ms: int,
) -> list[Place]:
    """Return the partitions to compare: those suspected since their comparison, then by the age of the comparison.

    A comparison after ``before_ms`` is not repeated without a suspicion, unless it is later than ``now_ms``: then a
    clock was wrong. A partition whose comparison failed waits as if it had been compared then.
    """

    def rank(place: Place) -> tuple[bool, int]:
        times_ms = partitions[place].compared_ms, tried_ms.get(place, 0)
        last_ms = max((time_ms for time_ms in times_ms if time_ms <= now_ms), default=0)
        return suspected_since_ms.get(place, 0) <= last_ms, last_ms

    ranks = {place: rank(place) for place in partitions}
    due = [place for place, (is_unsuspected, last_ms) in ranks.items() if not is_unsuspected or last_ms <= before_ms]
    return sorted(due, key=ranks.__getitem__)


@contextmanager
def comparisons(
    request: AuditRequest,
    checks: Checks,
    store: WatchStore,
    workspace: Workspace,
    spark: SparkOptions,
    *,
    progress: Progress,
) -> Iterator[Comparisons]:
    """Give the comparisons of a watch. Raises `UsageError` as `find_java` and `verify_controllers`."""
    java, status = find_java(), checks.status
    verify_controllers(checks.client, request.controllers, status.checks.cluster.state.cluster_id)
    status.anomalies = tuple(finder.name for finder in FINDERS.values())
    with closing(ReplicaComparer(workspace, java, spark, progress, outlives_jobs=True)) as comparer:
        yield Comparisons(request, checks.client, store, comparer, checks.report, status)
