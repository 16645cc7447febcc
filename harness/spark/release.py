"""Letting go of what jobs have left in a session, so that it can go on for hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def release(session: SparkSession) -> None:
    """Drop every table that was cached or checkpointed; nobody reads one of them any more.

    Spark keeps checkpoints until the garbage collector finds that nobody holds them, and sessions hold their plans.
    """
    session.catalog.clearCache()
    for rdd in session.sparkContext._jsc.getPersistentRDDs().values():  # noqa: SLF001  (pyspark has no such method)
        rdd.unpersist()
