"""The settings of a Spark session, and its JVM, which starts while pyspark is imported.

A Spark that is one JVM is started without ``spark-submit``, which starts two scripts and a second JVM, and adds only
the classes of clusters, jars that a user names, and ``spark-defaults.conf``, which the harness's settings replace.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from harness.errors import HarnessError
from harness.host.java import find_java
from harness.host.leftovers import SPARK_MARKER, process_marker
from harness.spark.options import SparkOptions

MAIN_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
"""The class that ``spark-submit pyspark-shell`` runs, too. The JVM ends with its input."""
DRIVER_MEMORY = "1g"
_POLL_S = 0.02

# A class archive is valid for these flags only, which are the same in every session.
JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:C1MaxInlineLevel=1",
    "-XX:-UsePerfData",
    # Plans of checkers are deep: with 512 KB they end in a StackOverflowError, and Java's default is 1 MB.
    "-Xss4m",
    # Large from the start: a heap and a metaspace that have to grow collect garbage again and again.
    "-XX:MetaspaceSize=300m",
    "-XX:+AlwaysPreTouch",
)
HEAP_FLAGS = ("-Xms512m", "-Xmn320m")
"""The flags of the heap, unless a user sets its size."""

OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
"""Packages of ``java.base`` that Spark accesses by reflection (``org.apache.spark.launcher.JavaModuleOptions``)."""

MODULE_FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""The flags of that class, without its incubator module, which only MLlib uses."""

_EXCLUDED_RULES: Final = """
    BooleanSimplification CheckCartesianProducts CleanUpTempCTEInfo CollapseGroupedSumOfCount CollapseProject
    CollapseRepartition CollapseWindow ColumnPruning CombineConcats CombineTypedFilters CombineUnions
    ConstantFolding ConstantPropagation ConvertToLocalRelation CostBasedJoinReorder DecimalAggregates
    EliminateAggregateFilter EliminateDistinct EliminateLimits EliminateMapObjects EliminateOffsets
    EliminateOuterJoin EliminateSerialization EliminateSorts EliminateWindowPartitions FoldablePropagation
    GenerateOptimization InferFiltersFromConstraints InferFiltersFromGenerate InferWindowGroupLimit
    InjectRuntimeFilter InlineCTE LikeSimplification LimitPushDown LimitPushDownThroughWindow NullDownPropagation
    NullPropagation ObjectSerializerPruning OptimizeCsvJsonExprs OptimizeExpand OptimizeIn OptimizeJoinCondition
    OptimizeOneRowPlan OptimizeOneRowRelationSubquery OptimizeRand OptimizeRepartition OptimizeUpdateFields
    OptimizeWindowFunctions Optimizer$UpdateCTERelationStats PropagateEmptyRelation PruneFilters
    PullOutNestedDataOuterRefExpressions PullUpProjectAliasThroughWindow PushDownJoinThroughUnion
    PushDownLeftSemiAntiJoin PushDownPredicates PushExtraPredicateThroughJoin PushFoldableIntoBranches
    PushLeftSemiLeftAntiThroughJoin PushPredicateThroughJoin PushPredicateThroughNonJoin
    PushProjectionThroughLimitAndOffset PushProjectionThroughUnion PushdownPredicatesAndPruneColumnsForCTEDef
    ReassignLambdaVariableID RemoveLiteralFromGroupExpressions RemoveNoopOperators RemoveNoopUnion
    RemoveRedundantAggregates RemoveRedundantAliases RemoveRedundantSorts RemoveRepetitionFromGroupExpressions
    ReorderAssociativeOperator ReorderJoin ReplaceNullWithFalseInPredicate RewriteNonCorrelatedExists
    SimplifyBinaryComparison SimplifyCaseConversionExpressions SimplifyCasts SimplifyConditionals
    SimplifyDateTimeConversions SimplifyExtractValueOps TransposeWindow UnwrapCastInBinaryComparison
"""  # fmt: skip
"""Rules that Spark's optimizer leaves out. On thousands of rows a rule takes more time than it saves: it searches some
thirty plans for its pattern, in a JVM that lives for seconds. Spark ignores names that a version does not have, and
keeps the rules that a plan needs."""

