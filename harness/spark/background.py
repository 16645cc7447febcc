"""Preparations in processes that outlive the command: Spark's class archive, and compiled loops over bytes.

With an archive of Spark's classes (JEP 350, dynamic class-data sharing) a session starts in half the time, which leaves
the processors to the brokers that boot meanwhile. Without an archive, or with another JVM's, everything works the same,
but slower. The JVM accepts an archive only with the jars, Java and module flags of its creation. The archive's name has
a digest of all three: when one of them changes, another archive is made, and the former archive is removed.

The first command without an archive starts a process that makes it. The archive should exist for the second command, so
it is made at the priority of the first. Only big audits need compiled loops, so they are compiled at idle priority. The
process has a work directory with itself as the owner, and is killed after `LIMIT_S`; then its keeper removes its files.
After any error, commands continue without the archive. ``COMPACTION_HARNESS_BACKGROUND=0`` prevents the start.

An audit starts the compilation alone, while Spark starts or a cluster is read: it takes a processor for seconds, and
workers that need a loop meanwhile wait for it (`harness.broker_files.segments.jit`). Little data needs no such loop.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

import psutil

from harness.errors import HarnessError
from harness.host.cache import alone_in, cache_root, compiled_folder
from harness.host.java import Java, find_java
from harness.host.workspace import Workspace
from harness.run_folder.store import new_run_id
from harness.spark.launch import HEAP_FLAGS, JVM_FLAGS, MODULE_FLAGS, SparkJobs, SparkSpec, spark_home

SWITCH = "COMPACTION_HARNESS_BACKGROUND"
AUTOGROUP = Path("/proc/self/autogroup")
LIMIT_S = 900
NEEDED_DISK_BYTES = 1 << 30
NEEDED_MEMORY_BYTES = 2 << 30
"""For another Spark, in addition to the brokers and the Spark of a run."""

_LAST_COMPILED = "*/fields.walk_headers-*.nbi"
"""The file of the last loop in numba's cache; if it is of another version, workers compile again."""
DUMP_TIMEOUT_S = 300.0
"""For a JVM with the lowest priority to write some 150 MB."""
DRAFTS = "spark-drafts"
"""The folder next to the archives in which they are written; the writer holds a lock on it."""


def archive_path(java: Java) -> Path:
    """Return the path of the archive for this Spark and this Java, whether it exists or not."""
    home = spark_home()
    real = java.path.resolve()
    state = [java.version_text, *JVM_FLAGS, *HEAP_FLAGS, *MODULE_FLAGS]
    # The JVM compares jars by size and modification time, and its own archive by content.
    for file in (*sorted((home / "jars").glob("*.jar")), real.parent.parent / "lib" / "server" / "classes.jsa"):
        if file.exists():
            at = file.stat()
            state += [file.name, str(at.st_size), str(at.st_mtime_ns)]
    place = _digest(os.fspath(home), os.fspath(real))
    return cache_root() / f"spark-{place}-{_digest(*state)}.jsa"


def failure_path(archive: Path) -> Path:
    """Return the file with the error of a failed attempt, which prevents another attempt in every run."""
    return archive.with_suffix(".failed")


def is_being_made() -> bool:
    """Return whether a process of this user is making an archive now."""
    with alone_in(cache_root() / DRAFTS, wait_s=0.0) as is_mine:
        return not is_mine


def make_archive(java: Java, jobs: SparkJobs, *, wait_s: float) -> Path | None:
    """Rehearse the jobs in a JVM that writes its archive when it ends; return the archive.

    Returns at once if the archive exists. If another process is making it, waits for that process, and returns None
    after ``wait_s``. Temporary files are in a work directory, except the draft, which has to be on the archives' file
    system; the next attempt removes an interrupted draft. Raises `HarnessError` if the JVM writes no archive, and
    records the error.
    """
    path = archive_path(java)
    if path.exists():
        return path
    drafts = path.parent / DRAFTS
    with alone_in(drafts, wait_s) as is_mine:
        if path.exists():
            return path
        if not is_mine:
            return None
        for draft in drafts.iterdir():
            draft.unlink()
        draft = drafts / path.name
        _write_archive(java, jobs, draft)
        draft.replace(path)
        # Remove the archives of the same places in another state. JVMs that have such an archive open keep it.
        for old in path.parent.glob(f"{path.name.rpartition('-')[0]}-*"):
            if old.stem != path.stem:
                old.unlink(missing_ok=True)
        failure_path(path).unlink(missing_ok=True)
    return path


def _write_archive(java: Java, jobs: SparkJobs, draft: Path) -> None:
    from harness.spark.session import start_session  # noqa: PLC0415  (imports pyspark, which `archive_path` does not need)

    run_id, flags = f"archive-{new_run_id()}", (f"-XX:ArchiveClassesAtExit={draft}",)
    with Workspace(run_id, cache_root()) as workspace:
        scratch, log_path = workspace.path, workspace.path / "spark.log"
        spec = SparkSpec(run_id, scratch / "spark", log_path, java.path, jvm_flags=flags, workers=jobs.workers)
        session = start_session(spec)
        jvm: Any = session.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001  (it is nowhere else)
        resolve_name(jobs.rehearsal)(session, scratch / "empty")
        session.stop()
        jvm.stdin.close()  # the JVM ends with its input, and then writes the archive
        jvm.wait(DUMP_TIMEOUT_S)
        if not draft.exists():
            note_failure(archive_path(java), log_path.read_text(errors="replace")[-500:])


def note_failure(archive: Path, why: str) -> NoReturn:
    """Prevent further attempts by later commands, and raise `HarnessError`."""
    failure_path(archive).write_text(why)
    raise HarnessError(f"Spark's JVM wrote no class archive: {why}")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:8]


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
