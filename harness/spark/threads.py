"""Threads that plan and compute in one session at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def name_call_sites(session: SparkSession) -> None:
    """Keep the operators of every plan that this thread makes from walking the stack, to be named in a user interface.

    Spark keeps that for each thread of the JVM, and pyspark has one there for each of Python's.
    """
    for name in ("callSite.short", "callSite.long"):
        session.sparkContext.setLocalProperty(name, "check")


def threads(session: SparkSession, count: int) -> ThreadPoolExecutor:
    """Return that many threads that may use the session."""
    return ThreadPoolExecutor(count, initializer=_enter, initargs=(session,))


def _enter(session: SparkSession) -> None:
    """Have columns made by the session's settings: in a thread without a session Spark takes its defaults for them."""
    jvm: Any = session._jvm  # noqa: SLF001  (as pyspark does for the thread that makes a session)
    jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001
    name_call_sites(session)
