"""Makes the class archive during the first command that misses it, in a process that outlives that command.

The archive should be there for the second command, so it is made at the priority of the first. The compilation after
that is needed by big audits only: it runs at idle priority. The process has a work directory with itself as the
owner, and a time limit: it is killed after `LIMIT_S`, and its keeper cleans up what it started. After any error, the
command goes on without the archive. ``COMPACTION_HARNESS_BACKGROUND=0`` prevents the start.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from harness.errors import HarnessError
from harness.host.cache import cache_root
from harness.host.java import find_java
from harness.spark.class_archive import archive_path, failure_path, is_being_made, make_archive
from harness.spark.compilation import start_beside
from harness.spark.spec import SparkJobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.host.java import Java

SWITCH = "COMPACTION_HARNESS_BACKGROUND"
AUTOGROUP = Path("/proc/self/autogroup")
LIMIT_S = 900
NEEDED_DISK_BYTES = 1 << 30
NEEDED_MEMORY_BYTES = 2 << 30
"""For another Spark, in addition to the brokers and the Spark of a run."""


def existing_archive(java: Java) -> Path | None:
    """Return the archive, None where there is none."""
    archive = archive_path(java)
    return archive if archive.exists() else None


def find_archive(java: Java, jobs: SparkJobs) -> Path | None:
    """Return the archive; where there is none, start making it for later commands, if possible."""
    archive = existing_archive(java)
    if archive is None and why_not_started(archive_path(java)) is None:
        start_beside(__name__, jobs.rehearsal, jobs.workers, cwd=cache_root())
    return archive


def why_not_started(archive: Path) -> str | None:
    """Return why this archive is not made now, None where nothing prevents it."""
    root, failed = cache_root(), failure_path(archive)
    with suppress(OSError):
        root.mkdir(parents=True, exist_ok=True)
    hindrances: tuple[tuple[str, Callable[[], bool]], ...] = (
        (f"{SWITCH} is 0", lambda: os.environ.get(SWITCH) == "0"),
        (f"{root} cannot be written", lambda: not os.access(root, os.W_OK)),
        (f"it could not be made ({failed} says why; remove that to try again)", failed.exists),
        ("it is being made", is_being_made),
        (
            f"less than {NEEDED_DISK_BYTES >> 30} GiB are free in {root}",
            lambda: shutil.disk_usage(root).free < NEEDED_DISK_BYTES,
        ),
        (
            f"less than {NEEDED_MEMORY_BYTES >> 30} GiB of memory are available",
            lambda: bool(psutil.virtual_memory().available < NEEDED_MEMORY_BYTES),
        ),
    )
    return next((why for why, holds in hindrances if holds()), None)


def _give_way() -> None:
    """Give this process the lowest priority."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # With autogroups (sched(7)), a session competes with others as a whole, however idle its processes are.
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            AUTOGROUP.write_text("19")


def main(jobs: SparkJobs) -> None:
    """Make the archive, then compile loops. Prints nothing: `harness doctor` reports the result."""
    signal.alarm(LIMIT_S)
    psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    with suppress(HarnessError, OSError):
        make_archive(find_java(), jobs, wait_s=0.0)
    _give_way()
    # Compiling is slow as well, and the first big audit needs it.
    import_module("harness.spark.compilation").compile_all()


if __name__ == "__main__":
    main(SparkJobs(*sys.argv[1:]))
