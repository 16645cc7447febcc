"""One watch from its start to a signal: checks in a thread, comparisons in the main thread, which a signal ends."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

from harness.audit.live.cluster import client_of
from harness.audit.live.request import AuditRequest
from harness.audit.watch import status as watch_status
from harness.audit.watch.store import WatchStore
from harness.errors import EXIT_CLEAN
from harness.host import leftovers
from harness.host.clock import RealClock, ThreadRoutine
from harness.host.workspace import Workspace
from harness.judge.progress import Progress
from harness.report.endpoint import Endpoint
from harness.run_folder.store import new_run_id
from harness.spark.options import SparkOptions


def watch_until_signal(
    request: AuditRequest,
    *,
    every_s: float,
    state: Path,
    listen: tuple[str, int],
    spark: SparkOptions | None,
    progress: Progress,
    report: Callable[[str], None],
) -> int:
    """Watch a cluster until SIGTERM or SIGINT; return the exit code. ``listen``: host and port of the endpoint.

    ``spark``: None for checks alone, which need neither Spark nor Java. Raises `UsageError` where no broker answers,
    and for a state, an address or a Java that cannot be used.
    """
    clock = RealClock()
    client = client_of(request.bootstrap, clock)
    first = watch_status.check(client, request.topics)
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        store = stack.enter_context(closing(WatchStore(state, first.cluster.state.cluster_id)))
        leftovers.remove_abandoned(state)
        workspace = stack.enter_context(Workspace(f"watch-{new_run_id()}", state))
        first = replace(first, unseen=watch_status.unseen_topics(first.cluster, request.topics, store.partitions))
        store.follow(first.kept(store.partitions), first.time_ms)
        status = watch_status.WatchStatus(every_s, first, store.partitions)
        checks = watch_status.Checks(client, request.topics, report, status)
        compared = None
        if spark is not None:
            from harness.audit.watch.comparisons import comparisons  # noqa: PLC0415  (needs Spark, which may be missing)

            compared = stack.enter_context(comparisons(request, checks, store, workspace, spark, progress=progress))
        endpoint = Endpoint(
            *listen,
            lambda: watch_status.families(status, clock.time_ms()),
            lambda: (watch_status.problems(status, clock.time_ms()), watch_status.health(status)),
            {
                "/": lambda: watch_status.page(status, clock.time_ms()),
                "/partitions": lambda: watch_status.partitions_json(status, clock.time_ms()),
            },
        )
        stack.callback(endpoint.close)
        checking = ThreadRoutine(every_s, checks.check, "checks")
        stack.callback(checking.let_end)
        report(f"watch: listens: http://{endpoint.address}/, /partitions, /metrics and /health")
        report(f"watch: {len(first.cluster.state.partitions)} partitions of {first.cluster.state.cluster_id}")
        while True:
            with interruptible_spark(workspace.run_id):
                if compared is None or not compared.compare_next():
                    checks.wait()
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
