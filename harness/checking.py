"""Spark for one check: beside a run that is still going on, or for a run folder that is there."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from harness import check, leftovers
from harness.java import find_java
from harness.outcome import RunResult
from harness.spark import SparkSpec, start_session
from harness.spark_archive import archive_path
from harness.store import new_run_id
from harness.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path

    from harness.check import Prepared
    from harness.java import Java
    from harness.outcome import Progress
    from harness.store import RunFolder

log = logging.getLogger("harness")


def prepare_beside(workspace: Workspace, folder: RunFolder, java: Java) -> Prepared:
    """Start Spark and plan the checkers of a folder that is still being written."""
    spec = _spark_spec(workspace, folder.path / "spark.log", java)
    session = start_session(spec)
    log.info("Spark is up")
    with ThreadPoolExecutor(1, thread_name_prefix="rehearse") as pool:
        rehearsal = pool.submit(check.rehearse, session, spec.scratch_dir)
        prepared = check.prepare(session, [folder])
        log.info("the checkers are planned")
        rehearsal.result()
        log.info("the workers are rehearsed")
    return prepared


def check_folder(path: Path, progress: Progress) -> RunResult:
    """Judge a stored run again; ``verdict.json`` there is replaced. Raises `UsageError` for a damaged folder."""
    folder, content = check.open_run_folder(path)
    java = find_java()
    run_id = f"check-{new_run_id()}"
    with Workspace(run_id, folder.path) as workspace, ExitStack() as owned:

        def prepared() -> Prepared:
            progress.stage("start Spark")
            session = start_session(_spark_spec(workspace, workspace.path / "spark.log", java))
            owned.callback(leftovers.end_processes, run_id, carrying=leftovers.SPARK_MARKER)
            progress.stage("check")
            return check.prepare(session, [folder])

        said = check.judge_run(prepared, folder, content)
    try:
        folder.write_json(folder.verdict_path, said)
    except OSError as error:
        # The folder may be someone else's, or an archive: the verdict is told all the same.
        log.warning("the verdict is not stored: %s", error)
    return RunResult(folder, said, {})


def _spark_spec(workspace: Workspace, log_path: Path, java: Java) -> SparkSpec:
    archive = archive_path(java)
    flags = (f"-XX:SharedArchiveFile={archive}",) if archive.exists() else ()
    return SparkSpec(workspace.run_id, workspace.path / "spark", log_path, jvm_flags=flags)
