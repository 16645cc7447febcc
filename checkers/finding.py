"""The shape of what a checker returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence import REPLICA

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

VISIBLE, LATENT = "visible", "latent"

HANGING_TRANSACTION = "hanging-transaction"
UNEXPLAINED_DIVERGENCE = "unexplained-divergence"
"""What audits find beside the four anomalies."""


def findings(
    rows: DataFrame, anomaly: str, *, effect: Column, explanation: Column, witness: dict[str, Column],
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


def number(column: str, *, none: str = "none") -> Column:
    """Return a number for a sentence."""
    return f.coalesce(f.col(column).cast("string"), f.lit(none))


def reason(template: str, *columns: Column | str) -> Column:
    """Return the ``reason`` of a doubt, a sentence."""
    return f.format_string(template, *columns).alias("reason")
