"""The shape of what a guarantee's checker returns: a row a replica, however much was compared there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence.tables import REPLICA

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOLD = [*REPLICA, "guarantee", "compared", "violated", "offset", "explanation", "witness"]


def told(
    rows: DataFrame, guarantee: str, *, broken: Column | str, explanation: Column, witness: dict[str, Column]
) -> DataFrame:
    """Return `TOLD`: how many rows (REPLICA, offset, and what the columns name) were compared, how many are broken.

    ``offset``, ``explanation`` and ``witness`` (a JSON object) are those of the first that is, null where none is.
    ``broker`` is null where a guarantee is broken before any replica has a part in it.
    """
    is_broken = f.coalesce(f.expr(broken) if isinstance(broken, str) else broken, f.lit(False))
    shown = f.to_json(f.struct(*(column.alias(name) for name, column in witness.items())))
    first = f.struct("offset", explanation.alias("explanation"), shown.alias("witness"))
    return (
        rows.groupBy(*REPLICA)
        .agg(
            f.count("*").alias("compared"),
            f.count_if(is_broken).alias("violated"),
            f.min(f.when(is_broken, first)).alias("first"),
        )
        .select(*REPLICA, f.lit(guarantee).alias("guarantee"), "compared", "violated", "first.*")
    )
