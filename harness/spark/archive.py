"""A class archive for Spark's JVM, per user: what it loads and verifies at every start, done once.

Starting Spark and checking for the first time is mostly class loading. With an archive of those classes
(JEP 350, dynamic class-data sharing) a session starts in half the time, which leaves the processors to the
brokers that boot meanwhile. It is an accelerator only: without it, or with one that another JVM made,
everything works the same and slower.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

from harness import check
from harness.cache import cache_root
from harness.errors import HarnessError
from harness.spark.session import SparkSpec, start_session
from harness.store import RunFolder

if TYPE_CHECKING:
    from harness.java import Java

DUMP_TIMEOUT_S = 120.0


def archive_path(java: Java) -> Path:
    """Return where the archive for this Spark and this Java lies, made or not.

    An archive holds for one class path: the same Spark in another virtual environment has another.
    """
    version = re.sub(r"[^0-9A-Za-z.]+", "-", java.version_text)
    place = hashlib.sha256(os.fsencode(Path(pyspark.__file__).parent)).hexdigest()[:8]
    return cache_root() / f"spark-{pyspark.__version__}-{place}-java-{version}.jsa"


def make_archive(java: Java) -> Path:
    """Rehearse the checkers in a JVM that writes its archive when it ends. Raises `HarnessError`.

    Returns at once where there is one already.
    """
    path = archive_path(java)
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch_name:
        scratch = Path(scratch_name)
        draft = scratch / path.name
        spec = SparkSpec(
            "archive",
            scratch / "spark",
            scratch / "spark.log",
            jvm_flags=(f"-XX:ArchiveClassesAtExit={draft}",),
        )
        session = start_session(spec)
        jvm: Any = session.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001  (it is nowhere else)
        check.run_checkers(check.prepare(session, [RunFolder(scratch / "empty")]))
        session.stop()
        jvm.stdin.close()  # the JVM ends with its input, and then writes the archive
        jvm.wait(DUMP_TIMEOUT_S)
        if not draft.exists():
            raise HarnessError(f"Spark's JVM wrote no class archive: {(scratch / 'spark.log').read_text()[-500:]}")
        draft.replace(path)
    return path
