"""The shape of what a checker returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence import REPLICA

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from harness.scenario import Anomaly

VISIBLE, LATENT = "visible", "latent"


def findings(
    rows: DataFrame, anomaly: Anomaly, *, effect: Column, explanation: Column, witness: dict[str, Column],
    candidates: Column | None = None,
) -> DataFrame:  # fmt: skip
    """Give rows of REPLICA, offset, key and producer_id the columns of a finding.

    Adds anomaly, candidates (names; empty where the evidence decides), effect, explanation and witness (a
    JSON object).
    """
    none = f.array().cast("array<string>")
    return rows.select(
        *REPLICA,
        f.lit(str(anomaly)).alias("anomaly"),
        (none if candidates is None else candidates).alias("candidates"),
        "offset",
        "key",
        "producer_id",
        effect.alias("effect"),
        explanation.alias("explanation"),
        f.to_json(f.struct(*(column.alias(name) for name, column in witness.items()))).alias("witness"),
    )


def printable(key: str) -> Column:
    """Return a key for a sentence: text where it is UTF-8, else hexadecimal, never longer than a line."""
    text = f.when(f.is_valid_utf8(f.col(key).cast("string")), f.col(key).cast("string")).otherwise(f.hex(key))
    return f.substring(f.coalesce(text, f.lit("(no key)")), 1, 60)
