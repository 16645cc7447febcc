"""Spark for one check: during a run, or for an existing run folder."""

from __future__ import annotations

import logging
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from harness.errors import HarnessError, UsageError
from harness.host import leftovers
from harness.judge.archive import WORKERS
from harness.judge.background import existing_archive, find_archive
from harness.spark.spec import SMALL_DATA, SparkSpec, launch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from harness.host.java import Java
    from harness.host.workspace import Workspace
    from harness.judge.check import Prepared
    from harness.run_folder.store import RunFolder
    from harness.spark.options import SparkOptions

log = logging.getLogger("harness")

START_LIMIT_S = 300.0
"""For a session to start, and for a first task on each executor: a busy cluster may delay both."""
STOP_LIMIT_S = 10.0

_SHOWN_LINES = 3
_OF_PYTHON = re.compile(r"^\s*(\w+(?:Error|Exception): .+)$", re.MULTILINE)
_LOGGED = re.compile(r" ERROR \w+: (.+)$", re.MULTILINE)
_OF_JAVA = re.compile(r"((?:\w+\.)+\w+(?:Error|Exception): .+)$", re.MULTILINE)


def prepare_beside(workspace: Workspace, folder: RunFolder, java: Java, spark: SparkOptions) -> Prepared:
    """Start Spark and plan the checkers of a folder that is still being written. Raises as `session_of` does."""
    spec = _spark_spec(workspace, folder.path / "spark.log", spark, java, existing_archive)
    session = _start(spec, [folder.path])
    from harness.judge import check  # noqa: PLC0415  (imported with the session)

    log.info("Spark is up")
    with ThreadPoolExecutor(1, thread_name_prefix="rehearse") as pool:
        rehearsal = pool.submit(check.rehearse, session, spec.scratch_dir)
        prepared = check.prepare(session, [folder])
        log.info("the checkers are planned")
        rehearsal.result()
        log.info("the workers are rehearsed")
    return prepared


@contextmanager
def session_of(
    workspace: Workspace,
    java: Java,
    spark: SparkOptions,
    folders: Sequence[Path],
    *,
    settings: Mapping[str, str] = SMALL_DATA,
    outlives_jobs: bool = False,
) -> Iterator[SparkSession]:
    """Start a session that writes in the workspace only, and end its JVM.

    ``outlives_jobs``: for one job after another, and not for one alone (`SparkSpec`).

    Raises `UsageError` where it does not start within `START_LIMIT_S`, or its executors cannot run it: they
    lack this project, or do not see the ``folders``.
    """
    spec = _spark_spec(workspace, workspace.path / "spark.log", spark, java, find_archive)
    session = _start(replace(spec, settings=settings, outlives_jobs=outlives_jobs), folders)
    try:
        yield session
    finally:
        if spark.has_executors:
            # To release the cluster's resources: executors whose driver just disappears may stay registered.
            with _jvm_ends_after(workspace.run_id, STOP_LIMIT_S), suppress(Exception):
                session.stop()
        leftovers.end_processes(workspace.run_id, carrying=leftovers.SPARK_MARKER)


def _spark_spec(
    workspace: Workspace,
    log_path: Path,
    spark: SparkOptions,
    java: Java,
    archive_for: Callable[[Java], Path | None],
) -> SparkSpec:
    # An archive is valid for the class path of a JVM that is started without spark-submit.
    archive = archive_for(java) if spark.is_one_plain_jvm else None
    flags = (f"-XX:SharedArchiveFile={archive}",) if archive else ()
    return SparkSpec(
        workspace.run_id, workspace.path / "spark", log_path, java.path, spark, jvm_flags=flags, workers=WORKERS
    )


def _start(spec: SparkSpec, folders: Sequence[Path]) -> SparkSession:
    with _jvm_ends_after(spec.run_id, START_LIMIT_S) as is_late:
        problem = f"Spark does not start on {spec.options.master}"
        try:
            launched = launch(spec)
            # The checkers, pyspark with them, and what pyspark's first mapInArrow imports: while the JVM starts.
            for name in ("harness.judge.check", "pandas"):
                import_module(name)
            from harness.spark.session import start_session  # noqa: PLC0415

            session = start_session(spec, launched)
            if spec.options.has_executors:
                from harness.spark.probe import probe  # noqa: PLC0415

                problem = (
                    f"executors on {spec.options.master} cannot run this (each needs its wheel, in a Python like this)"
                )
                probe(session, folders)
        except HarnessError:
            raise
        except Exception as error:
            why = (
                f"not within {START_LIMIT_S:.0f} s; are there workers with room for its executors?"
                if is_late.is_set()
                else _cause(error, spec.log_path)
            )
            raise UsageError(f"{problem}: {why}") from error
    return session


@contextmanager
def _jvm_ends_after(run_id: str, limit_s: float) -> Iterator[threading.Event]:
    """End the driver's JVM where the block takes longer: waits for it then raise. Yields an event that is set then."""
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


def _cause(error: Exception, log_path: Path) -> str:
    """Return the most specific error message: of a worker's Python, of the log, or of a Java exception."""
    message, log = str(error), log_path.read_text(errors="replace") if log_path.exists() else ""
    for text, pattern, index in (
        (message, _OF_PYTHON, -1),
        (log, _LOGGED, 0),
        (log, _OF_JAVA, -1),
        (message, _OF_JAVA, -1),
    ):
        if matches := pattern.findall(text):
            return str(matches[index])
    return "; ".join((log or message).splitlines()[-_SHOWN_LINES:]) or type(error).__name__
