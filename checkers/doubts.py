"""Evidence that contradicts itself, and differences that nothing explains: both forbid ``clean``.

``contradiction``: what a broker says or showed against what its stored log gives.

* the batches it served at the end are not those on its disk;
* its last observed log (number of batches and digest) is not the stored one;
* the transactions that it holds open are not those that its log leaves open;
* its last stable offset is past a transaction that its log leaves open;
* a read_committed consumer of it was delivered other offsets below the bound than its log gives.

``unexplained``: a key's final state is wrong on a replica, and none of the four anomalies accounts for it.

Does not verify: a broker's word about offsets below its log start; last stable offsets that lag; a replica
that was not asked after the rejoin, because its broker was down; aborted lists, ``.txnindex`` and producer
snapshots against the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from checkers.evidence import REPLICA, in_one
from checkers.finding import printable
from checkers.parse import DISK, FETCH
from checkers.replay import COMMITTED, OPEN
from harness.observe import DIGEST_MODULUS
from harness.store import AFTER_REJOIN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from checkers.judged import Judged

CONTRADICTION, UNEXPLAINED = "contradiction", "unexplained"


def check(judged: Judged) -> DataFrame:
    """Return REPLICA, ``kind``, ``reason``."""
    rows = _other_batches(judged)
    for part in (_open_is_not_open, _stable_past_open, _delivered_is_not_derived):
        rows = rows.unionByName(part(judged))
    contradictions = rows.select(*REPLICA, f.lit(CONTRADICTION).alias("kind"), "reason")
    unexplained = _unexplained_states(judged).select(*REPLICA, f.lit(UNEXPLAINED).alias("kind"), "reason")
    return contradictions.unionByName(unexplained)


def _other_batches(judged: Judged) -> DataFrame:
    """Return the replicas of which other batches were served or seen last than are stored.

    Compares their number and digest, as `harness.observe.batch_digest` defines it.
    """
    share = f.col("crc") * (f.pmod(f.col("base_offset"), f.lit(DIGEST_MODULUS)) + 1)
    on_disk, fetched = f.col("source") == DISK, f.col("source") == FETCH
    batches = (
        judged.evidence.entries.where((f.col("snapshot") == AFTER_REJOIN) & f.col("first_in_batch"))
        .join(judged.replicas.select(*REPLICA, "log_start", "served"), REPLICA)
        .where("last_offset >= log_start")
        .groupBy(*REPLICA, "served")
        .agg(
            f.count(f.when(on_disk, 1)).alias("stored"),
            f.bit_xor(f.when(on_disk, share)).alias("stored_digest"),
            f.count(f.when(fetched, 1)).alias("fetched"),
            f.bit_xor(f.when(fetched, share)).alias("fetched_digest"),
        )
    )
    last = judged.evidence.observations.groupBy(*REPLICA).agg(
        f.max_by("batches", "time_ms").alias("seen"), f.max_by("digest", "time_ms").alias("seen_digest")
    )
    served_others = f.expr("served AND NOT (stored_digest <=> fetched_digest AND stored = fetched)")
    seen_others = f.expr("seen IS NOT NULL AND NOT (stored_digest <=> seen_digest AND stored = seen)")
    reasons = f.array_compact(
        f.array(
            f.when(
                served_others,
                f.format_string(
                    "%d batches on disk and %d served after the rejoin, with other content",
                    "stored",
                    "fetched",
                ),
            ),
            f.when(
                seen_others,
                f.format_string(
                    "the stored log (%d batches) is not what was last seen there (%d batches)",
                    "stored",
                    "seen",
                ),
            ),
        )
    )
    return in_one(batches).join(last, REPLICA, "left").select(*REPLICA, f.explode(reasons).alias("reason"))


def _open_is_not_open(judged: Judged) -> DataFrame:
    told = (
        judged.replicas.where("open IS NOT NULL")
        .select(*REPLICA, f.explode("open").alias("txn"))
        .select(*REPLICA, f.col("txn")[0].alias("producer_id"), f.lit(True).alias("told"))
    )
    asked = judged.replicas.where("open IS NOT NULL").select(*REPLICA)
    opened = judged.opened.join(asked, REPLICA, "left_semi")
    derived = opened.select(*REPLICA, "producer_id", f.lit(True).alias("derived"))
    return (
        told.join(derived, [*REPLICA, "producer_id"], "full")
        .where("told IS NULL OR derived IS NULL")
        .select(
            *REPLICA,
            _reason(
                "the broker says that producer %d has %s open transaction, its log that it has %s",
                "producer_id", _an_or_no("told"), f.when(f.col("derived").isNull(), "none").otherwise("one"),
            ),
        )
    )  # fmt: skip


def _stable_past_open(judged: Judged) -> DataFrame:
    return (
        judged.opened
        .join(judged.replicas.select(*REPLICA, "last_stable_offset"), REPLICA)
        .where("last_stable_offset > first_offset")
        .select(
            *REPLICA,
            _reason(
                "the broker's last stable offset %d is past offset %d, "
                "where its log leaves a transaction open",
                "last_stable_offset", "first_offset",
            ),
        )
    )  # fmt: skip


def _delivered_is_not_derived(judged: Judged) -> DataFrame:
    polls = judged.evidence.history.where("f = 'poll' AND type = 'ok'").select(*REPLICA, "records", "position")
    delivered = (
        polls.select(*REPLICA, f.explode("records.offset").alias("offset"), f.lit(True).alias("delivered"))
        .join(judged.replicas.select(*REPLICA, "bound"), REPLICA)
        .where("offset < bound")
        .drop("bound")
    )
    frozen_at = judged.opened.groupBy(*REPLICA).agg(f.min("first_offset").alias("frozen_at"))
    derived = (
        judged.records.where(f.col("belief") == COMMITTED)
        .join(polls.select(*REPLICA), REPLICA, "left_semi")
        .join(frozen_at, REPLICA, "left")
        .where("frozen_at IS NULL OR offset < frozen_at")
        .select(*REPLICA, "offset", f.lit(True).alias("derived"))
    )
    return (
        in_one(in_one(delivered).join(derived, [*REPLICA, "offset"], "full"))
        .where("delivered IS NULL OR derived IS NULL")
        .groupBy(*REPLICA)
        .agg(f.min("offset").alias("offset"), f.min_by("delivered", "offset").alias("delivered"))
        .select(
            *REPLICA,
            _reason(
                "a read_committed consumer was %s offset %d, which the stored log %s",
                f.when(f.col("delivered").isNull(), "not delivered").otherwise("delivered"), "offset",
                f.when(f.col("delivered").isNull(), "gives").otherwise("does not give"),
            ),
        )
    )  # fmt: skip


def _unexplained_states(judged: Judged) -> DataFrame:
    """Return the wrong final states that are no anomaly's effect.

    Explained: what is alive here was aborted; the true record is hidden or open here; or it is a tombstone
    that is missing, which is tombstone-divergence by definition.
    """
    hidden = judged.hidden.select(*REPLICA, f.col("offset").alias("true_offset")).distinct()
    opened = judged.records.where(f.col("belief") == OPEN).select(*REPLICA, f.col("offset").alias("true_offset"))
    return (
        judged.differing_keys.where(f.coalesce(f.col("here_truth") == COMMITTED, f.lit(True)))
        .where("NOT (true_tombstone AND here_offset < true_offset)")
        .join(hidden, [*REPLICA, "true_offset"], "left_anti")
        .join(opened, [*REPLICA, "true_offset"], "left_anti")
        .select(
            *REPLICA,
            _reason(
                "key %s: the last committed record is at offset %s, this broker's is at %s, "
                "and nothing tells why",
                printable("key"), _number("true_offset"), _number("here_offset"),
            ),
        )
    )  # fmt: skip


def _reason(template: str, *columns: Column | str) -> Column:
    return f.format_string(template, *columns).alias("reason")


def _number(column: str) -> Column:
    return f.coalesce(f.col(column).cast("string"), f.lit("none"))


def _an_or_no(column: str) -> Column:
    return f.when(f.col(column).isNull(), "no").otherwise("an")
