"""``harness audit disk``: folders that were copied from brokers, against each other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.audit.judge import Beside, assemble, is_big, judge_copies
from harness.audit.knowledge import knowledge_of_metadata
from harness.brokers.copies.copies import find_copies
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.compilation import compile_beside
from harness.judge.session import session_of
from harness.run_folder.store import new_run_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.brokers.copies.copies import Copies
    from harness.brokers.segments.tombstones import Tombstones
    from harness.judge.outcome import Progress
    from harness.spark.options import SparkOptions


def audit_disk(
    brokers: Mapping[int, Sequence[Path]],
    topics: Sequence[str],
    progress: Progress,
    spark: SparkOptions,
    tombstones: Tombstones,
) -> dict[str, Any]:
    """Return the verdict on the topics' replicas in these folders, by broker.

    Raises `UsageError` as `find_copies` and `session_of` do.
    """
    run_id = f"audit-{new_run_id()}"
    copies = find_copies(brokers, topics, run_id, tombstones)
    java = find_java()
    if is_big([copies]):
        compile_beside()
    with Workspace(run_id, Path.cwd()) as workspace:
        progress.stage("start Spark")
        with session_of(workspace, java, spark, _of_this_host(copies)) as session:
            progress.stage(f"check {len(copies.replicas)} replicas")
            started_s = time.monotonic()
            rows = judge_copies(session, [copies])
            timings_s = {"check": round(time.monotonic() - started_s, 3)}
            return assemble(copies, rows, timings_s=timings_s, beside=beside_copies(copies))


def beside_copies(copies: Copies) -> Beside:
    """Return what is known beside copies: by their metadata log, where there is one."""
    knowledge = knowledge_of_metadata(copies.metadata)
    target = {"name": "copies", "brokers": sorted({copy.broker for copy in copies.replicas})}
    compared = {copy.place for copy in copies.replicas}
    holders = {place: replicas for place, replicas in knowledge.replicas.items() if place in compared}
    return Beside(target, holders=holders, knowledge=knowledge)


def _of_this_host(copies: Copies) -> list[Path]:
    """Return the folders that executors have to find where they are here."""
    return [copy.folder for copy in copies.replicas if isinstance(copy.folder, Path)]
