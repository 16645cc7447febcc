"""``harness check``: judge a stored run again."""

import logging
from contextlib import ExitStack
from pathlib import Path

from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.progress import Progress
from harness.judge.sessions import CHECKS
from harness.judge.verdict import RunResult
from harness.report.pictures.ahead import drawing_ahead, write_if_possible
from harness.run_folder import inventory
from harness.run_folder.manifest import open_run_folder
from harness.run_folder.store import COMPLETE, new_run_id
from harness.spark.options import SparkOptions
from harness.spark.workspace_session import session_of

log = logging.getLogger("harness")


def check_folder(path: Path, progress: Progress, spark: SparkOptions, *, partial: bool = False) -> RunResult:
    """Judge a run again, and replace its verdict; ``partial``: despite missing evidence. Raises `UsageError`."""
    folder, content = open_run_folder(path)
    run_id = f"check-{new_run_id()}"
    with ExitStack() as owned:
        differences = owned.enter_context(inventory.comparing(folder, content, partial=partial))
        drawn = owned.enter_context(drawing_ahead(folder))
        session, results = None, None
        if content["status"] == COMPLETE:
            progress.stage("start Spark")
            workspace = owned.enter_context(Workspace(run_id, folder.path))
            session = owned.enter_context(session_of(workspace, find_java(), spark, [folder.path], CHECKS))
        from harness.judge import check  # noqa: PLC0415  (imported with the session)

        if session is not None:
            sound = inventory.without(folder, differences())
            progress.stage("check")
            results = check.check_folder(session, sound)
        verdict = check.judge_run(results, folder, content, differences())
    try:
        check.store(folder, verdict, results)
    except OSError as error:
        # The folder may be someone else's, or an archive: the verdict is returned all the same.
        log.warning("the verdict is not stored: %s", error)
    else:
        write_if_possible(folder, verdict, drawn())
    return RunResult(folder, verdict, {})
