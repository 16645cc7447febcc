"""Rules that Spark's optimizer leaves out.

On thousands of rows a rule costs more time than it can save: it looks for its pattern in some thirty plans, not yet
compiled, in a JVM that lives for seconds. Spark ignores names that a version does not have, and keeps the rules that
a plan cannot do without.
"""

from __future__ import annotations

from typing import Final

_PACKAGE: Final = "org.apache.spark.sql.catalyst.optimizer"
_NAMES: Final = """
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

EXCLUDED_RULES: Final = ",".join(f"{_PACKAGE}.{name}" for name in _NAMES.split())
"""The value of ``spark.sql.optimizer.excludedRules``."""
