"""Spark's jobs: their threads, descriptions and progress, and the loss of an executor."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from harness.errors import HarnessError
from harness.host.clock import ThreadRoutine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.5
_LOST: Final = "Checkpoint block"
"""The beginning of the message of Spark's ``CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND``."""
_described_last: dict["SparkSession", str] = {}


def describe(session: "SparkSession", text: str) -> None:
    """Set the description of the jobs that this thread starts."""
    session.sparkContext.setJobDescription(text)
    _described_last[session] = text


def name_call_sites(session: "SparkSession") -> None:
    """Set the call sites of this thread's plans, so that operators do not walk the stack to find names for a web page.

    Spark stores call sites for each thread of the JVM, and each Python thread has its own thread of the JVM.
    """
    for name in ("callSite.short", "callSite.long"):
        session.sparkContext.setLocalProperty(name, "check")


def threads(session: "SparkSession", count: int) -> ThreadPoolExecutor:
    """Return a pool of threads that may use the session; their jobs have the description of this thread's jobs."""
    description = session.sparkContext.getLocalProperty("spark.job.description")
    return ThreadPoolExecutor(count, initializer=_enter, initargs=(session, description))


def _enter(session: "SparkSession", description: str | None) -> None:
    """Make the session the thread's: in a thread without a session, Spark builds columns with its default settings."""
    jvm: Any = session._jvm  # noqa: SLF001  (as pyspark does for the thread that makes a session)
    jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001
    name_call_sites(session)
    if description is not None:
        describe(session, description)


@contextmanager
def stages_reported(session: "SparkSession", report: Callable[[str, int, int], None]) -> Iterator[None]:
    """Report the running stages while the block runs: the latest description, and their tasks, ended and all."""
    tracker = session.sparkContext.statusTracker()

    def poll() -> None:
        stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
        if stages:
            ended, tasks = (sum(getattr(s, name) for s in stages) for name in ("numCompletedTasks", "numTasks"))
            report(_described_last.get(session, "check"), ended, tasks)

    # A JVM that ended also ends this, and the job, which says so.
    polling = ThreadRoutine(POLL_S, poll, "spark-stages")
    try:
        yield
    finally:
        polling.stop()


def raise_if_executor_lost(error: Exception) -> None:
    """Raise `HarnessError` for Spark's error about data that were lost with an executor."""
    if _LOST in str(error):
        text = "Spark lost an executor, and with it data that were stored only there: start the command again"
        raise HarnessError(text) from error


@contextmanager
def failures_reported() -> Iterator[None]:
    """Raise `HarnessError` for failures of Spark's jobs in the block: a JVM that has ended cannot give the reason."""
    try:
        yield
    except Py4JJavaError as error:
        raise_if_executor_lost(error)
        reason = str(error.java_exception).splitlines()[0]
        raise HarnessError(f"a job of Spark failed: {reason}") from error
