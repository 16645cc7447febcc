"""What Spark is to be: its settings, and the JVM that they make. It starts while pyspark is imported."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.host.java import find_java
from harness.host.leftovers import SPARK_MARKER, process_marker
from harness.spark.excluded_rules import EXCLUDED_RULES
from harness.spark.jvm import DRIVER_MEMORY, HEAP_FLAGS, JVM_FLAGS, start_jvm
from harness.spark.options import SparkOptions

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

SMALL_DATA = {
    # A run folder holds thousands of records: what costs time is planning and compiling, not data.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Otherwise each join and aggregate serializes itself, to clean a closure that need not be cleaned.
    "spark.sql.execution.usePartitionEvaluator": "true",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.optimizer.excludedRules": EXCLUDED_RULES,
    # A broadcast would be computed when a check is planned, before there is anything to read.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    # Otherwise every column expression asks the JVM for a stack trace to go with it.
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

MANY_RUNS = {
    **SMALL_DATA,
    # Thousands of runs in a job are worth compiling for.
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""For jobs over many runs, which are dealt over the cores (`sweep.partitioned_session`)."""

_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""What Spark redacts, too: such settings are kept off the JVM's command line, which everybody may read."""

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Spark wants to resolve its own host name; where all of it is on this host, loopback always works."""

WITH_EXECUTORS = {
    # How many tasks there are goes by the cores that are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True)
class SparkSpec:
    """Where Spark runs and where it may write; ``run_id`` marks its JVMs as the run's.

    ``options``: what the user asks for, which wins over ``settings``. ``jvm_flags`` come on top of `JVM_FLAGS`.
    ``outlives_jobs``: Python tells the JVM about each object that it releases. That takes time, and without it a
    session that goes on for hundreds of checks has its heap filled by their plans. ``workers``: the module that forks
    Python workers; Spark's own where it is None.
    """

    run_id: str
    scratch_dir: Path
    log_path: Path
    java: Path | None = None
    options: SparkOptions = field(default_factory=SparkOptions)
    settings: Mapping[str, str] = field(default_factory=lambda: SMALL_DATA)
    jvm_flags: tuple[str, ...] = ()
    outlives_jobs: bool = False
    workers: str | None = None


@dataclass(frozen=True)
class SparkJobs:
    """The jobs that a session is started for, by name: they are imported while its JVM starts.

    ``rehearsal``: ``module:function``, which takes a session and a path without files, and runs the jobs on no data.
    ``workers``: the module that forks the Python workers.
    """

    rehearsal: str
    workers: str


def launch(spec: SparkSpec) -> tuple[subprocess.Popen[bytes], Path] | None:
    """Start the JVM of a Spark that is one plain JVM; None of any other. See `start_jvm`.

    All output goes to ``log_path``.
    """
    if not spec.options.is_one_plain_jvm:
        return None
    set_environment(spec.options)
    spec.scratch_dir.mkdir(parents=True, exist_ok=True)
    java, memory = spec.java or find_java().path, options_of(spec)["spark.driver.memory"]
    with spec.log_path.open("ab") as log:
        return start_jvm(java, memory, driver_flags(spec), directory=spec.scratch_dir, log=log)


def set_environment(options: SparkOptions) -> None:
    """Tell pyspark and its JVM which Python workers run, which else is the first python3 of the PATH, and the host."""
    theirs = None if options.is_on_this_host else os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = options.conf.get("spark.pyspark.python", theirs or sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if options.is_on_this_host:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK["spark.driver.host"])


def driver_flags(spec: SparkSpec) -> tuple[str, ...]:
    """Return the flags of the driver's JVM, but for what a user adds."""
    heap_flags = () if "spark.driver.memory" in spec.options.conf else HEAP_FLAGS
    markers = (process_marker(spec.run_id), SPARK_MARKER)
    return (*markers, f"-Djava.io.tmpdir={spec.scratch_dir}", *JVM_FLAGS, *heap_flags, *spec.jvm_flags)


def options_of(spec: SparkSpec) -> dict[str, str]:
    """Return all settings; a user's flags for a JVM follow ours."""
    conf = spec.options.conf
    markers = (process_marker(spec.run_id), SPARK_MARKER)
    flags = {
        "spark.driver.extraJavaOptions": driver_flags(spec),
        # Executors on this host are found by them too.
        "spark.executor.extraJavaOptions": markers,
    }  # fmt: skip
    return {
        "spark.master": spec.options.master,
        "spark.app.name": f"compaction-harness {spec.run_id}",
        **QUIET,
        **spec.settings,
        **({"spark.python.daemon.module": spec.workers} if spec.workers else {}),
        **(LOOPBACK if spec.options.is_on_this_host else {}),
        **(WITH_EXECUTORS if spec.options.has_executors else {}),
        "spark.driver.memory": DRIVER_MEMORY,
        **conf,
        **{name: " ".join((*ours, conf.get(name, ""))).strip() for name, ours in flags.items()},
        "spark.local.dir": str(spec.scratch_dir),
        "spark.sql.warehouse.dir": str(spec.scratch_dir / "warehouse"),
    }


def public(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that anybody may read."""
    return {name: value for name, value in options.items() if not _SECRET.search(name)}
