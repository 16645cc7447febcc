"""``harness audit disk``: compares folders that were copied from brokers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.audit.audit_verdict import assemble
from harness.audit.copy_checks import is_big, judge_copies
from harness.broker_files.copies.copies import find_copies
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.sessions import CHECKS
from harness.run_folder.store import new_run_id
from harness.spark.compilation import start_compilation
from harness.spark.workspace_session import session_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.judge.outcome import Progress
    from harness.judge.verdict import Verdict
    from harness.spark.options import SparkOptions


def audit_disk(
    brokers: Mapping[int, Sequence[Path]], topics: Sequence[str], progress: Progress, spark: SparkOptions
) -> Verdict:
    """Return the verdict on the topics' replicas in these folders, by broker.

    Raises `UsageError` as `find_copies` and `session_of` do.
    """
    run_id = f"audit-{new_run_id()}"
    copies = find_copies(brokers, topics, run_id)
    java = find_java()
    if is_big([copies]):
        start_compilation()
    with Workspace(run_id, Path.cwd()) as workspace:
        progress.stage("start Spark")
        # Executors need the local folders at the same path.
        folders = [copy.folder for copy in copies.replicas if isinstance(copy.folder, Path)]
        with session_of(workspace, java, spark, folders, CHECKS) as session:
            progress.stage(f"check {len(copies.replicas)} replicas")
            started_s = time.monotonic()
            rows = judge_copies(session, [copies])
            return assemble(copies, rows, timings_s={"check": round(time.monotonic() - started_s, 3)})
