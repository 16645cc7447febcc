"""The Spark jobs of a check, and their preparation while a run is in progress.

Importing this module is fast: the checkers and pyspark are imported while Spark's JVM starts.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from harness.host.java import Java
from harness.host.workspace import Workspace
from harness.run_folder.store import RunFolder
from harness.spark.background import existing_archive
from harness.spark.launch import SparkJobs
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import spec_for, start

if TYPE_CHECKING:
    from harness.judge.check import Prepared

CHECKS: Final = SparkJobs("harness.judge.check:check_without_data", workers="checkers.workers")

log = logging.getLogger("harness")


def prepare_beside(workspace: Workspace, folder: RunFolder, java: Java, spark: SparkOptions) -> "Prepared":
    """Start Spark and plan the checkers of a folder that is still being written. Raises as `session_of` does."""
    spec = spec_for(workspace, java, spark, CHECKS, log_path=folder.path / "spark.log", archive=existing_archive(java))
    session = start(spec, CHECKS, [folder.path])
    from harness.judge import check  # noqa: PLC0415  (imported with the session)

    log.info("Spark is up")
    with ThreadPoolExecutor(1, thread_name_prefix="rehearse") as pool:
        rehearsal = pool.submit(check.rehearse, session, spec.scratch_dir)
        prepared = check.prepare(session, [folder])
        log.info("the checkers are planned")
        rehearsal.result()
        log.info("the workers are rehearsed")
    return prepared
