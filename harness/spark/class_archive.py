"""A class archive for Spark's JVM, per user: the JVM loads and verifies the classes once, not at every start.

Starting Spark and checking for the first time is mostly class loading. With an archive of those classes (JEP 350,
dynamic class-data sharing) a session starts in half the time, which leaves the processors to the brokers that boot
meanwhile. Without an archive, or with an archive of another JVM, everything works the same, but slower.

The JVM accepts an archive only with the jars, Java and module flags of its creation. The archive's name has a digest of
all three: when one of them changes, another archive is made, and the former archive is removed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NoReturn

from harness.errors import HarnessError
from harness.host.cache import alone_in, cache_root
from harness.host.java import Java
from harness.host.workspace import Workspace
from harness.run_folder.store import new_run_id
from harness.spark.launch import HEAP_FLAGS, JVM_FLAGS, MODULE_FLAGS, SparkJobs, SparkSpec, spark_home

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
