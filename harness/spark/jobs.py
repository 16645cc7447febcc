"""Spark's jobs as users see them: their descriptions, their progress, and the loss of an executor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError, Py4JJavaError

from harness.errors import HarnessError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S: Final = 0.5
_LOST: Final = "Checkpoint block"
"""The beginning of the message of Spark's ``CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND``."""
_described_last: dict[SparkSession, str] = {}


def describe(session: SparkSession, text: str) -> None:
    """Set the description of the jobs that this thread starts."""
    session.sparkContext.setJobDescription(text)
    _described_last[session] = text


@contextmanager
def stages_reported(session: SparkSession, report: Callable[[str, int, int], None]) -> Iterator[None]:
    """Report the running stages while the block runs: the latest description, and their tasks, ended and all."""
    tracker, is_over = session.sparkContext.statusTracker(), threading.Event()

    def poll() -> None:
        # A JVM that ended also ends the job, which says so.
        with suppress(Py4JError, OSError):
            while not is_over.wait(POLL_S):
                stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number))]
                if stages:
                    ended, tasks = (sum(getattr(s, name) for s in stages) for name in ("numCompletedTasks", "numTasks"))
                    report(_described_last.get(session, "check"), ended, tasks)

    thread = threading.Thread(target=poll, name="spark-stages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def raise_if_executor_lost(error: Exception) -> None:
    """Raise `HarnessError` for Spark's error about data that were lost with an executor."""
    if _LOST in str(error):
        raise HarnessError(
            "Spark lost an executor, and with it data that were stored only there: start the command again"
        ) from error


@contextmanager
def failures_reported() -> Iterator[None]:
    """Raise `HarnessError` for failures of Spark's jobs in the block: a JVM that has ended cannot give the reason."""
    try:
        yield
    except Py4JJavaError as error:
        raise_if_executor_lost(error)
        reason = str(error.java_exception).splitlines()[0]
        raise HarnessError(f"a job of Spark failed: {reason}") from error
