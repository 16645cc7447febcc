"""Threads that plan and compute in one session at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def name_call_sites(session: SparkSession) -> None:
    """Set the call sites of this thread's plans, so that operators do not walk the stack to find names for a web page.

    Spark stores call sites for each thread of the JVM, and each Python thread has its own thread of the JVM.
    """
    for name in ("callSite.short", "callSite.long"):
        session.sparkContext.setLocalProperty(name, "check")


def threads(session: SparkSession, count: int) -> ThreadPoolExecutor:
    """Return a pool of threads that may use the session."""
    return ThreadPoolExecutor(count, initializer=_enter, initargs=(session,))


def _enter(session: SparkSession) -> None:
    """Make the session the thread's: in a thread without a session, Spark builds columns with its default settings."""
    jvm: Any = session._jvm  # noqa: SLF001  (as pyspark does for the thread that makes a session)
    jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001
    name_call_sites(session)
