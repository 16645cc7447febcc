"""Threads that plan and compute in one session at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from harness.spark.jobs import describe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def name_call_sites(session: SparkSession) -> None:
    """Set the call sites of this thread's plans, so that operators do not walk the stack to find names for a web page.

    Spark stores call sites for each thread of the JVM, and each Python thread has its own thread of the JVM.
    """
    for name in ("callSite.short", "callSite.long"):
        session.sparkContext.setLocalProperty(name, "check")


def threads(session: SparkSession, count: int) -> ThreadPoolExecutor:
    """Return a pool of threads that may use the session; their jobs have the description of this thread's jobs."""
    description = session.sparkContext.getLocalProperty("spark.job.description")
    return ThreadPoolExecutor(count, initializer=_enter, initargs=(session, description))


def _enter(session: SparkSession, description: str | None) -> None:
    """Make the session the thread's: in a thread without a session, Spark builds columns with its default settings."""
    jvm: Any = session._jvm  # noqa: SLF001  (as pyspark does for the thread that makes a session)
    jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001
    name_call_sites(session)
    if description is not None:
        describe(session, description)
