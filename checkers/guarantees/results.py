"""The columns that the checker of a guarantee returns: one row for each replica, however many rows were compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import REPLICA

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RESULTS = [*REPLICA, "guarantee", "compared", "violated", "offset", "explanation", "witness"]


def results(
    rows: DataFrame, guarantee: str, *, violation: Column | str, explanation: Column, witness: dict[str, Column]
) -> DataFrame:
    """Return `RESULTS`: how many rows were compared, and how many violate the guarantee.

    ``rows``: REPLICA, offset, and the columns that the other parameters use. ``violation``: whether a row violates the
    guarantee. ``offset``, ``explanation`` and ``witness`` (a JSON object) are those of the first violation, null where
    there is none. ``broker`` is null for a violation that does not depend on a replica.
    """
    is_violated = f.coalesce(f.expr(violation) if isinstance(violation, str) else violation, f.lit(False))
    shown = f.to_json(f.struct(*(column.alias(name) for name, column in witness.items())))
    first = f.struct("offset", explanation.alias("explanation"), shown.alias("witness"))
    return (
        rows.groupBy(*REPLICA)
        .agg(
            f.count("*").alias("compared"),
            f.count_if(is_violated).alias("violated"),
            f.min(f.when(is_violated, first)).alias("first"),
        )
        .select(*REPLICA, f.lit(guarantee).alias("guarantee"), "compared", "violated", "first.*")
    )
