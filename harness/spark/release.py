"""What a session needs that goes on for hours: letting go of what its jobs have left, and noticing that it is gone."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDS_S: Final = 2.0
"""A JVM that closed its connections may take a moment to end."""


def has_ended(session: SparkSession) -> bool:
    """Say whether its JVM is gone, after a call of it has failed."""
    try:
        session.sparkContext._gateway.proc.wait(ENDS_S)  # type: ignore[union-attr]  # noqa: SLF001  (pyspark has no such method)
    except subprocess.TimeoutExpired:
        return False
    return True


def release(session: SparkSession) -> None:
    """Drop every table that was cached or checkpointed; nobody reads one of them any more.

    Spark keeps checkpoints until the garbage collector finds that nobody holds them, and sessions hold their plans.
    """
    session.catalog.clearCache()
    for rdd in session.sparkContext._jsc.getPersistentRDDs().values():  # noqa: SLF001  (pyspark has no such method)
        rdd.unpersist()
