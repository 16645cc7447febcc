"""One watch from its start to a signal: checks in a thread, comparisons in the main thread, which a signal ends."""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from harness.audit.live.cluster import client_of, describe
from harness.audit.live.compare import AuditRequest, ReplicaComparer, answers_of, metadata_log
from harness.audit.live.metadata_log import verify_controllers
from harness.audit.live.spool import partition_sizes, waves_of
from harness.audit.watch.status import WatchStatus, check, families, health, page, partitions_json, problems
from harness.audit.watch.store import WatchedPartition, WatchStore
from harness.broker_files.copies.selection import listed
from harness.errors import EXIT_CLEAN, WaitTimeoutError
from harness.host import leftovers
from harness.host.clock import RealClock, ThreadRoutine
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.json_codec import to_json
from harness.judge.finding import Place, by_place, name_of
from harness.judge.progress import Progress
from harness.judge.verdict import CLEAN
from harness.kafka_api.connection import ClusterClient
from harness.report.endpoint import Endpoint
from harness.run_folder.store import new_run_id
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import forget, has_ended

MOST_IN_BATCH: Final = 1000
"""Partitions that are compared together: nearly empty ones take about as long as a single one."""
MS: Final = 1000


@dataclass
class Watch:
    """A watch. ``tried_ms``: when a comparison of a partition failed last."""

    request: AuditRequest
    client: ClusterClient
    store: WatchStore
    comparer: ReplicaComparer
    report: Callable[[str], None]
    status: WatchStatus
    tried_ms: dict[Place, int] = field(default_factory=dict)

    def check(self) -> None:
        """Check once. A failure is reported once, and the checks before it remain."""
        status = self.status
        try:
            status.checks = check(self.client, self.request.topics, status.checks)
        except Exception as error:  # noqa: BLE001  (it is in metrics and health, and the next checks may succeed)
            failure = _text(error)
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

    def compare_next(self) -> bool:
        """Compare the partitions that are due first; return whether to go on at once."""
        batch: Sequence[Place] = ()
        status = self.status
        try:
            checks, now_ms = status.checks, self.client.clock.time_ms()
            self.store.follow(checks.cluster.state.partitions.keys(), now_ms)
            status.partitions = self.store.partitions
            readable = {p: status.partitions[p] for p in checks.readable.state.partitions}
            before_ms = now_ms - int(status.every_s * MS)
            due = in_order(readable, checks.suspected_since_ms, self.tried_ms, before_ms)[:MOST_IN_BATCH]
            if not due:
                return False
            rate, most_bytes = self.request.rate_limit_bytes_s, self.request.spool_limit_bytes
            most_bytes = most_bytes if rate is None else min(most_bytes, int(rate * status.every_s))
            batch = waves_of(partition_sizes(checks.readable, checks.answers.statuses, due), most_bytes)[0]
            self._store(self._compare(batch))
        except Exception as error:  # noqa: BLE001  (it is in metrics and health, and other partitions are compared)
            if self.comparer.session is not None and has_ended(self.comparer.session):
                self.comparer.close()
                forget()
            self.tried_ms |= dict.fromkeys(batch, self.client.clock.time_ms())
            names = f"{listed(list(map(name_of, batch)))}: " if batch else ""
            failure = f"{names}{_text(error)}"
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
) -> list[Place]:
    """Return the partitions to compare: those suspected since their comparison, then by the age of the comparison.

    A comparison after ``before_ms`` is not repeated without a suspicion. A partition whose comparison failed waits as
    if it had been compared then.
    """

    def rank(place: Place) -> tuple[bool, int]:
        last_ms = max(partitions[place].compared_ms, tried_ms.get(place, 0))
        return suspected_since_ms.get(place, 0) <= last_ms, last_ms

    ranks = {place: rank(place) for place in partitions}
    due = [place for place, (is_unsuspected, last_ms) in ranks.items() if not is_unsuspected or last_ms <= before_ms]
    return sorted(due, key=ranks.__getitem__)


def watch_until_signal(
    request: AuditRequest,
    *,
    every_s: float,
    state: Path,
    listen: tuple[str, int],
    spark: SparkOptions,
    progress: Progress,
    report: Callable[[str], None],
) -> int:
    """Watch a cluster until SIGTERM or SIGINT; return the exit code. ``listen``: host and port of the endpoint.

    Raises `UsageError` where no broker answers, and for a state, an address or a Java that cannot be used.
    """
    clock, java = RealClock(), find_java()
    client = client_of(request.bootstrap, clock)
    checks = check(client, request.topics)
    verify_controllers(client, request.controllers, checks.cluster.state.cluster_id)
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        store = stack.enter_context(closing(WatchStore(state, checks.cluster.state.cluster_id)))
        leftovers.remove_abandoned(state)
        workspace = stack.enter_context(Workspace(f"watch-{new_run_id()}", state))
        comparer = ReplicaComparer(workspace, java, spark, progress, outlives_jobs=True)
        stack.enter_context(closing(comparer))
        store.follow(checks.cluster.state.partitions.keys(), checks.time_ms)
        status = WatchStatus(every_s, checks, store.partitions)
        watch = Watch(request, client, store, comparer, report, status)
        endpoint = Endpoint(
            *listen,
            lambda: families(status, clock.time_ms()),
            lambda: (problems(status, clock.time_ms()), health(status)),
            {
                "/": lambda: page(status, clock.time_ms()),
                "/partitions": lambda: partitions_json(status, clock.time_ms()),
            },
        )
        stack.callback(endpoint.close)
        checking = ThreadRoutine(every_s, watch.check, "checks")
        stack.callback(checking.let_end)
        report(f"watch: listens: http://{endpoint.address}/, /partitions, /metrics and /health")
        report(f"watch: {len(checks.cluster.state.partitions)} partitions of {checks.cluster.state.cluster_id}")
        while True:
            with interruptible_spark(workspace.run_id):
                if not watch.compare_next():
                    watch.wait()
    report("watch: ended")
    return EXIT_CLEAN


@contextmanager
def interruptible_spark(run_id: str) -> Iterator[None]:
    """Let the first SIGTERM or SIGINT end Spark's JVM, whose jobs may take long, and raise KeyboardInterrupt.

    Spark sets a handler of its own when it starts, so this is for a block that is repeated.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        leftovers.end_processes(run_id, carrying=leftovers.SPARK_MARKER)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def _text(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
