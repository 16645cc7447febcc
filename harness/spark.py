"""The Spark session that checkers run in."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from harness.leftovers import process_marker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DRIVER_MEMORY = "768m"

SMALL_DATA = {
    # A run folder holds thousands of records: what costs time is planning and compiling, not data.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.default.parallelism": "2",
}

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


@dataclass(frozen=True)
class SparkSpec:
    """Where Spark runs and where it may write; ``run_id`` marks its JVM as the run's."""

    run_id: str
    scratch_dir: Path
    master: str = "local[2]"
    settings: Mapping[str, str] = field(default_factory=lambda: SMALL_DATA)


def start_session(spec: SparkSpec) -> SparkSession:
    """Start the session and its JVM; everything it writes stays in ``scratch_dir``."""
    # Workers otherwise run whatever python3 is first on the PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Spark asks for a host name that resolves; loopback always does.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    java_options = f"{process_marker(spec.run_id)} -Djava.io.tmpdir={spec.scratch_dir} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    builder = SparkSession.builder.appName(f"compaction-harness {spec.run_id}").master(spec.master)
    options = {
        **QUIET,
        **spec.settings,
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(spec.scratch_dir),
        "spark.sql.warehouse.dir": str(spec.scratch_dir / "warehouse"),
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
