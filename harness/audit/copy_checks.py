"""Run the checkers over copies of replicas whose clients are unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from checkers.anomalies import FINDERS
from checkers.attribution.key_states import disputed_records, key_states
from checkers.consistency import side_files, txnindex_disagreement
from checkers.consistency.wire_answers import with_served_aborts
from checkers.evidence.tables import REPLICA, load_copies
from checkers.reduction.reduce import Reduced, reduce_copies
from checkers.replay.judged import judge
from checkers.replay.unreplicated_tails import without_unreplicated_tails
from harness.audit.explain.internal_records import read_values
from harness.judge.check import THREADS, collected, each, plan
from harness.spark.threads import threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from checkers.evidence.tables import Evidence
    from checkers.replay.judged import Judged
    from harness.broker_files.copies.copies import Copies
    from harness.judge.finding import CheckerRow

Rows: TypeAlias = "Sequence[CheckerRow]"

CHECKS: Mapping[str, Callable[[Judged], DataFrame]] = {name: finder.check for name, finder in FINDERS.items()}

REPLICA_FACTS = ("log_start", "log_end", "high_watermark", "bound", "stable_end", "whole_beyond")
KEY_STATES = "key_states"
VALUES = "values"

CHECKERS: Mapping[str, Callable[[Judged], DataFrame]] = {
    **CHECKS,
    "doubts": side_files.check,
    "unsure": txnindex_disagreement.check,
    "replicas": lambda judged: judged.replicas.select(*REPLICA, *REPLICA_FACTS, "has_transactions"),
    "damaged": lambda judged: judged.evidence.damaged,
}

NO_ROWS: Mapping[str, Rows] = dict.fromkeys((*CHECKERS, KEY_STATES, VALUES, "left_out", "raised"), ())
"""The rows of all checkers without any input."""

WORTH_REDUCING_BYTES = 4 << 20
"""Reduction takes some seconds. Without it, each MiB takes about one second to judge, as no expression is compiled."""


def judge_copies(spark: SparkSession, copies: Sequence[Copies]) -> dict[str, Rows]:
    """Judge copies of any size: small copies completely, larger ones after a reduction.

    Returns the same as `judge_whole`, and the values of disputed records of internal topics.
    """
    if is_big(copies):
        rows = judge_reduced(reduce_copies(spark, copies, spark.sparkContext.defaultParallelism))
    else:
        rows = judge_whole(load_copies(spark, copies))
    return {**rows, VALUES: read_values(copies, rows[KEY_STATES])}


def is_big(copies: Sequence[Copies]) -> bool:
    """Return True for copies that are reduced, by compiled loops, before they are judged."""
    sizes = (path.stat().st_size for run in copies for copy in run.replicas for path in copy.logs)
    return sum(sizes) >= WORTH_REDUCING_BYTES


def judge_whole(evidence: Evidence) -> dict[str, Rows]:
    """Judge all data of the copies, as a run folder is judged: for small copies.

    Returns the rows of every checker by its name, and ``replicas``, ``damaged``, ``doubts``, ``unsure``, ``left_out``,
    ``key_states`` (see `checkers.attribution.key_states`) and ``raised``; ``values`` is empty. Rows have
    ``run``: several audits may be judged in one job. If a checker raises, the others continue; ``raised`` records the
    error (``name``, ``reason``), and forbids ``clean``.
    """
    return _computed(judge_copied(evidence), CHECKERS)


def judge_copied(evidence: Evidence) -> Judged:
    """Derive from copies what every checker compares: without unreplicated tails, with the aborts served."""
    return judge(with_served_aborts(without_unreplicated_tails(evidence)))


def judge_reduced(reduced: Reduced) -> dict[str, Rows]:
    """Judge copies after their reduction; returns the same as `judge_whole`."""
    left_out = [
        {"run": run, "topic": topic, "partition": partition, "keys": keys}
        for (run, topic, partition), keys in reduced.left_out.items()
    ]
    rows = {} if reduced.evidence is None else _computed(judge(reduced.evidence, reduced.replicas), CHECKS)
    return {**NO_ROWS, **rows, **reduced.tables, "left_out": left_out}


def _computed(judged: Judged, checkers: Mapping[str, Callable[[Judged], DataFrame]]) -> dict[str, Rows]:
    planned, unplanned = plan(judged, checkers)
    with threads(judged.replicas.sparkSession, THREADS) as pool:
        rows, raised = each(planned, lambda name: collected(planned[name]), using=pool.map)
    states, without_states = each([KEY_STATES], lambda _: key_state_rows(judged, rows))
    errors = [{"name": name, "reason": reason} for name, reason in {**unplanned, **raised, **without_states}.items()]
    return {**NO_ROWS, **rows, **states, "raised": errors}


def key_state_rows(judged: Judged, rows: Mapping[str, Rows]) -> Rows:
    """Return the state of every disputed key on every replica; rows of `checkers.attribution.key_states`."""
    disputed = disputed_records(row for name in FINDERS for row in rows.get(name, []))
    return collected(key_states(judged, disputed)) if disputed else []
