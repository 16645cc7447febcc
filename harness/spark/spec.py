"""The settings of a Spark session, and the start of its JVM, which starts while pyspark is imported."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from harness.host.java import find_java
from harness.host.leftovers import SPARK_MARKER, process_marker
from harness.spark.jvm import DRIVER_MEMORY, HEAP_FLAGS, JVM_FLAGS, start_jvm
from harness.spark.options import SparkOptions

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

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

MANY_RUNS = {
    **SMALL_DATA,
    # Thousands of runs in a job are worth compiling for.
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}
"""For jobs over many runs, which are distributed over the cores (`sweep.partitioned_session`)."""

_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""Settings that Spark redacts, too: they are kept off the JVM's command line, which everybody may read."""

LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Spark wants to resolve its own host name; where all of it is on this host, loopback always works."""

WITH_EXECUTORS = {
    # The number of tasks depends on the cores of the registered executors.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0"
}

QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}


@dataclass(frozen=True)
class SparkSpec:
    """The place where Spark runs, and the files that it may write; ``run_id`` marks its JVMs as the run's.

    ``options``: the user's, which win over ``settings``. ``jvm_flags``: in addition to `JVM_FLAGS`. ``outlives_jobs``:
    Python notifies the JVM of each object that it releases. That takes time; without it, plans would fill the heap of a
    session that runs hundreds of checks. ``workers``: the module that forks Python workers; None means Spark's.
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
    """Set the Python of workers, by default the first python3 of the PATH, and the host, for pyspark and its JVM."""
    theirs = None if options.is_on_this_host else os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = options.conf.get("spark.pyspark.python", theirs or sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if options.is_on_this_host:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK["spark.driver.host"])


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
