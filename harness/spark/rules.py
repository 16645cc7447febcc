"""Rules that Spark's optimizer may leave out.

On thousands of rows a rule costs more than it can save: looking for its pattern in some thirty plans, cold, in a
JVM that lives for seconds. Names that a version of Spark does not have are ignored; what a plan cannot do without
is kept by Spark, whatever is asked for.
"""

PACKAGE = "org.apache.spark.sql.catalyst.optimizer"

RULES = """
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


def excluded_rules() -> str:
    """Return the value of ``spark.sql.optimizer.excludedRules``."""
    return ",".join(f"{PACKAGE}.{name}" for name in RULES.split())