SMALL_DATA = {
    # A run folder holds thousands of records: planning and compiling take the time, not the data.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Otherwise each join and aggregate serializes itself, to clean a closure that need not be cleaned.
    "spark.sql.execution.usePartitionEvaluator": "true",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{name}" for name in _EXCLUDED_RULES.split()
    ),
    # A broadcast would be computed when a check is planned, before there is anything to read.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    # Otherwise every column expression asks the JVM for a stack trace to go with it.
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Spark wants to resolve its own host name; where all of it is on this host, loopback always works."""
WITH_EXECUTORS = {
    # The number of tasks depends on the cores of the registered executors.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.speculation": "false",
    # Segments are rows of up to 8 MiB.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
}
QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}


@dataclass(frozen=True)
class SparkSpec:
    """The place where Spark runs, and the files that it may write; ``run_id`` marks its JVMs as the run's.

    ``options``: the user's, which win over `SMALL_DATA`. ``jvm_flags``: in addition to `JVM_FLAGS`. ``outlives_jobs``:
    Python notifies the JVM of each object that it releases. That takes time; without it, plans would fill the heap of a
    session that runs hundreds of checks. ``workers``: the module that forks Python workers; None means Spark's.
    """

    run_id: str
    scratch_dir: Path
    log_path: Path
    java: Path | None = None
    options: SparkOptions = field(default_factory=SparkOptions)
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
    """Start the JVM of a Spark that is one plain JVM; None for any other Spark. All output goes to ``log_path``.

    Returns the process, and the file to which the JVM will write its address. The process has a separate process group:
    Ctrl-C in a terminal does not end it.
    """
    if not spec.options.is_one_plain_jvm:
        return None
    set_environment(spec.options)
    spec.scratch_dir.mkdir(parents=True, exist_ok=True)
    handshake_path = Path(tempfile.mkdtemp(dir=spec.scratch_dir, prefix="gateway-")) / "address"
    java, class_path = spec.java or find_java().path, os.fspath(spark_home() / "jars" / "*")
    flags = (f"-Xmx{options_of(spec)['spark.driver.memory']}", *driver_flags(spec), *MODULE_FLAGS)
    with spec.log_path.open("ab") as log:
        process = subprocess.Popen(
            [os.fspath(java), "-cp", class_path, *flags, MAIN_CLASS],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            cwd=spec.scratch_dir,
            env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(handshake_path)},
            process_group=0,
        )
    return process, handshake_path


def connect(process: subprocess.Popen[bytes], handshake_path: Path) -> Any:
    """Return pyspark's gateway to the JVM, as ``launch_gateway`` does. Raises ConnectionError if the JVM has ended."""
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415  (the JVM starts while this is imported)
    from pyspark.serializers import UTF8Deserializer, read_int  # noqa: PLC0415

    while not handshake_path.exists():
        if process.poll() is not None:
            raise ConnectionError(f"its JVM ended by itself (exit code {process.returncode})")
        time.sleep(_POLL_S)
    with handshake_path.open("rb") as handshake:
        address = {
            "PYSPARK_GATEWAY_PORT": str(read_int(handshake)),
            "PYSPARK_GATEWAY_SECRET": UTF8Deserializer().loads(handshake),
        }
    os.environ.update(address)
    try:
        gateway = launch_gateway()
    finally:
        for name in address:
            del os.environ[name]
    gateway.proc = process
    return gateway


def spark_home() -> Path:
    """Return the folder of pyspark, without importing it. Raises `HarnessError` if it is not installed."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise HarnessError("pyspark is not installed: `harness doctor` says what to install")
    return Path(pyspark.origin).parent


def set_environment(options: SparkOptions) -> None:
    """Set the Python of workers, by default the first python3 of the PATH, and the host, for pyspark and its JVM."""
    theirs = None if options.is_on_this_host else os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = options.conf.get("spark.pyspark.python", theirs or sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if options.is_on_this_host:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK["spark.driver.host"])


def write_driver_python(spec: SparkSpec) -> None:
    """Write a script that runs this Python where the driver's JVM looks for the workers' Python.

    A relative path is that of an archive, which only executors have; and data sources are planned on the driver's host.
    """
    python = Path(os.environ["PYSPARK_PYTHON"])
    if not python.is_absolute():
        script = spec.scratch_dir / python
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        script.chmod(0o755)


def driver_flags(spec: SparkSpec) -> tuple[str, ...]:
    """Return the flags of the driver's JVM, without the user's."""
    heap_flags = () if "spark.driver.memory" in spec.options.conf else HEAP_FLAGS
    markers = (process_marker(spec.run_id), SPARK_MARKER)
    return (*markers, f"-Djava.io.tmpdir={spec.scratch_dir}", *JVM_FLAGS, *heap_flags, *spec.jvm_flags)


def options_of(spec: SparkSpec) -> dict[str, str]:
    """Return all settings; a user's flags for a JVM follow ours."""
    conf = spec.options.conf
    flags = {
        "spark.driver.extraJavaOptions": driver_flags(spec),
        # The markers also identify the executors on this host.
        "spark.executor.extraJavaOptions": (process_marker(spec.run_id), SPARK_MARKER),
    }
    return {
        "spark.master": spec.options.master,
        "spark.app.name": f"compaction-harness {spec.run_id}",
        **QUIET,
        **SMALL_DATA,
        **({"spark.python.daemon.module": spec.workers} if spec.workers else {}),
        **(LOOPBACK if spec.options.is_on_this_host else {}),
        **(WITH_EXECUTORS if spec.options.has_executors else {}),
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.local.dir": str(spec.scratch_dir),
        **conf,
        **{name: " ".join((*ours, conf.get(name, ""))).strip() for name, ours in flags.items()},
        "spark.sql.warehouse.dir": str(spec.scratch_dir / "warehouse"),
    }
