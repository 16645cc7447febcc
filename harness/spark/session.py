"""The Spark session that checkers run in."""

from __future__ import annotations

import logging
import os
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext, accumulators
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from harness.java import find_java
from harness.leftovers import SPARK_MARKER, process_marker
from harness.spark.flags import DRIVER_MEMORY, HEAP_FLAGS, JVM_FLAGS
from harness.spark.jvm import connect, start_jvm
from harness.spark.options import SparkOptions
from harness.spark.rules import excluded_rules
from harness.spark.threads import name_call_sites

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

SMALL_DATA = {
    # A run folder holds thousands of records: what costs time is planning and compiling, not data.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.python.daemon.module": "checkers.workers",
    # Otherwise each join and aggregate serializes itself, to clean a closure that need not be cleaned.
    "spark.sql.execution.usePartitionEvaluator": "true",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.optimizer.excludedRules": excluded_rules(),
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
"""For jobs over many runs, which are dealt over the cores (`harness.explore.sweep.dealing`)."""

_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""What Spark redacts, too: such settings are kept off the JVM's command line, which everybody may read."""

LOOKED_UP = ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils")
"""Classes that pyspark's DataFrames ask of the JVM by name, for every column anew."""

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

    ``asked``: what the user asks for, which wins over ``settings``. ``jvm_flags`` come on top of `JVM_FLAGS`.
    ``outlives_jobs``: the JVM is told of each object that Python lets go of. That takes time, and without it a
    session that goes on for hundreds of checks has its heap filled by their plans.
    """

    run_id: str
    scratch_dir: Path
    log_path: Path
    java: Path | None = None
    asked: SparkOptions = field(default_factory=SparkOptions)
    settings: Mapping[str, str] = field(default_factory=lambda: SMALL_DATA)
    jvm_flags: tuple[str, ...] = ()
    outlives_jobs: bool = False


def _ignore_broken_connection(*_: object) -> None:
    """Say nothing: a JVM that is ended on purpose breaks the connection to its accumulator server."""


for _server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
    setattr(_server, "handle_error", _ignore_broken_connection)  # noqa: B010  (a method, for mypy)


def start_session(spec: SparkSpec) -> SparkSession:
    """Start the session and its JVM; all it writes goes to ``scratch_dir``, all it says to ``log_path``.

    Once in a process: pyspark never lets go of its gateway.
    """
    spec.scratch_dir.mkdir(parents=True, exist_ok=True)
    # What a JVM that is ended on purpose leaves unanswered is no news.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    _set_environment(spec.asked)
    options = _options(spec)
    public, whole = (SparkConf(loadDefaults=False) for _ in range(2))
    public.setAll(list(_public(options).items()))
    whole.setAll(list(options.items()))
    with spec.log_path.open("ab") as log:
        if spec.asked.is_one_plain_jvm:
            java, memory = spec.java or find_java().path, options["spark.driver.memory"]
            started = start_jvm(java, memory, driver_flags(spec), directory=spec.scratch_dir, log=log)
            gateway = connect(*started)
        else:
            gateway = launch_gateway(public, {"stdout": log, "stderr": log, "cwd": spec.scratch_dir})
    _convert_only_own_errors(gateway)
    session = _session(SparkContext(conf=whole, gateway=gateway))
    _look_up_once(gateway)
    gateway.gateway_property.enable_memory_management = spec.outlives_jobs
    name_call_sites(session)
    return session


def _set_environment(asked: SparkOptions) -> None:
    """Tell pyspark which Python workers run: otherwise it is whatever python3 is first on the PATH."""
    theirs = None if asked.is_on_this_host else os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = asked.conf.get("spark.pyspark.python", theirs or sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if asked.is_on_this_host:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK["spark.driver.host"])


def driver_flags(spec: SparkSpec) -> tuple[str, ...]:
    """Return the flags of the driver's JVM, but for what a user adds."""
    heap_flags = () if "spark.driver.memory" in spec.asked.conf else HEAP_FLAGS
    markers = (process_marker(spec.run_id), SPARK_MARKER)
    return (*markers, f"-Djava.io.tmpdir={spec.scratch_dir}", *JVM_FLAGS, *heap_flags, *spec.jvm_flags)


def _options(spec: SparkSpec) -> dict[str, str]:
    """Return all settings; a user's flags for a JVM follow ours."""
    conf = spec.asked.conf
    markers = (process_marker(spec.run_id), SPARK_MARKER)
    flags = {
        "spark.driver.extraJavaOptions": driver_flags(spec),
        # Executors on this host are found by them too.
        "spark.executor.extraJavaOptions": markers,
    }  # fmt: skip
    return {
        "spark.master": spec.asked.master,
        "spark.app.name": f"compaction-harness {spec.run_id}",
        **QUIET,
        **spec.settings,
        **(LOOPBACK if spec.asked.is_on_this_host else {}),
        **(WITH_EXECUTORS if spec.asked.has_executors else {}),
        "spark.driver.memory": DRIVER_MEMORY,
        **conf,
        **{name: " ".join((*ours, conf.get(name, ""))).strip() for name, ours in flags.items()},
        "spark.local.dir": str(spec.scratch_dir),
        "spark.sql.warehouse.dir": str(spec.scratch_dir / "warehouse"),
    }


def _public(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that anybody may read."""
    return {name: value for name, value in options.items() if not _SECRET.search(name)}


def _session(context: SparkContext) -> SparkSession:
    """Return a session without the extensions that lie among Spark's jars.

    They are MLlib's functions, of no use here, and registering them costs a second of Scala reflection.
    """
    jvm: Any = context._jvm  # noqa: SLF001  (there is no other way to it)
    none, nothing = jvm.scala.Option.empty(), jvm.scala.collection.immutable.HashMap()
    extensions = jvm.org.apache.spark.sql.SparkSessionExtensions()
    java_context = context._jsc.sc()  # noqa: SLF001
    session = jvm.org.apache.spark.sql.classic.SparkSession(java_context, none, none, extensions, nothing, nothing)
    return SparkSession(context, session)


def _convert_only_own_errors(gateway: Any) -> None:
    """Keep pyspark from converting the exceptions of other JVMs, such as the Java client's.

    It replaces py4j's reading of answers for the whole process, and asks Spark's JVM about an exception that is
    another's.
    """
    convert, own = captured.capture_sql_exception, gateway._gateway_client  # noqa: SLF001  (it has no other name)

    def convert_own(get_return_value: Callable[..., Any]) -> Callable[..., Any]:
        converting = convert(get_return_value)

        def read(answer: str, client: Any, *rest: Any) -> Any:
            return (converting if client is own else get_return_value)(answer, client, *rest)

        return read

    setattr(captured, "capture_sql_exception", convert_own)  # noqa: B010  (a function, for mypy)


class _Remembered:
    """A JVM class whose static methods are looked up once."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        """Ask the JVM the first time; from then on this is found before it is called."""
        found = getattr(self._java_class, name)
        setattr(self, name, found)
        return found


def _look_up_once(gateway: Any) -> None:
    """Keep py4j from asking the JVM for the same names over and over, in every package of all of Spark's jars."""
    for name in LOOKED_UP:
        setattr(gateway.jvm, name, _Remembered(getattr(gateway.jvm, name)))
