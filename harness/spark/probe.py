"""What executors need, asked of them before anything is read: this project, and the folders."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

_TASKS_A_CORE = 2


def probe(session: SparkSession, folders: Sequence[Path]) -> None:
    """Have every executor that is there look for the folders. Raises `UsageError` where one does not see some.

    What raises on an executor, such as the import of this project, is raised here as pyspark does it.
    """
    paths = [str(folder.absolute()) for folder in folders]

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield pa.RecordBatch.from_pydict({"missing": unseen(paths)}, pa.schema({"missing": pa.string()}))

    tasks = _TASKS_A_CORE * session.sparkContext.defaultParallelism
    rows = session.range(0, tasks, 1, tasks).mapInArrow(look, "missing string").distinct().collect()
    missing = sorted(row["missing"] for row in rows)
    if missing:
        raise UsageError(
            f"executors do not see {', '.join(missing)}: every folder has to be on all executors, under the same path"
        )


def unseen(paths: Sequence[str]) -> list[str]:
    """Return those of the paths that are not there, on the host where this is called."""
    return [path for path in paths if not os.path.exists(path)]  # noqa: PTH110  (their text goes to executors)
