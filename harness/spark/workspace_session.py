"""Spark sessions that belong to a workspace: their JVM starts within a time limit, and ends with the block."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError, UsageError
from harness.host import leftovers
from harness.host.java import Java
from harness.host.workspace import Workspace
from harness.spark.background import find_archive
from harness.spark.launch import SparkJobs, SparkSpec, launch
from harness.spark.options import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


START_LIMIT_S = 300.0
"""For a session to start, and for a first task on each executor: a busy cluster may delay both."""
STOP_LIMIT_S = 10.0
ENDS_S = 2.0
"""A JVM that closed its connections may take a moment to end."""
_OF_PYTHON = re.compile(r"^\s*(\w+(?:Error|Exception): .+)$", re.MULTILINE)
_LOGGED = re.compile(r" ERROR \w+: (.+)$", re.MULTILINE)
_OF_JAVA = re.compile(r"((?:\w+\.)+\w+(?:Error|Exception): .+)$", re.MULTILINE)


@contextmanager
def session_of(
    workspace: Workspace,
    java: Java,
    spark: SparkOptions,
    folders: Sequence[Path],
    jobs: SparkJobs,
    *,
    outlives_jobs: bool = False,
) -> Iterator["SparkSession"]:
    """Start a session that writes to the workspace only, and end its JVM after the block.

    ``outlives_jobs``: whether the session runs many jobs (`SparkSpec`). Raises `UsageError` where the session does not
    start within `START_LIMIT_S`, or its executors do not have this project, or do not see the ``folders``.
    """
    archive = find_archive(java, jobs) if spark.is_one_plain_jvm else None
    spec = spec_for(workspace, java, spark, jobs, log_path=workspace.path / "spark.log", archive=archive)
    session = start(replace(spec, outlives_jobs=outlives_jobs), jobs, folders)
    try:
        yield session
    finally:
        if spark.has_executors or "spark.local.dir" in spark.conf or "SPARK_LOCAL_DIRS" in os.environ:
            # Executors whose driver just disappears may stay registered, and its blocks stay in a user's folder.
            with _jvm_ends_after(workspace.run_id, STOP_LIMIT_S), suppress(Exception):
                session.stop()
        leftovers.end_processes(workspace.run_id, carrying=leftovers.SPARK_MARKER)


def spec_for(
    workspace: Workspace, java: Java, spark: SparkOptions, jobs: SparkJobs, *, log_path: Path, archive: Path | None
) -> SparkSpec:
    """Return the specification of a session in the workspace, with this class archive."""
    # An archive is valid for the class path of a JVM that is started without spark-submit.
    flags = (f"-XX:SharedArchiveFile={archive}",) if archive and spark.is_one_plain_jvm else ()
    return SparkSpec(
        workspace.run_id, workspace.path / "spark", log_path, java.path, spark, jvm_flags=flags, workers=jobs.workers
    )


def start(spec: SparkSpec, jobs: SparkJobs, folders: Sequence[Path]) -> "SparkSession":
    """Start a session whose JVM ends with the workspace's processes. Raises `UsageError` as `session_of` does."""
    with _jvm_ends_after(spec.run_id, START_LIMIT_S) as is_late:
        problem = f"Spark does not start on {spec.options.master}"
        try:
            launched = launch(spec)
            # While the JVM starts, import the jobs, pyspark with them, and what pyspark's first mapInArrow imports.
            for name in (jobs.rehearsal.partition(":")[0], "pandas"):
                import_module(name)
            from harness.spark.session import start_session  # noqa: PLC0415

            session = start_session(spec, launched)
            if spec.options.has_executors:
                needs = "each needs its wheel, in a Python like this"
                problem = f"executors on {spec.options.master} cannot run this ({needs})"
                probe(session, folders)
        except HarnessError:
            raise
        except Exception as error:
            why = f"not within {START_LIMIT_S:.0f} s; do its workers have room for the executors?"
            raise UsageError(f"{problem}: {why if is_late.is_set() else _cause(error, spec.log_path)}") from error
    return session


@contextmanager
def _jvm_ends_after(run_id: str, limit_s: float) -> Iterator[threading.Event]:
    """End the driver's JVM if the block takes longer, so that calls of it raise; yield an event that is set then."""
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        leftovers.end_processes(run_id, carrying=leftovers.SPARK_MARKER)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield is_late
    finally:
        timer.cancel()


def probe(session: "SparkSession", folders: Sequence[Path]) -> None:
    """Check that every executor sees the folders and can import this project. Raises `UsageError` for unseen folders.

    An exception on an executor, such as a failed import, is raised here as pyspark raises it.
    """
    import pyarrow as pa  # noqa: PLC0415  (only clusters are probed)

    paths = [str(folder.absolute()) for folder in folders]

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                missing = [path for path in paths if not os.path.exists(path)]  # noqa: PTH110  (texts go to executors)
                yield pa.RecordBatch.from_pydict({"missing": missing}, pa.schema({"missing": pa.string()}))

    tasks = 2 * session.sparkContext.defaultParallelism
    rows = session.range(0, tasks, 1, tasks).mapInArrow(look, "missing string").distinct().collect()
    if missing := sorted(row["missing"] for row in rows):
        raise UsageError(
            f"executors do not see {', '.join(missing)}: every folder has to be on all executors, under the same path"
        )


def release(session: "SparkSession") -> None:
    """Drop every table that a long session has cached or checkpointed: no job reads these tables again.

    Spark keeps checkpoints until their objects are collected as garbage, and sessions hold their plans.
    """
    session.catalog.clearCache()
    for rdd in session.sparkContext._jsc.getPersistentRDDs().values():  # noqa: SLF001  (pyspark has no such method)
        rdd.unpersist()


def has_ended(session: "SparkSession") -> bool:
    """Return whether the session's JVM has ended, after a call of it has failed."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001  (pyspark has no such method)
    with suppress(subprocess.TimeoutExpired):
        gateway.proc.wait(ENDS_S)
        return True
    return False


def forget() -> None:
    """Let pyspark start another session in this process, after the JVM of the last one has ended."""
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001


def _cause(error: Exception, log_path: Path) -> str:
    """Return the most specific error message: of a worker's Python, of the log, or of a Java exception."""
    message, log = str(error), log_path.read_text(errors="replace") if log_path.exists() else ""
    places = ((message, _OF_PYTHON, -1), (log, _LOGGED, 0), (log, _OF_JAVA, -1), (message, _OF_JAVA, -1))
    for text, pattern, index in places:
        if matches := pattern.findall(text):
            return str(matches[index])
    return "; ".join((log or message).splitlines()[-3:]) or type(error).__name__
