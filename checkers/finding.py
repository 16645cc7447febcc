"""The columns of findings and of the results of guarantees, and helpers for their sentences."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from checkers.evidence.tables import PARTITION, REPLICA
from checkers.replay.judged import Judged
from harness.escape import in_sentence

VISIBLE, LATENT = "visible", "latent"
RECORD, BATCH, LIST = "record", "batch", "list"
"""The evidence for a difference: a record at the offset, the batch that begins there, or the broker's list of aborted
transactions, one of which began at or before the offset."""

HANGING_TRANSACTION = "hanging-transaction"
UNEXPLAINED_DIVERGENCE = "unexplained-divergence"
"""Names that only audits report, in addition to the four anomalies."""
LISTED: Final = 100
"""The most findings of a partition that an audit lists; the others are counted."""
_QUOTE: Final = "\0"
"""The character around the hexadecimal digits of a client's value in a sentence that Spark made."""
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
    rows: DataFrame, anomaly: str, *, effect: Column | str, explanation: Column, witness: str,
    offset: str = "offset", key: str | None = "key", producer_id: str | None = "producer_id",
    candidates: Column | None = None, proven: Column | bool = True, shown_by: Column | str = RECORD,
) -> DataFrame:  # fmt: skip
    """Return findings for rows of REPLICA.

    ``offset``, ``key``, ``producer_id``: the columns with these values; null where None is given. Adds anomaly,
    candidates (names; empty where the evidence decides), effect, explanation, ``proven`` (whether the logs alone prove
    that this replica is wrong), witness: a JSON object with these columns, in SQL, and ``shown_by``.
    """
    return rows.select(
        *REPLICA,
        f.lit(str(anomaly)).alias("anomaly"),
        (f.array().cast("array<string>") if candidates is None else candidates).alias("candidates"),
        f.col(offset).alias("offset"),
        (f.lit(None).cast("binary") if key is None else f.col(key)).alias("key"),
        (f.lit(None).cast("long") if producer_id is None else f.col(producer_id)).alias("producer_id"),
        f.lit(effect).alias("effect"),
        explanation.alias("explanation"),
        f.lit(proven).alias("proven"),
        f.expr(f"to_json(struct({witness})) AS witness"),
        f.lit(shown_by).alias("shown_by"),
    )


def results(rows: DataFrame, guarantee: str, *, violation: str, explanation: Column, witness: str) -> DataFrame:
    """Return REPLICA, guarantee, ``compared``, ``violated``, offset, explanation, witness: a row for each replica.

    ``rows``: REPLICA, offset, and the columns that the other parameters use. ``violation``: whether a row violates the
    guarantee, in SQL. Offset, explanation and witness (as in `findings`) describe the first of the violated rows, or
    are null. ``broker`` is null for a violation that does not depend on a replica.
    """
    is_violated = f.coalesce(f.expr(violation), f.lit(False))
    first = f.struct("offset", explanation.alias("explanation"), f.expr(f"to_json(struct({witness})) AS witness"))
    return (
        rows.groupBy(*REPLICA)
        .agg(
            f.count("*").alias("compared"),
            f.count_if(is_violated).alias("violated"),
            f.min(f.when(is_violated, first)).alias("first"),
        )
        .select(*REPLICA, f.lit(guarantee).alias("guarantee"), "compared", "violated", "first.*")
    )


def sentence(template: str, **values: Column | str) -> Column:
    """Return a sentence with the values of a row.

    ``{name}``: the value of that name (a column, or SQL), else the row's column of that name. ``{name:text}``: the text
    stands for null. ``{name!r}``: a key, or another value that clients choose; `completed` makes it printable.
    """
    parts = list(Formatter().parse(template))
    texts = "".join(text.replace("%", "%%") + ("%s" if name else "") for text, name, _, _ in parts)

    def value(name: str, none: str | None, conversion: str | None) -> Column:
        column = values.get(name, f.col(name))
        column = f.expr(column) if isinstance(column, str) else column
        if conversion == "r":
            return f.coalesce(f.concat(f.lit(_QUOTE), f.hex(column), f.lit(_QUOTE)), f.lit(none or "(no key)"))
        return f.coalesce(column.cast("string"), f.lit(none)) if none else column

    return f.format_string(texts, *(value(name, none, how) for _, name, none, how in parts if name is not None))


def first_rows(rows: DataFrame) -> DataFrame:
    """Return at most `LISTED` rows of each partition, the lowest offsets first.

    Adds ``total``: how many there are, and ``described``: the brokers that all of them are about.
    """
    partition = Window.partitionBy(*PARTITION)
    ordered = partition.orderBy("offset", "broker")
    of_all = f.count("*").over(partition).alias("total"), f.collect_set("broker").over(partition).alias("described")
    numbered = rows.select("*", f.row_number().over(ordered).alias("row"), *of_all)
    return numbered.where(f"row <= {LISTED}").drop("row")


def reason(template: str, **values: Column | str) -> Column:
    """Return the ``reason`` of a doubt, a `sentence`."""
    return sentence(template, **values).alias("reason")


def completed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a collected row whose sentences show the values of clients as text."""
    texts = {name: row[name] for name in ("explanation", "reason") if row.get(name)}
    shown = {name: _PRINTABLE.sub(lambda it: in_sentence(bytes.fromhex(it[1])), text) for name, text in texts.items()}
    return {**row, **shown}


def visible_before_stable_end() -> Column:
    """Return the effect of a wrong record: visible if read_committed consumers get so far (``stable_end``)."""
    return f.when(f.col("stable_end") <= f.col("offset"), LATENT).otherwise(VISIBLE)
