"""Preparations in processes that outlive the command: Spark's class archive, and compiled loops over bytes.

The first command without a class archive starts a process that makes it. The archive should exist for the second
command, so it is made at the priority of the first. Only big audits need compiled loops, so they are compiled at idle
priority. The process has a work directory with itself as the owner, and is killed after `LIMIT_S`; then its keeper
removes its files. After any error, commands continue without the archive. ``COMPACTION_HARNESS_BACKGROUND=0`` prevents
the start.

An audit starts the compilation alone, while Spark starts or a cluster is read: it takes a processor for seconds, and
workers that need a loop meanwhile wait for it (`harness.broker_files.segments.jit`). Little data needs no such loop.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from harness.errors import HarnessError
from harness.host.cache import cache_root, compiled_folder
from harness.host.java import Java, find_java
from harness.spark.class_archive import archive_path, failure_path, is_being_made, make_archive
from harness.spark.launch import SparkJobs

SWITCH = "COMPACTION_HARNESS_BACKGROUND"
AUTOGROUP = Path("/proc/self/autogroup")
LIMIT_S = 900
NEEDED_DISK_BYTES = 1 << 30
NEEDED_MEMORY_BYTES = 2 << 30
"""For another Spark, in addition to the brokers and the Spark of a run."""

_LAST_COMPILED = "*/fields.walk_headers-*.nbi"
"""The file of the last loop in numba's cache; if it is of another version, workers compile again."""


def existing_archive(java: Java) -> Path | None:
    """Return the archive, None if it does not exist."""
    archive = archive_path(java)
    return archive if archive.exists() else None


def find_archive(java: Java, jobs: SparkJobs) -> Path | None:
    """Return the archive; if it does not exist, start making it for later commands, if possible."""
    archive = existing_archive(java)
    if archive is None and why_not_started(archive_path(java)) is None:
        _start(jobs.rehearsal, jobs.workers, cwd=cache_root())
    return archive


def start_compilation() -> None:
    """Start a process that compiles the loops, unless all are compiled."""
    if not any(compiled_folder().glob(_LAST_COMPILED)):
        _start()


def _start(*arguments: str, cwd: Path | None = None) -> None:
    """Run this module in a process that outlives this one and prints nothing, if a process can be started."""
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
            start_new_session=True,
        )


def why_not_started(archive: Path) -> str | None:
    """Return why this archive is not made now, None if nothing prevents it."""
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


def compile_all() -> None:
    """Compile the loops that are not compiled yet, for this user and processor."""
    import harness.broker_files.segments.fields  # noqa: F401, PLC0415  (this, and `kernels`, compile when imported)


def main(jobs: SparkJobs) -> None:
    """Make the archive, then compile loops. Prints nothing: `harness doctor` reports the result."""
    signal.alarm(LIMIT_S)
    psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    with suppress(HarnessError, OSError):
        make_archive(find_java(), jobs, wait_s=0.0)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # With autogroups (sched(7)), a session competes with others as a whole, however idle its processes are.
    if os.getsid(0) == os.getpid():
        with suppress(OSError):
            AUTOGROUP.write_text("19")
    compile_all()


if __name__ == "__main__":
    if arguments := sys.argv[1:]:
        main(SparkJobs(*arguments))
    else:
        compile_all()
