"""The columns of findings and of the results of guarantees, and helpers for their sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f

from checkers.evidence.tables import REPLICA
from harness.escape import in_sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

    from checkers.replay.judged import Judged

VISIBLE, LATENT = "visible", "latent"

HANGING_TRANSACTION = "hanging-transaction"
UNEXPLAINED_DIVERGENCE = "unexplained-divergence"
"""Names that only audits report, beside the four anomalies."""

SENTENCES: Final = ("explanation", "reason")
"""The columns of findings, results of guarantees and doubts that hold a sentence."""
_QUOTE: Final = "\0"
"""Around the digits of a value in a sentence that Spark made; no sentence has it otherwise."""
_PRINTABLE: Final = re.compile(f"{_QUOTE}([0-9A-F]*){_QUOTE}")


@dataclass(frozen=True)
class Finder:
    """The checker of one anomaly: the ``FINDER`` at the end of a module of `checkers.anomalies`.

    ``name``: as in verdicts. ``check`` returns findings. ``in_runs``: whether runs are checked too, or only audits.
    ``means``: what a finding means for the operator of the cluster, a sentence with ``{broker}``, ``{partition}`` and
    ``{producer_id}``; empty where another finder of the same name has the sentence.
    """

    name: str
    check: Callable[[Judged], DataFrame]
    means: str = ""
    in_runs: bool = True


def findings(
    rows: DataFrame, anomaly: str, *, effect: Column, explanation: Column, witness: dict[str, Column],
    offset: str = "offset", key: str | None = "key", producer_id: str | None = "producer_id",
    candidates: Column | None = None, proven: Column | None = None,
) -> DataFrame:  # fmt: skip
    """Return findings for rows of REPLICA.

    ``offset``, ``key``, ``producer_id``: the columns with these values; null where None is given. Adds anomaly,
    candidates (names; empty where the evidence decides), effect, explanation, ``proven`` (whether the logs alone prove
    that this replica is wrong; true by default) and witness (a JSON object).
    """
    return rows.select(
        *REPLICA,
        f.lit(str(anomaly)).alias("anomaly"),
        (f.array().cast("array<string>") if candidates is None else candidates).alias("candidates"),
        f.col(offset).alias("offset"),
        (f.lit(None).cast("binary") if key is None else f.col(key)).alias("key"),
        (f.lit(None).cast("long") if producer_id is None else f.col(producer_id)).alias("producer_id"),
        effect.alias("effect"),
        explanation.alias("explanation"),
        (f.lit(True) if proven is None else proven).alias("proven"),
        _json(witness).alias("witness"),
    )


def results(
    rows: DataFrame, guarantee: str, *, violation: Column | str, explanation: Column, witness: dict[str, Column]
) -> DataFrame:
    """Return REPLICA, guarantee, compared, violated, offset, explanation, witness: a row for each replica.

    ``compared`` and ``violated``: how many rows were compared, and how many of them violate the guarantee.

    ``rows``: REPLICA, offset, and the columns that the other parameters use. ``violation``: whether a row violates the
    guarantee. ``offset``, ``explanation`` and ``witness`` (a JSON object) are those of the first violation, null where
    there is none. ``broker`` is null for a violation that does not depend on a replica.
    """
    is_violated = f.coalesce(f.expr(violation) if isinstance(violation, str) else violation, f.lit(False))
    first = f.struct("offset", explanation.alias("explanation"), _json(witness).alias("witness"))
    return (
        rows.groupBy(*REPLICA)
        .agg(
            f.count("*").alias("compared"),
            f.count_if(is_violated).alias("violated"),
            f.min(f.when(is_violated, first)).alias("first"),
        )
        .select(*REPLICA, f.lit(guarantee).alias("guarantee"), "compared", "violated", "first.*")
    )


def _json(witness: dict[str, Column]) -> Column:
    return f.to_json(f.struct(*(column.alias(name) for name, column in witness.items())))


def printable(name: str, none: str = "(no key)") -> Column:
    """Return a key, or another value that clients choose, for a sentence: as hexadecimal digits, until `completed`."""
    return f.coalesce(f.concat(f.lit(_QUOTE), f.hex(name), f.lit(_QUOTE)), f.lit(none))


def completed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a collected row whose `SENTENCES` have the values of `printable` as text."""
    return {**row, **{name: _with_text(row[name]) for name in SENTENCES if row.get(name)}}


def _with_text(sentence: str) -> str:
    return _PRINTABLE.sub(lambda value: in_sentence(bytes.fromhex(value[1])), sentence)


def number(column: str, *, none: str = "none") -> Column:
    """Return a number for a sentence."""
    return f.coalesce(f.col(column).cast("string"), f.lit(none))


def sentence(template: str, **values: Column) -> Column:
    """Return a sentence: ``{name}`` stands for the value of that name, else for the row's column of that name."""
    names = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    as_java = template.replace("%", "%%").format(**dict.fromkeys(names, "%s"))
    return f.format_string(as_java, *(values.get(name, name) for name in names))


def reason(template: str, **values: Column) -> Column:
    """Return the ``reason`` of a doubt, a `sentence`."""
    return sentence(template, **values).alias("reason")


def visible_before_stable_end() -> Column:
    """Return the effect of a wrong record: visible if read_committed consumers get so far (``stable_end``)."""
    return f.when(f.col("stable_end") <= f.col("offset"), LATENT).otherwise(VISIBLE)
