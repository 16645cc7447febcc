"""Every checker on hand-written histories: what must be found, and every legal difference that must not be.

One case a run folder, and all of them checked in one Spark job: starting a job costs more than a case. Each
case states all its findings and all its doubts, so a checker that says too much fails as well.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from literal import (
    History,
    Txn,
    abort,
    aborted,
    absent,
    appeared,
    by_filler,
    commit,
    delete,
    emptied,
    emptied_marker,
    put,
    removed,
    replica,
    together,
    untied,
    write_run,
)

from checkers import (
    aborted_to_committed,
    committed_to_aborted,
    doubts,
    exposure,
    stuck_lso,
    tombstone_divergence,
)
from checkers.evidence import load, raise_if_damaged
from checkers.judged import judge
from harness.store import RunFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from checkers.judged import Judged

T1, T2, T3 = Txn(5, "t/1"), Txn(5, "t/2"), Txn(5, "t/3")
"""Transactions of one producer, as librdkafka writes them: its epoch stays (transactions v1)."""
V1, V2 = Txn(6, "v/1", epoch=0), Txn(6, "v/2", epoch=1)
"""Transactions of one producer whose epoch rises with each (v2, KIP-890)."""
U1 = Txn(7, "u/1")
"""A transaction of another producer."""

STUCK, POISON = "stuck-lso", "aborted-to-committed"
HIDDEN, DIVERGED = "committed-to-aborted", "tombstone-divergence"
VISIBLE, LATENT = "visible", "latent"
CONTRADICTION, UNEXPLAINED = "contradiction", "unexplained"


@dataclass(frozen=True)
class Finding:
    """What a finding must say; ``says`` is in the explanation, ``witness`` among the witness's fields.

    ``producer_id`` is None where the record is known from the client alone, and -1 for plain producers.
    """

    anomaly: str
    broker: int
    offset: int
    key: str
    producer_id: int | None
    effect: str
    candidates: tuple[str, ...] = ()
    says: str = ""
    witness: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Doubt:
    """What a doubt must say; ``says`` is in its reason."""

    kind: str
    broker: int
    says: str


@dataclass(frozen=True)
class Case:
    """A history, and all that the checkers must say of it."""

    history: History
    findings: tuple[Finding, ...] = ()
    doubts: tuple[Doubt, ...] = ()


END = put(9, "end")
"""Logs end with a record: the cleaner leaves the last segment alone."""

REDPANDA_CASES = [
    Case(
        History(
            "stuck on a replica that is judged by what it serves",
            wrote=(put(0, "K", T1),),
            outage=(commit(1, T1), put(2, "K"), END),
            after=(
                replica(1, put(2, "K"), END, redpanda=True),
                replica(2, put(0, "K", T1), put(2, "K"), END, redpanda=True),
            ),
        ),
        (Finding(STUCK, 2, 0, "K", 5, VISIBLE, says="read_committed is frozen at 0"),),
    ),
    Case(
        History(
            "aborted, and held without its transactional bit",
            wrote=(put(0, "poison", T1),),
            outage=(abort(1, T1), END),
            after=(
                replica(1, END, redpanda=True),
                replica(2, untied(put(0, "poison", T1)), END, redpanda=True),
            ),
        ),
        (
            Finding(
                POISON, 2, 0, "poison", 5, VISIBLE,
                says="was aborted, and this broker holds it as if it had never been in one",
            ),
        ),
    ),
    Case(
        History(
            "committed, and one replica's compaction took the transactional bit",
            wrote=(put(0, "K", T1),),
            outage=(commit(1, T1), END),
            after=(
                replica(1, untied(put(0, "K", T1)), END, redpanda=True),
                replica(2, put(0, "K", T1), commit(1, T1), END, redpanda=True),
            ),
        ),
    ),
]  # fmt: skip

STUCK_CASES = [
    Case(
        History(
            "stuck, its marker is still elsewhere",
            wrote=(put(0, "K", T1),),
            outage=(commit(1, T1), put(2, "K"), END),
            after=(
                replica(1, commit(1, T1), put(2, "K"), END),
                replica(2, put(0, "K", T1), put(2, "K"), END),
            ),
        ),
        (
            Finding(
                STUCK,
                2,
                0,
                "K",
                5,
                VISIBLE,
                says="read_committed is frozen at 0, high watermark 10: transaction t/1",
                witness={
                    "transaction": "t/1",
                    "outcome": "committed",
                    "marker_seen_elsewhere_at": 1,
                    "last_stable_offset_here": 0,
                    "other_broker": 1,
                    "last_stable_offset_there": 10,
                },
            ),
        ),
    ),
    Case(
        History(
            "stuck, its marker is gone everywhere and the client knows",
            wrote=(put(0, "K", T1),),
            outage=(commit(1, T1), put(2, "K"), END),
            after=(replica(1, put(2, "K"), END), replica(2, put(0, "K", T1), put(2, "K"), END)),
        ),
        (Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"outcome": "committed", "other_broker": 1}),),
    ),
    Case(
        History(
            "stuck, its marker was seen by the observer alone",
            wrote=(put(0, "K", T1),),
            outage=(abort(1, T1), put(2, "K"), END),
            in_doubt=(T1,),
            after=(replica(1, put(2, "K"), END), replica(2, put(0, "K", T1), put(2, "K"), END)),
            seen=(appeared(1, abort(1, T1)), removed(1, abort(1, T1))),
        ),
        (Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"outcome": "aborted", "marker_seen_elsewhere_at": 1}),),
    ),
    Case(
        History(
            "stuck, its marker was in files before the return",
            client=False,
            before=(replica(1, commit(1, T1), put(2, "K"), END), absent(2, put(0, "K", T1))),
            after=(replica(1, put(2, "K"), END), replica(2, put(0, "K", T1), put(2, "K"), END)),
        ),
        (Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"outcome": "committed", "transaction": "t/1"}),),
    ),
    Case(
        History(
            "stuck, opened by an emptied batch",
            wrote=(put(0, "K", T1),),
            outage=(commit(1, T1), put(2, "K"), END),
            after=(replica(1, commit(1, T1), put(2, "K"), END), replica(2, emptied(0, T1), put(2, "K"), END)),
        ),
        (Finding(STUCK, 2, 0, "K", 5, VISIBLE),),
    ),
    Case(
        History(
            "stuck, an emptied marker closes nothing",
            wrote=(put(0, "K", V1),),
            outage=(commit(1, V1), put(2, "K"), END),
            before=(replica(1, commit(1, V1), put(2, "K"), END), absent(2, put(0, "K", V1))),
            after=(
                replica(1, emptied_marker(1, V1), put(2, "K"), END),
                replica(2, put(0, "K", V1), emptied_marker(1, V1), put(2, "K"), END),
            ),
        ),
        (Finding(STUCK, 2, 0, "K", 6, VISIBLE),),
    ),
    Case(
        History(
            "stuck, one of two producers on two of three brokers",
            wrote=(put(0, "K", T1), put(1, "L", U1)),
            outage=(commit(2, T1), commit(3, U1), END),
            after=(
                replica(1, put(0, "K", T1), put(1, "L", U1), commit(2, T1), commit(3, U1), END),
                replica(2, put(0, "K", T1), put(1, "L", U1), commit(2, T1), END),
                replica(3, put(0, "K", T1), put(1, "L", U1), commit(2, T1), END),
            ),
        ),
        (Finding(STUCK, 2, 1, "L", 7, VISIBLE), Finding(STUCK, 3, 1, "L", 7, VISIBLE)),
    ),
    Case(
        History(
            "stuck, a delete that is not applied is not a lost tombstone",
            wrote=(put(0, "K"), delete(1, "K", T1)),
            outage=(commit(2, T1), END),
            after=(replica(1, commit(2, T1), END), replica(2, put(0, "K"), delete(1, "K", T1), END)),
        ),
        (Finding(STUCK, 2, 1, "K", 5, VISIBLE),),
    ),
]

NOT_STUCK_CASES = [
    Case(
        History(
            "open on every replica is hanging, not stuck",
            wrote=(put(0, "K", T1), commit(1, T1), END),
            after=(replica(1, put(0, "K", T1), END), replica(2, put(0, "K", T1), END)),
        )
    ),
    Case(
        History(
            "open, and its marker lies beyond the log's end",
            wrote=(put(0, "K", T1), put(1, "L"), commit(2, T1), put(3, "L")),
            after=(
                replica(1, put(0, "K", T1), put(1, "L"), commit(2, T1), put(3, "L"), high_watermark=4),
                replica(2, put(0, "K", T1), put(1, "L")),
            ),
        )
    ),
    Case(
        History(
            "open, and its marker is not replicated",
            wrote=(put(0, "K", T1), put(1, "L"), commit(2, T1)),
            in_doubt=(T1,),
            after=(
                replica(1, put(0, "K", T1), put(1, "L"), commit(2, T1)),
                replica(2, put(0, "K", T1), put(1, "L")),
            ),
        )
    ),
    Case(
        History(
            "open, and its marker was truncated",
            wrote=(put(0, "K", T1), put(1, "L"), END),
            before=(replica(1, put(0, "K", T1)), absent(2, put(0, "K", T1), abort(1, T1))),
            after=(
                replica(1, put(0, "K", T1), put(1, "L"), END),
                replica(2, put(0, "K", T1), put(1, "L"), END),
            ),
        )
    ),
    Case(
        History(
            "a follower's LSO lags behind its high watermark",
            wrote=(put(0, "K", T1), commit(1, T1), END),
            after=(
                replica(1, put(0, "K", T1), commit(1, T1), END),
                replica(2, put(0, "K", T1), commit(1, T1), END, last_stable_offset=0),
            ),
        )
    ),
]

POISON_CASES = [
    Case(
        History(
            "poison",
            wrote=(put(0, "poison", T1),),
            outage=(abort(1, T1),),
            late=(put(2, "good", T2), commit(3, T2)),
            after=(
                replica(1, put(2, "good", T2), commit(3, T2)),
                replica(2, put(0, "poison", T1), put(2, "good", T2), commit(3, T2)),
            ),
        ),
        (
            Finding(
                POISON,
                2,
                0,
                "poison",
                5,
                VISIBLE,
                says="takes the COMMIT at offset 3 for its end",
                witness={
                    "transaction": "t/1",
                    "outcome": "aborted",
                    "believed_here": "committed",
                    "marker_taken_here_at": 3,
                    "records": 1,
                },
            ),
        ),
    ),
    Case(
        History(
            "poison took the place of a value, which its broker has compacted away",
            wrote=(put(0, "K"), put(1, "K", T1)),
            outage=(abort(2, T1),),
            late=(put(3, "good", T2), commit(4, T2), END),
            after=(
                replica(1, put(0, "K"), put(3, "good", T2), commit(4, T2), END),
                replica(2, put(1, "K", T1), put(3, "good", T2), commit(4, T2), END),
            ),
        ),
        (Finding(POISON, 2, 1, "K", 5, VISIBLE),),
    ),
    Case(
        History(
            "an aborted delete is carried out",
            wrote=(put(0, "K"), delete(1, "K", T1)),
            outage=(abort(2, T1),),
            late=(put(3, "good", T2), commit(4, T2), END),
            after=(
                replica(1, put(0, "K"), put(3, "good", T2), commit(4, T2), END),
                replica(2, put(0, "K"), delete(1, "K", T1), put(3, "good", T2), commit(4, T2), END),
            ),
        ),
        (Finding(POISON, 2, 1, "K", 5, VISIBLE, says="aborted delete of K is carried out"),),
    ),
    Case(
        History(
            "an aborted delete was carried out, and nothing is left of it",
            wrote=(put(0, "K"), delete(1, "K", T1)),
            outage=(abort(2, T1),),
            late=(put(3, "good", T2), commit(4, T2), END),
            after=(
                replica(1, put(0, "K"), put(3, "good", T2), commit(4, T2), END),
                replica(2, put(3, "good", T2), commit(4, T2), END),
            ),
        ),
        doubts=(Doubt("unexplained", 2, "K"),),
    ),
    Case(
        History(
            "poison, two records, one finding",
            wrote=(put(0, "p", T1), put(1, "q", T1)),
            outage=(abort(2, T1),),
            late=(put(3, "good", T2), commit(4, T2)),
            after=(
                replica(1, put(3, "good", T2), commit(4, T2)),
                replica(2, put(0, "p", T1), put(1, "q", T1), put(3, "good", T2), commit(4, T2)),
            ),
        ),
        (Finding(POISON, 2, 0, "p", 5, VISIBLE, witness={"records": 2}),),
    ),
    Case(
        History(
            "poison behind a hanging transaction is not delivered yet",
            wrote=(put(0, "H", U1), put(1, "poison", T1)),
            outage=(abort(2, T1),),
            late=(put(3, "good", T2), commit(4, T2)),
            after=(
                replica(1, put(0, "H", U1), put(3, "good", T2), commit(4, T2)),
                replica(2, put(0, "H", U1), put(1, "poison", T1), put(3, "good", T2), commit(4, T2)),
            ),
        ),
        (Finding(POISON, 2, 1, "poison", 5, LATENT),),
    ),
    Case(
        History(
            "poison that was not acknowledged itself",
            wrote=(put(0, "poison", T1),),
            lost=(0,),
            outage=(abort(1, T1),),
            late=(put(2, "good", T2), commit(3, T2)),
            after=(
                replica(1, put(2, "good", T2), commit(3, T2)),
                replica(2, put(0, "poison", T1), put(2, "good", T2), commit(3, T2)),
            ),
        ),
        (Finding(POISON, 2, 0, "poison", 5, VISIBLE),),
    ),
    Case(
        History(
            "poison, end not acknowledged, its marker is still elsewhere",
            wrote=(put(0, "poison", T1),),
            outage=(abort(1, T1),),
            in_doubt=(T1,),
            late=(put(2, "good", T2), commit(3, T2)),
            after=(
                replica(1, abort(1, T1), put(2, "good", T2), commit(3, T2)),
                replica(2, put(0, "poison", T1), put(2, "good", T2), commit(3, T2)),
            ),
        ),
        (Finding(POISON, 2, 0, "poison", 5, VISIBLE),),
    ),
    Case(
        History(
            "poison, without a client, the marker is told by a txnindex",
            client=False,
            after=(
                replica(1, put(2, "good", T2), commit(3, T2), index=(aborted(T1, 0, 1),)),
                replica(2, put(0, "poison", T1), put(2, "good", T2), commit(3, T2)),
            ),
        ),
        (Finding(POISON, 2, 0, "poison", 5, VISIBLE, witness={"transaction": "t/1"}),),
    ),
    Case(
        History(
            "poison, an emptied marker decides nothing",
            wrote=(put(0, "poison", V1),),
            outage=(abort(1, V1),),
            late=(put(2, "good", V2), commit(3, V2)),
            after=(
                replica(1, emptied_marker(1, V1), put(2, "good", V2), commit(3, V2)),
                replica(2, put(0, "poison", V1), emptied_marker(1, V1), put(2, "good", V2), commit(3, V2)),
            ),
        ),
        (Finding(POISON, 2, 0, "poison", 6, VISIBLE, witness={"marker_taken_here_at": 3}),),
    ),
]

HIDDEN_CASES = [
    Case(
        History(
            "hidden value, superseded",
            wrote=(put(0, "K", T1),),
            outage=(commit(1, T1), put(2, "K")),
            late=(put(3, "garbage", T2), abort(4, T2), END),
            after=(
                replica(1, put(2, "K"), put(3, "garbage", T2), abort(4, T2), END),
                replica(2, put(0, "K", T1), put(2, "K"), put(3, "garbage", T2), abort(4, T2), END),
            ),
        ),
        (
            Finding(
                HIDDEN,
                2,
                0,
                "K",
                5,
                LATENT,
                says="takes the ABORT at offset 4 for its end; later records supersede it",
                witness={"transaction": "t/1", "outcome": "committed", "evidence": ["log", "txnindex"]},
            ),
        ),
    ),
    Case(
        History(
            "hidden value, the last of its key",
            wrote=(put(0, "K"), put(1, "K", T1)),
            outage=(commit(2, T1),),
            late=(put(3, "garbage", T2), abort(4, T2), END),
            after=(
                replica(1, put(1, "K", T1), commit(2, T1), put(3, "garbage", T2), abort(4, T2), END),
                replica(2, put(0, "K"), put(1, "K", T1), put(3, "garbage", T2), abort(4, T2), END),
            ),
        ),
        (Finding(HIDDEN, 2, 1, "K", 5, VISIBLE, says="the key's final state is wrong"),),
    ),
    Case(
        History(
            "hidden value that was alone of its key",
            wrote=(put(0, "K", T1),),
            outage=(commit(1, T1),),
            late=(put(3, "garbage", T2), abort(4, T2), END),
            after=(
                replica(1, put(0, "K", T1), commit(1, T1), put(3, "garbage", T2), abort(4, T2), END),
                replica(2, put(0, "K", T1), put(3, "garbage", T2), abort(4, T2), END),
            ),
        ),
        (Finding(HIDDEN, 2, 0, "K", 5, VISIBLE),),
    ),
    Case(
        History(
            "hidden delete",
            wrote=(put(0, "K"), delete(1, "K", T1)),
            outage=(commit(2, T1),),
            late=(put(3, "garbage", T2), abort(4, T2), END),
            after=(
                replica(1, put(3, "garbage", T2), abort(4, T2), END),
                replica(2, put(0, "K"), delete(1, "K", T1), put(3, "garbage", T2), abort(4, T2), END),
            ),
        ),
        (
            Finding(
                HIDDEN,
                2,
                1,
                "K",
                5,
                VISIBLE,
                says="the deleted value at offset 0 is alive again",
                witness={"alive_here_at": 0, "evidence": ["log", "txnindex"]},
            ),
        ),
    ),
    Case(
        History(
            "hidden value, byte-identical logs and only the txnindex tells",
            wrote=(put(0, "K", T1),),
            outage=(commit(1, T1), put(2, "K")),
            late=(put(3, "garbage", T2), abort(4, T2), END),
            before=(replica(1, put(2, "K"), put(3, "garbage", T2), abort(4, T2)), absent(2, put(0, "K", T1))),
            after=(
                replica(1, put(2, "K"), abort(4, T2), END, index=(aborted(T2, 3, 4),)),
                replica(2, put(2, "K"), abort(4, T2), END, index=(aborted(T1, 0, 4),)),
            ),
        ),
        (Finding(HIDDEN, 2, 0, "K", 5, LATENT, witness={"evidence": ["txnindex"], "marker_taken_here_at": 4}),),
    ),
    *(
        Case(
            History(
                f"hidden {kind}, seen by the observer alone, and the txnindex tells",
                wrote=(put(0, "K"), entry),
                outage=(commit(2, T1), put(3, "K")),
                late=(put(4, "garbage", T2), abort(5, T2), END),
                before=(replica(1, put(3, "K"), put(4, "garbage", T2), abort(5, T2)), absent(2, emptied(1, T1))),
                after=(
                    replica(1, put(3, "K"), abort(5, T2), END, index=(aborted(T2, 4, 5),)),
                    replica(2, put(3, "K"), abort(5, T2), END, index=(aborted(T1, 1, 5),)),
                ),
                seen=(appeared(2, entry),),
            ),
            (Finding(HIDDEN, 2, 1, "K", 5, LATENT, witness={"evidence": ["txnindex"]}),),
        )
        for kind, entry in (("value", put(1, "K", T1)), ("delete", delete(1, "K", T1)))
    ),
    *(
        Case(
            History(
                f"a txnindex spans a committed record that the replica {never}",
                wrote=(put(0, "K", T1),),
                outage=(abort(1, T1), put(2, "L", T2), commit(3, T2), put(4, "L")),
                late=(put(5, "garbage", T3), abort(6, T3), END),
                before=(replica(1, put(4, "L"), put(5, "garbage", T3), abort(6, T3)), absent(2, put(0, "K", T1))),
                after=(
                    replica(1, put(4, "L"), abort(6, T3), END, index=(aborted(T3, 5, 6),)),
                    replica(2, put(4, "L"), abort(6, T3), END, index=(aborted(T1, 0, 6),)),
                ),
                seen=seen,
            ),
        )
        for never, seen in (
            ("never had", (appeared(1, put(2, "L", T2)),)),
            ("had without its content", (appeared(1, put(2, "L", T2)), appeared(2, emptied(2, T2)))),
        )
    ),
    Case(
        History(
            "hidden delete, cleaned away, and the txnindex tells",
            wrote=(put(0, "K"), delete(1, "K", T1)),
            outage=(commit(2, T1),),
            late=(put(3, "garbage", T2), abort(4, T2), END),
            before=(
                replica(1, put(3, "garbage", T2), abort(4, T2)),
                absent(2, put(0, "K"), delete(1, "K", T1)),
            ),
            after=(
                replica(1, abort(4, T2), END, index=(aborted(T2, 3, 4),)),
                replica(2, put(0, "K"), abort(4, T2), END, index=(aborted(T1, 1, 4),)),
            ),
        ),
        (
            Finding(
                HIDDEN,
                2,
                1,
                "K",
                5,
                VISIBLE,
                says="the deleted value at offset 0 is alive again",
                witness={"evidence": ["held", "txnindex"]},
            ),
        ),
    ),
    Case(
        History(
            "hidden delete, cleaned away, and only the files before the return tell",
            wrote=(put(0, "K"), delete(1, "K", T1)),
            outage=(commit(2, T1),),
            late=(put(3, "garbage", T2), abort(4, T2), END),
            before=(
                replica(1, put(3, "garbage", T2), abort(4, T2)),
                absent(2, put(0, "K"), delete(1, "K", T1)),
            ),
            after=(replica(1, END), replica(2, put(0, "K"), END)),
        ),
        (
            Finding(
                HIDDEN,
                2,
                1,
                "K",
                5,
                VISIBLE,
                says="takes another marker for its end",
                witness={"evidence": ["held"], "alive_here_at": 0},
            ),
        ),
    ),
    Case(
        History(
            "hidden, one record superseded and one not",
            wrote=(put(0, "K", T1), put(1, "L", T1)),
            outage=(commit(2, T1), put(3, "K")),
            late=(put(4, "garbage", T2), abort(5, T2), END),
            after=(
                replica(1, put(1, "L", T1), commit(2, T1), put(3, "K"), put(4, "garbage", T2), abort(5, T2), END),
                replica(2, put(0, "K", T1), put(1, "L", T1), put(3, "K"), put(4, "garbage", T2), abort(5, T2), END),
            ),
        ),
        (Finding(HIDDEN, 2, 0, "K", 5, VISIBLE, witness={"records": 2}),),
    ),
    Case(
        History(
            "hidden value, superseded, on a key whose later delete is lost",
            wrote=(put(0, "K", T1),),
            outage=(commit(1, T1), put(2, "K")),
            late=(put(3, "garbage", T2), abort(4, T2), delete(5, "K"), END),
            after=(
                replica(1, put(3, "garbage", T2), abort(4, T2), END),
                replica(2, put(0, "K", T1), put(2, "K"), put(3, "garbage", T2), abort(4, T2), END),
            ),
        ),
        (
            Finding(HIDDEN, 2, 0, "K", 5, LATENT, says="later records supersede it"),
            Finding(DIVERGED, 2, 2, "K", None, VISIBLE),
        ),
    ),
    Case(
        History(
            "hidden, a higher epoch closes nothing",
            wrote=(put(0, "K", V1),),
            outage=(commit(1, V1), put(2, "K")),
            late=(put(3, "garbage", V2), abort(4, V2), END),
            after=(
                replica(1, emptied_marker(1, V1), put(2, "K"), put(3, "garbage", V2), abort(4, V2), END),
                replica(2, put(0, "K", V1), put(2, "K"), put(3, "garbage", V2), abort(4, V2), END),
            ),
        ),
        (Finding(HIDDEN, 2, 0, "K", 6, LATENT),),
    ),
    Case(
        History(
            "hidden, end not acknowledged, and another replica has its marker",
            wrote=(put(0, "K", T1), put(1, "L")),
            outage=(commit(2, T1),),
            in_doubt=(T1,),
            late=(put(3, "garbage", T2), abort(4, T2), END),
            after=(
                replica(1, put(0, "K", T1), put(1, "L"), commit(2, T1), put(3, "garbage", T2), abort(4, T2), END),
                replica(2, put(0, "K", T1), put(1, "L"), put(3, "garbage", T2), abort(4, T2), END),
            ),
        ),
        (Finding(HIDDEN, 2, 0, "K", 5, VISIBLE),),
    ),
]

DIVERGED_CASES = [
    Case(
        History(
            "deleted value alive",
            wrote=(put(0, "K"),),
            outage=(delete(1, "K"), END),
            after=(replica(1, END), replica(2, put(0, "K"), END), replica(3, delete(1, "K"), END)),
        ),
        (
            Finding(
                DIVERGED,
                2,
                0,
                "K",
                -1,
                VISIBLE,
                says="it was deleted at offset 1",
                witness={"deleted_at": 1, "alive_here_at": 0},
            ),
        ),
    ),
    Case(
        History(
            "deleted value alive, beside a high watermark on disk that lags",
            wrote=(put(0, "K"),),
            outage=(delete(1, "K"), END),
            after=(replica(1, END), replica(2, put(0, "K"), END), absent(3, delete(1, "K"), END)),
        ),
        (Finding(DIVERGED, 2, 0, "K", -1, VISIBLE),),
    ),
    Case(
        History(
            "deleted value alive, without a client, another replica holds the tombstone",
            client=False,
            after=(replica(1, delete(1, "K"), END), replica(2, put(0, "K"), END)),
        ),
        (Finding(DIVERGED, 2, 0, "K", -1, VISIBLE),),
    ),
    Case(
        History(
            "deleted value alive, the transactional tombstone never came",
            wrote=(put(0, "K"),),
            outage=(delete(1, "K", T1), commit(2, T1), END),
            before=(replica(1, delete(1, "K", T1), commit(2, T1)), absent(2, put(0, "K"))),
            after=(replica(1, END), replica(2, put(0, "K"), END)),
        ),
        (Finding(DIVERGED, 2, 0, "K", 5, VISIBLE, witness={"transaction_of_the_delete": "t/1"}),),
    ),
    Case(
        History(
            "deleted value alive, and nothing tells whether the transactional tombstone came",
            wrote=(put(0, "K"),),
            outage=(delete(1, "K", T1), commit(2, T1), END),
            after=(replica(1, delete(1, "K", T1), commit(2, T1), END), replica(2, put(0, "K"), END)),
        ),
        (Finding(DIVERGED, 2, 0, "K", 5, VISIBLE, candidates=(DIVERGED, HIDDEN)),),
    ),
]

LEGAL_CASES = [
    Case(
        History(
            "superseded value still there",
            wrote=(put(0, "K"), put(2, "K"), END),
            after=(replica(1, put(2, "K"), END), replica(2, put(0, "K"), put(2, "K"), END)),
        )
    ),
    Case(
        History(
            "tombstone still there, with and without its value",
            wrote=(put(0, "K"), delete(1, "K"), END),
            after=(
                replica(1, END),
                replica(2, delete(1, "K"), END),
                replica(3, put(0, "K"), delete(1, "K", horizon_ms=7), END),
            ),
        )
    ),
    Case(
        History(
            "key written again after its delete",
            wrote=(put(0, "K"), delete(1, "K"), put(2, "K"), END),
            after=(replica(1, put(2, "K"), END), replica(2, put(0, "K"), delete(1, "K"), put(2, "K"), END)),
        )
    ),
    Case(
        History(
            "empty batches and gaps",
            wrote=(put(0, "K", T1), commit(1, T1), put(2, "L"), put(3, "K"), put(4, "L"), END),
            after=(
                replica(1, put(0, "K", T1), commit(1, T1), put(2, "L"), put(3, "K"), put(4, "L"), END),
                replica(2, emptied(0, T1), commit(1, T1), emptied(2), put(3, "K"), put(4, "L"), END),
                replica(3, put(3, "K"), put(4, "L"), END),
            ),
        )
    ),
    Case(
        History(
            "emptied marker with nothing to close",
            wrote=(put(0, "K", V1), commit(1, V1), put(2, "K"), END),
            after=(replica(1, emptied_marker(1, V1), put(2, "K"), END), replica(2, put(2, "K"), END)),
        )
    ),
    Case(
        History(
            "another log start",
            wrote=(put(0, "K"), put(1, "L", T1), commit(2, T1), END),
            after=(
                replica(1, put(0, "K"), put(1, "L", T1), commit(2, T1), END),
                replica(2, END, log_start=3),
            ),
        )
    ),
    Case(
        History(
            "another log start, inside a segment, hides a deleted value",
            wrote=(put(0, "K"), delete(4, "K"), END),
            after=(replica(1, END), replica(2, put(0, "K"), END, log_start=3)),
        ),
    ),
    Case(
        History(
            "another log start, inside a segment, hides poison",
            wrote=(put(0, "poison", T1), abort(1, T1), put(3, "good", T2), commit(4, T2)),
            after=(
                replica(1, put(3, "good", T2), commit(4, T2)),
                replica(2, put(0, "poison", T1), put(3, "good", T2), commit(4, T2), log_start=2),
            ),
        ),
    ),
    Case(
        History(
            "cleaned beyond another's log end",
            wrote=(put(0, "K"), put(1, "L"), put(2, "M"), put(5, "K"), END),
            after=(
                replica(1, put(1, "L"), put(2, "M"), put(5, "K"), END, high_watermark=10),
                replica(2, put(0, "K"), put(1, "L"), put(2, "M")),
            ),
        )
    ),
    Case(
        History(
            "deleted and cleaned beyond another's log end",
            wrote=(put(0, "K"), put(1, "L"), put(2, "M"), delete(5, "K"), END),
            after=(
                replica(1, put(1, "L"), put(2, "M"), END, high_watermark=10),
                replica(2, put(0, "K"), put(1, "L"), put(2, "M")),
            ),
        )
    ),
    Case(
        History(
            "read beyond the log end of another",
            wrote=(put(0, "K"), put(1, "L"), put(2, "M")),
            after=(
                replica(1, put(0, "K"), put(1, "L")),
                replica(2, put(0, "K"), put(1, "L"), put(2, "M"), high_watermark=3),
            ),
        )
    ),
    Case(
        History(
            "high watermark on disk lags where a broker is down",
            wrote=(put(0, "K"), delete(1, "K"), END),
            after=(
                replica(1, END),
                absent(2, put(0, "K"), delete(1, "K"), END),
                replica(3, delete(1, "K"), END),
            ),
        )
    ),
    Case(
        History(
            "truncated beyond the high watermark",
            wrote=(put(0, "K"), put(1, "M"), END),
            before=(replica(1, put(0, "K")), absent(2, put(0, "K"), put(1, "L"))),
            after=(replica(1, put(0, "K"), put(1, "M"), END), replica(2, put(0, "K"), put(1, "M"), END)),
        )
    ),
    Case(
        History(
            "truncated, and others have gone on",
            client=False,
            before=(
                replica(1, put(0, "K"), put(1, "M", U1), commit(2, U1), END),
                absent(2, put(0, "K"), put(1, "L", T1), put(2, "N")),
            ),
            after=(
                replica(1, put(0, "K"), put(1, "M", U1), commit(2, U1), END),
                replica(2, put(0, "K"), put(1, "M", U1), commit(2, U1), END),
            ),
        )
    ),
    Case(
        History(
            "both transactions decided alike, one marker lost",
            wrote=(put(0, "K", V1),),
            outage=(commit(1, V1),),
            late=(put(2, "L", V2), commit(3, V2)),
            after=(
                replica(1, put(0, "K", V1), commit(1, V1), put(2, "L", V2), commit(3, V2)),
                replica(2, put(0, "K", V1), put(2, "L", V2), commit(3, V2)),
            ),
        )
    ),
    Case(
        History(
            "epochs rise from transaction to transaction",
            wrote=(put(0, "K", V1), abort(1, V1), put(2, "K", V2), commit(3, V2)),
            after=(
                replica(1, put(0, "K", V1), abort(1, V1), put(2, "K", V2), commit(3, V2)),
                replica(2, put(2, "K", V2), commit(3, V2)),
            ),
        )
    ),
    Case(
        History(
            "unknown outcomes, the same everywhere",
            wrote=(put(0, "K", T1), commit(1, T1), put(2, "L", U1), abort(3, U1), END),
            in_doubt=(T1, U1),
            after=(
                replica(1, put(0, "K", T1), commit(1, T1), put(2, "L", U1), abort(3, U1), END),
                replica(2, put(0, "K", T1), commit(1, T1), put(2, "L", U1), abort(3, U1), END),
            ),
        )
    ),
    Case(
        History(
            "duplicate of an acknowledged record in its own transaction",
            wrote=(put(0, "K", T1), commit(2, T1), END),
            after=(
                replica(1, put(0, "K", T1), put(1, "K", T1), commit(2, T1), END),
                replica(2, put(1, "K", T1), commit(2, T1), END),
            ),
        )
    ),
    Case(
        History(
            "duplicate of an acknowledged record in the next transaction, which is aborted",
            wrote=(put(0, "K", T1), commit(1, T1), put(3, "L", T2), abort(4, T2), END),
            after=(
                replica(1, put(0, "K", T1), commit(1, T1), put(2, "K", T1), put(3, "L", T2), abort(4, T2), END),
                replica(2, put(0, "K", T1), commit(1, T1), put(2, "K", T1), put(3, "L", T2), abort(4, T2), END),
            ),
        )
    ),
    Case(
        History(
            "an aborted delete deletes nothing",
            wrote=(put(0, "K"), delete(1, "K", T1), abort(2, T1), END),
            after=(
                replica(1, put(0, "K"), END),
                replica(2, put(0, "K"), delete(1, "K", T1), abort(2, T1), END),
            ),
        )
    ),
    Case(
        History(
            "what was aborted is gone on one replica",
            wrote=(put(0, "K", T1), abort(1, T1), END),
            after=(replica(1, END), replica(2, put(0, "K", T1), abort(1, T1), END)),
        )
    ),
    Case(
        History(
            "deleted twice, and one replica has had only the first tombstone",
            wrote=(put(0, "K"), delete(1, "K")),
            outage=(delete(3, "K"), END),
            after=(replica(1, END), replica(2, delete(1, "K"), END)),
        )
    ),
]

SAME = (put(0, "K", T1), commit(1, T1), END)
HANGING = (put(0, "K", T1), END)

DOUBT_CASES = [
    Case(
        History(
            "other batches served than stored",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME, served=(put(0, "K", T1, at_ms=77), *SAME[1:]))),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "3 batches on disk and 3 served after the rejoin, with other content"),),
    ),
    Case(
        History(
            "nothing served",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME, served=())),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "3 batches on disk and 0 served"),),
    ),
    Case(
        History(
            "another log seen last than stored",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME, last_seen=SAME[:2])),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "the stored log (3 batches) is not what was last seen there (2 batches)"),),
    ),
    Case(
        History(
            "open by the broker's word alone",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME, open=(T2,))),
        ),
        doubts=(
            Doubt(
                CONTRADICTION,
                2,
                "the broker says that producer 5 has an open transaction, its log that it has none",
            ),
        ),
    ),
    Case(
        History(
            "open by the log alone",
            wrote=HANGING,
            after=(replica(1, *HANGING), replica(2, *HANGING, open=())),
        ),
        doubts=(
            Doubt(
                CONTRADICTION,
                2,
                "the broker says that producer 5 has no open transaction, its log that it has one",
            ),
        ),
    ),
    Case(
        History(
            "stable past an open transaction",
            wrote=HANGING,
            after=(replica(1, *HANGING), replica(2, *HANGING, last_stable_offset=5)),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "last stable offset 5 is past offset 0"),),
    ),
    Case(
        History(
            "delivered what was aborted",
            wrote=(put(0, "K", T1), abort(1, T1), END),
            after=(replica(1, END), replica(2, put(0, "K", T1), abort(1, T1), END)),
            delivered=(0, 9),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "was delivered offset 0, which the stored log does not give"),),
    ),
    Case(
        History(
            "not delivered what was committed",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME)),
            delivered=(9,),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "was not delivered offset 0, which the stored log gives"),),
    ),
    Case(
        History(
            "delivered nothing at all",
            wrote=SAME,
            after=(replica(1, *SAME), replica(2, *SAME)),
            delivered=(),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "was not delivered offset 0"),),
    ),
    Case(
        History(
            "a committed value is missing and nothing tells why",
            wrote=(put(0, "K"), END),
            after=(replica(1, put(0, "K"), END), replica(2, END)),
        ),
        doubts=(Doubt(UNEXPLAINED, 2, "key K: the last committed record is at offset 0, this broker's is at none"),),
    ),
    Case(
        History(
            "an older value is alive and nothing tells why",
            wrote=(put(0, "K"), put(1, "K"), END),
            after=(replica(1, put(1, "K"), END), replica(2, put(0, "K"), END)),
        ),
        doubts=(Doubt(UNEXPLAINED, 2, "key K: the last committed record is at offset 1, this broker's is at 0"),),
    ),
    Case(
        History(
            "a delete that was not acknowledged may have happened",
            wrote=(put(0, "K"), delete(1, "K"), END),
            lost=(1,),
            after=(replica(1, END), replica(2, put(0, "K"), END)),
        ),
        doubts=(Doubt(UNEXPLAINED, 1, "key K: the last committed record is at offset 0, this broker's is at none"),),
    ),
    Case(
        History(
            "a value that only one replica has, without a client",
            client=False,
            after=(replica(1, END), replica(2, put(0, "K"), END)),
        ),
        doubts=(Doubt(UNEXPLAINED, 1, "key K"),),
    ),
]

EDGE_CASES = [
    Case(
        History(
            "stuck, and its marker is not the only one that it missed",
            client=False,
            after=(
                replica(1, commit(1, T1), abort(3, T2), put(4, "K"), END),
                replica(2, put(0, "K", T1), put(4, "K"), END),
            ),
        ),
        (Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"outcome": "committed", "marker_seen_elsewhere_at": 1}),),
    ),
    Case(
        History(
            "stuck, and two others are past it",
            wrote=(put(0, "K", T1),),
            outage=(commit(1, T1), put(2, "K"), END),
            after=(
                replica(1, put(2, "K"), END),
                replica(2, put(0, "K", T1), put(2, "K"), END),
                replica(3, put(2, "K"), END, last_stable_offset=9),
            ),
        ),
        (Finding(STUCK, 2, 0, "K", 5, VISIBLE, witness={"other_broker": 1, "last_stable_offset_there": 10}),),
    ),
    Case(
        History(
            "open, and nobody but its own broker says that it is past it",
            wrote=(put(0, "K", T1),),
            outage=(commit(1, T1), END),
            after=(replica(2, put(0, "K", T1), END, last_stable_offset=10),),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "last stable offset 10 is past offset 0"),),
    ),
    Case(
        History(
            "poison where the last stable offset has not come past",
            wrote=(put(0, "poison", T1),),
            outage=(abort(1, T1),),
            late=(put(2, "good", T2), commit(3, T2)),
            after=(
                replica(1, put(2, "good", T2), commit(3, T2)),
                replica(2, put(0, "poison", T1), put(2, "good", T2), commit(3, T2), last_stable_offset=0),
            ),
        ),
        (Finding(POISON, 2, 0, "poison", 5, LATENT),),
    ),
    Case(
        History(
            "poison on a key that was deleted later",
            wrote=(put(1, "K", T1),),
            outage=(abort(2, T1), delete(3, "K")),
            late=(put(4, "good", T2), commit(5, T2)),
            after=(
                replica(1, put(4, "good", T2), commit(5, T2)),
                replica(2, put(1, "K", T1), put(4, "good", T2), commit(5, T2)),
            ),
        ),
        (Finding(POISON, 2, 1, "K", 5, VISIBLE),),
    ),
    Case(
        History(
            "hidden, a delete and a value of one transaction",
            wrote=(put(0, "D"), delete(1, "D", T1), put(2, "K", T1)),
            outage=(commit(3, T1), put(4, "g", T2), abort(5, T2), END),
            after=(
                replica(1, delete(1, "D", T1), put(2, "K", T1), commit(3, T1), abort(5, T2), END),
                replica(2, put(0, "D"), delete(1, "D", T1), put(2, "K", T1), put(4, "g", T2), abort(5, T2), END),
            ),
        ),
        (
            Finding(
                HIDDEN, 2, 1, "D", 5, VISIBLE, says="committed delete of D is hidden as aborted: transaction t/1",
                witness={"alive_here_at": 0, "records": 2, "marker_taken_here_at": 5},
            ),
        ),
    ),
    Case(
        History(
            "hidden, a delete that was superseded and a value that was not",
            wrote=(delete(1, "D", T1), put(2, "K", T1)),
            outage=(commit(3, T1), put(4, "g", T2), abort(5, T2), put(6, "D"), END),
            after=(
                replica(1, put(2, "K", T1), commit(3, T1), abort(5, T2), put(6, "D"), END),
                replica(2, delete(1, "D", T1), put(2, "K", T1), put(4, "g", T2), abort(5, T2), put(6, "D"), END),
            ),
        ),
        (Finding(HIDDEN, 2, 1, "D", 5, VISIBLE, says="the ABORT at offset 5 for its end; the key's final state is"),),
    ),
    Case(
        History(
            "stuck, and its first batch has two records",
            wrote=(together(put(0, "K", T1), put(1, "L", T1)),),
            outage=(commit(2, T1), put(3, "K"), put(4, "L"), END),
            after=(
                replica(1, put(3, "K"), put(4, "L"), END),
                replica(2, together(put(0, "K", T1), put(1, "L", T1)), put(3, "K"), put(4, "L"), END),
            ),
        ),
        (Finding(STUCK, 2, 0, "K", 5, VISIBLE),),
    ),
    Case(
        History(
            "another log of as many batches seen last than stored",
            wrote=(put(0, "K"), END),
            after=(replica(1, put(0, "K"), END, last_seen=(put(1, "K"), END)), replica(2, put(0, "K"), END)),
        ),
        doubts=(
            Doubt(CONTRADICTION, 1, "the stored log (2 batches) is not what was last seen there (2 batches)"),
        ),
    ),
    Case(
        History(
            "nothing served by a broker that was never seen",
            wrote=(put(0, "K"), END),
            after=(replica(1, put(0, "K"), END, served=(), watched=False), replica(2, put(0, "K"), END)),
        ),
        doubts=(Doubt(CONTRADICTION, 1, "2 batches on disk and 0 served"),),
    ),
    Case(
        History(
            "a reader that had no answer",
            wrote=(put(0, "K"), END),
            after=(replica(1, put(0, "K"), END), replica(2, put(0, "K"), END)),
            answered=False,
        ),
    ),
    Case(
        History(
            "not delivered one record, and delivered another that is not there",
            wrote=(put(0, "K"), put(2, "L"), END),
            after=(
                replica(1, put(0, "K"), put(2, "L"), END),
                replica(2, put(0, "K"), put(2, "L"), END),
            ),
            delivered=(1, 2, 9),
        ),
        doubts=(Doubt(CONTRADICTION, 2, "was not delivered offset 0, which the stored log gives"),),
    ),
    Case(
        History(
            "delivered up to the first of two that are open",
            wrote=(put(0, "a"), put(1, "K", T1), put(2, "b"), put(3, "L", U1), END),
            after=tuple(
                replica(broker, put(0, "a"), put(1, "K", T1), put(2, "b"), put(3, "L", U1), END) for broker in (1, 2)
            ),
        ),
    ),
    Case(
        History(
            "a .txnindex hid it before the return, and that replica was copied anew",
            wrote=(put(0, "K", T1), commit(1, T1)),
            outage=(END,),
            before=(
                replica(1, put(0, "K", T1), commit(1, T1), END),
                absent(2, put(0, "K", T1), index=(aborted(T1, 0, 3),)),
            ),
            after=(
                replica(1, put(0, "K", T1), commit(1, T1), END),
                replica(2, put(0, "K", T1), commit(1, T1), END),
            ),
        ),
    ),
    Case(
        History(
            "poison on a key whose delete was there before the return, and went as it should",
            wrote=(put(0, "K"), delete(1, "K", T1), commit(2, T1), put(3, "K", T2)),
            outage=(abort(4, T2),),
            late=(put(5, "good", T3), commit(6, T3)),
            before=(
                replica(1, delete(1, "K", T1), commit(2, T1), abort(4, T2)),
                absent(2, delete(1, "K", T1), commit(2, T1), put(3, "K", T2)),
            ),
            after=(
                replica(1, put(5, "good", T3), commit(6, T3)),
                replica(2, put(3, "K", T2), put(5, "good", T3), commit(6, T3)),
            ),
        ),
        (Finding(POISON, 2, 3, "K", 5, VISIBLE),),
    ),
    Case(
        History(
            "a value was there before the return, and an older one is alive",
            wrote=(put(0, "K"), put(1, "K", T1)),
            outage=(commit(2, T1), END),
            before=(
                replica(1, put(1, "K", T1), commit(2, T1), END),
                absent(2, put(0, "K"), put(1, "K", T1)),
            ),
            after=(replica(1, put(1, "K", T1), commit(2, T1), END), replica(2, put(0, "K"), END)),
        ),
        doubts=(Doubt(UNEXPLAINED, 2, "key K: the last committed record is at offset 1, this broker's is at 0"),),
    ),
    Case(
        History(
            "nothing on disk of what was served and seen",
            wrote=(put(0, "K"), END),
            after=(
                replica(1, served=(put(0, "K"), END), last_seen=(put(0, "K"), END)),
                replica(2, put(0, "K"), END),
            ),
        ),
        doubts=(
            Doubt(CONTRADICTION, 1, "0 batches on disk and 2 served"),
            Doubt(CONTRADICTION, 1, "the stored log (0 batches) is not what was last seen there (2 batches)"),
        ),
    ),
    Case(
        History(
            "a commit that was not acknowledged, and the coordinator has aborted it",
            wrote=(put(0, "K", T1), commit(1, T1), END),
            in_doubt=(T1,),
            after=tuple(replica(broker, put(0, "K", T1), abort(1, T1), END) for broker in (1, 2)),
        ),
    ),
    Case(
        History(
            "written again beyond the end of a log that copied a cleaned one",
            wrote=(put(0, "K"),),
            outage=(delete(1, "K"), put(2, "L")),
            late=(put(3, "K"),),
            after=(
                replica(1, put(2, "L"), put(3, "K"), high_watermark=4),
                replica(2, put(0, "K"), put(2, "L")),
            ),
        ),
    ),
    Case(
        History(
            "deleted value alive, and what was written of the key beyond the log's end was aborted",
            wrote=(put(0, "K"),),
            outage=(delete(1, "K"), put(2, "L")),
            late=(put(3, "K", T1), abort(4, T1), END),
            after=(
                replica(1, put(2, "L"), put(3, "K", T1), abort(4, T1), END, high_watermark=10),
                replica(2, put(0, "K"), put(2, "L")),
            ),
        ),
        (Finding(DIVERGED, 2, 0, "K", None, VISIBLE),),
    ),
    Case(
        History(
            "deleted value alive, and what was written of the key since was aborted",
            wrote=(put(0, "K"),),
            outage=(delete(1, "K"), put(2, "K", T1), abort(3, T1), END),
            after=(replica(1, END), replica(2, put(0, "K"), END)),
        ),
        (Finding(DIVERGED, 2, 0, "K", None, VISIBLE),),
    ),
    Case(
        History(
            "nobody knows the outcome of what was written last, and nothing of it is left",
            wrote=(put(0, "K"), put(1, "K", T1), abort(2, T1), END),
            in_doubt=(T1,),
            after=(replica(1, put(0, "K"), END), replica(2, put(0, "K"), END)),
        ),
    ),
    Case(
        History(
            "truncated beyond the high watermark, and what took its offset was cleaned away",
            client=False,
            before=(replica(1, put(0, "K")), absent(2, put(0, "K"), delete(1, "K"))),
            after=(replica(1, put(0, "K"), put(2, "M"), END), replica(2, put(0, "K"), put(2, "M"), END)),
        ),
    ),
    Case(
        History(
            "lost by an unclean election, and another record took its offset",
            client=False,
            before=(replica(1, put(0, "K")), absent(2, put(0, "K"), put(1, "K"), high_watermark=2)),
            after=(replica(1, put(0, "K"), put(1, "M"), END), replica(2, put(0, "K"), put(1, "M"), END)),
        ),
    ),
    Case(
        History(
            "hidden beyond every high watermark",
            wrote=(put(0, "a"), put(5, "K", T1), commit(6, T1), put(7, "g", T2), abort(8, T2), END),
            after=(
                replica(
                    1, put(0, "a"), put(5, "K", T1), commit(6, T1), put(7, "g", T2), abort(8, T2), END,
                    high_watermark=5,
                ),
                replica(2, put(0, "a"), put(5, "K", T1), put(7, "g", T2), abort(8, T2), END, high_watermark=5),
            ),
            seen=(appeared(1, put(5, "K", T1)),),
        ),
    ),
    Case(
        History(
            "open everywhere, and two of its records were seen",
            wrote=(put(0, "K", T1), put(1, "L", T1), END),
            after=tuple(replica(broker, put(0, "K", T1), put(1, "L", T1), END) for broker in (1, 2)),
            seen=(appeared(1, put(0, "K", T1)), appeared(1, put(1, "L", T1))),
        ),
    ),
    Case(
        History(
            "a marker was seen and truncated, and a record of another producer took its offset",
            wrote=(put(0, "x", U1), put(1, "K", T1), abort(2, T1), commit(3, U1), END),
            in_doubt=(T1,),
            after=tuple(replica(broker, put(0, "x", U1), commit(3, U1), END) for broker in (1, 2)),
            seen=(appeared(1, commit(1, U1)), removed(1, commit(1, U1))),
        ),
    ),
]  # fmt: skip
"""At the edge of a rule: each of them is the only one for which some small change of a checker (`tests/quality`,
mutants) makes a test fail."""

CASES = [
    *STUCK_CASES,
    *NOT_STUCK_CASES,
    *POISON_CASES,
    *HIDDEN_CASES,
    *DIVERGED_CASES,
    *LEGAL_CASES,
    *DOUBT_CASES,
    *EDGE_CASES,
    *REDPANDA_CASES,
]

TOMBSTONE, MARKER = "tombstone", "marker"
HORIZON_MS = 5_000
D1, C3 = delete(3, "D"), commit(4, T1)
WROTE = (put(0, "D"), put(1, "K", T1), put(2, "x"))
OUTAGE = (D1, C3, put(5, "K"), put(6, "x"))
LEFT = (put(5, "K"), put(6, "x"))

U2, X1 = Txn(7, "u/2"), Txn(8, "x/1")
EXPOSURES = [
    History(
        "exposed by a kill",
        wrote=WROTE,
        outage=OUTAGE,
        before=(replica(1, *LEFT), replica(3, *LEFT), absent(2, *WROTE)),
        after=(replica(1, *LEFT), replica(3, *LEFT), replica(2, *WROTE, *LEFT)),
        seen=(
            *(appeared(broker, entry, at_ms=100 + broker) for broker in (1, 3) for entry in (D1, C3)),
            *(removed(broker, entry, at_ms=200 + broker) for broker in (1, 3) for entry in (D1, C3)),
        ),
    ),
    History(
        "removed everywhere without a fault",
        wrote=WROTE,
        outage=OUTAGE,
        before=tuple(replica(broker, *LEFT) for broker in (1, 2, 3)),
        after=tuple(replica(broker, *LEFT) for broker in (1, 2, 3)),
        seen=tuple(
            line
            for broker in (1, 2, 3)
            # No snapshot holds the transaction's record: only the observer can tell whose marker it is.
            for entry in (put(1, "K", T1), D1, C3)
            for line in (
                appeared(broker, entry, at_ms=100 + broker),
                removed(broker, entry, at_ms=200 + broker),
            )
        ),
    ),
    History(
        "kept while it was away",
        wrote=WROTE,
        outage=OUTAGE,
        before=(
            # Passed by the cleaner: a batch below its checkpoint is younger than the horizon.
            replica(
                1,
                delete(3, "D", horizon_ms=HORIZON_MS),
                commit(4, T1, horizon_ms=HORIZON_MS),
                put(5, "K", at_ms=HORIZON_MS),
                put(6, "x"),
                cleaned_to=6,
            ),
            # Stamped, but every batch below its checkpoint is older than the horizon.
            replica(
                3,
                delete(3, "D", horizon_ms=HORIZON_MS),
                commit(4, T1, horizon_ms=HORIZON_MS),
                put(5, "K", at_ms=HORIZON_MS),
                put(6, "x"),
                cleaned_to=5,
            ),
            absent(2, *WROTE),
        ),
        after=(
            replica(1, put(5, "K", at_ms=HORIZON_MS), put(6, "x")),
            replica(3, put(5, "K", at_ms=HORIZON_MS), put(6, "x")),
            replica(2, put(5, "K", at_ms=HORIZON_MS), put(6, "x"), directory="another disk"),
        ),
        seen=tuple(removed(broker, entry, at_ms=900 + broker) for broker in (1, 2, 3) for entry in (D1, C3)),
    ),
    History(
        "kept together and removed together",
        wrote=WROTE,
        outage=OUTAGE,
        before=(
            replica(1, *WROTE, *OUTAGE, redpanda=True, cleaned_to=5),
            replica(3, *WROTE, *OUTAGE, redpanda=True, cleaned_to=4),
            absent(2, *WROTE, redpanda=True),
        ),
        after=tuple(replica(b, put(5, "K", at_ms=HORIZON_MS), put(6, "x"), redpanda=True) for b in (1, 2, 3)),
        seen=tuple(removed(broker, entry, at_ms=900 + broker) for broker in (1, 2, 3) for entry in (D1, C3)),
    ),
    History(
        "only what was left of the marker was seen on one of two",
        wrote=(put(0, "K", V1),),
        outage=(commit(1, V1), put(2, "K"), END),
        after=(replica(1, put(2, "K"), END), replica(2, put(2, "K"), END)),
        seen=(
            appeared(1, put(0, "K", V1), at_ms=1),
            appeared(1, commit(1, V1), at_ms=2),
            appeared(2, emptied_marker(1, V1), at_ms=3),
            removed(1, emptied_marker(1, V1), at_ms=4),
            removed(2, emptied_marker(1, V1), at_ms=4),
        ),
    ),
    History(
        "the marker was never seen",
        wrote=(put(0, "K", T1),),
        outage=(commit(1, T1), put(2, "K"), END),
        after=(replica(1, put(2, "K"), END), replica(2, put(2, "K"), END)),
    ),
    History(
        "what else was written",
        wrote=(
            put(0, "A"),
            put(1, "D"),
            put(2, "D"),
            by_filler(put(3, "F")),
            together(put(4, "K", T1), put(5, "L", T1)),
            put(6, "M", U1),
            commit(7, U1),
            put(8, "N", X1),
            delete(9, "A"),
        ),
        outage=(
            delete(10, "D"),
            by_filler(delete(11, "F")),
            commit(12, T1),
            put(13, "K", T2),
            put(14, "M", U2),
            commit(15, X1),
        ),
        late=(commit(16, T2), put(17, "end"), commit(18, U2)),
        in_doubt=(X1,),
        after=(
            replica(1, commit(12, T1), put(13, "K", T2), commit(16, T2), put(17, "end"), directory=None),
            absent(2, together(put(4, "K", T1), put(5, "L", T1)), put(13, "K", T2), put(17, "end")),
        ),
    ),
    History(
        "emptied, and removed later",
        wrote=(put(0, "K", V1),),
        outage=(commit(1, V1), put(2, "K"), END),
        before=(
            replica(1, put(2, "K", at_ms=HORIZON_MS), END, cleaned_to=2, directory=None),
            absent(2, put(0, "K", V1)),
        ),
        after=(replica(1, put(2, "K", at_ms=HORIZON_MS), END, cleaned_to=9), replica(2, put(0, "K", V1), END)),
        seen=(
            appeared(1, put(0, "K", V1), at_ms=1),
            appeared(1, commit(1, V1), at_ms=2),
            removed(1, commit(1, V1), at_ms=4),
            removed(1, emptied_marker(1, V1), at_ms=9),
        ),
    ),
    History(
        "stamped, and the cleaner has not come past",
        wrote=(put(0, "D"), put(1, "x", at_ms=HORIZON_MS)),
        outage=(delete(3, "D"), END),
        before=(
            replica(1, put(1, "x", at_ms=HORIZON_MS), delete(3, "D", horizon_ms=HORIZON_MS), END, cleaned_to=3),
            absent(2, put(0, "D")),
        ),
        after=(
            replica(1, put(1, "x", at_ms=HORIZON_MS), delete(3, "D", horizon_ms=HORIZON_MS), END, cleaned_to=10),
            replica(2, put(0, "D"), put(1, "x", at_ms=HORIZON_MS), delete(3, "D"), END),
        ),
    ),
    History(
        "nothing is replicated",
        wrote=(put(0, "K", T1),),
        outage=(commit(1, T1),),
        after=(replica(1, put(0, "K", T1), high_watermark=0), replica(2, put(0, "K", T1), high_watermark=0)),
    ),
]

PARAMETERS = [pytest.param(case, id=case.history.name) for case in CASES]

CHECKERS = (stuck_lso, aborted_to_committed, committed_to_aborted, tombstone_divergence)

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Said:
    """All that the checkers said, by name of the run."""

    findings: dict[str, Rows]
    doubts: dict[str, Rows]
    exposure: dict[str, Rows]


@pytest.fixture(scope="session")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    top = tmp_path_factory.mktemp("runs")
    histories = [*(case.history for case in CASES), *EXPOSURES]
    # Planned before there is anything to read, as a run does it.
    evidence = load(spark, [RunFolder(top / history.name) for history in histories])
    judged = judge(evidence)
    for history in histories:
        write_run(top, history)
    raise_if_damaged(evidence.problems)
    return judged


@pytest.fixture(scope="session")
def said(judged: Judged) -> Said:
    findings = [row for checker in CHECKERS for row in _rows(checker.check(judged))]
    return Said(by_run(findings), by_run(_rows(doubts.check(judged))), by_run(_rows(exposure.check(judged))))


def _rows(frame: DataFrame) -> Rows:
    return [row.asDict(recursive=True) for row in frame.collect()]


def by_run(rows: Rows) -> dict[str, Rows]:
    runs: dict[str, Rows] = {}
    for row in sorted(rows, key=lambda row: (row["broker"] or 0, row.get("offset") or 0)):
        runs.setdefault(row["run"], []).append(row)
    return runs


@pytest.mark.parametrize("case", PARAMETERS)
def test_findings(case: Case, said: Said) -> None:
    rows = said.findings.get(case.history.name, [])
    assert [_facts(row) for row in rows] == [
        (w.anomaly, w.broker, "t", 0, w.offset, w.key, w.producer_id, w.effect, list(w.candidates))
        for w in case.findings
    ]
    for row, wanted in zip(rows, case.findings, strict=True):
        assert wanted.says in row["explanation"]
        witness = json.loads(row["witness"])
        assert {name: witness.get(name) for name in wanted.witness} == wanted.witness


def _facts(row: dict[str, Any]) -> tuple[Any, ...]:
    names = (
        "anomaly",
        "broker",
        "topic",
        "partition",
        "offset",
        "key",
        "producer_id",
        "effect",
        "candidates",
    )
    return tuple(row[name].decode() if name == "key" else row[name] for name in names)


@pytest.mark.parametrize("case", PARAMETERS)
def test_doubts(case: Case, said: Said) -> None:
    rows = said.doubts.get(case.history.name, [])
    assert [(row["kind"], row["broker"]) for row in rows] == [(w.kind, w.broker) for w in case.doubts], rows
    for row, wanted in zip(rows, case.doubts, strict=True):
        assert wanted.says in row["reason"]


def test_names_are_unique() -> None:
    names = [history.name for history in [*(case.history for case in CASES), *EXPOSURES]]
    assert len(set(names)) == len(names)


def _exposure(said: Said, run: str, *names: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the named facts by (kind, broker)."""
    rows = said.exposure[run]
    facts = {(row["kind"], row["broker"]): tuple(row[name] for name in names) for row in rows}
    assert len(facts) == len(rows)
    return facts


def test_exposure_names_the_payload_and_what_must_vanish(said: Said) -> None:
    offsets = _exposure(said, "exposed by a kill", "payload_offset", "critical_offset")
    assert offsets == {
        **{(TOMBSTONE, broker): (0, 3) for broker in (1, 2, 3)},
        **{(MARKER, broker): (1, 4) for broker in (1, 2, 3)},
    }


@pytest.mark.parametrize("kind", [TOMBSTONE, MARKER])
def test_exposure_by_a_kill(said: Said, kind: str) -> None:
    facts = _exposure(
        said,
        "exposed by a kill",
        "had_payload",
        "has_payload",
        "held_critical",
        "held_after",
        "seen_there",
        "removed_at_ms",
        "log_end_before",
        "log_end_after",
        "high_watermark_after",
        "same_directory",
        "was_served",
        "passed",
    )
    assert facts[kind, 1] == (False, False, False, False, True, 201, 7, 7, 7, True, True, False)
    assert facts[kind, 2] == (True, True, False, False, False, None, 3, 7, 7, True, True, False)
    assert facts[kind, 3] == (False, False, False, False, True, 203, 7, 7, 7, True, True, False)


@pytest.mark.parametrize("kind", [TOMBSTONE, MARKER])
def test_exposure_without_a_fault(said: Said, kind: str) -> None:
    facts = _exposure(
        said,
        "removed everywhere without a fault",
        "seen_there",
        "removed_at_ms",
        "held_after",
        "log_end_before",
    )
    assert {broker: facts[kind, broker] for broker in (1, 2, 3)} == {
        broker: (True, 200 + broker, False, 7) for broker in (1, 2, 3)
    }


@pytest.mark.parametrize("kind", [TOMBSTONE, MARKER])
def test_exposure_of_what_was_kept(said: Said, kind: str) -> None:
    facts = _exposure(
        said,
        "kept while it was away",
        "had_payload",
        "held_critical",
        "held_after",
        "passed",
        "removed_at_ms",
        "same_directory",
    )
    assert facts[kind, 1] == (False, True, False, True, 901, True)
    assert facts[kind, 2] == (True, False, False, False, 902, False)
    assert facts[kind, 3] == (False, True, False, False, 903, True)


@pytest.mark.parametrize("kind", [TOMBSTONE, MARKER])
def test_exposure_of_what_was_removed_together(said: Said, kind: str) -> None:
    facts = _exposure(
        said,
        "kept together and removed together",
        "had_payload",
        "held_critical",
        "held_after",
        "cleaned_past",
        "passed",
        "removed_at_ms",
        "same_directory",
        "was_served",
        "log_end_after",
    )
    past = {TOMBSTONE: (True, True), MARKER: (True, False)}[kind]
    assert facts[kind, 1] == (True, True, False, past[0], False, 901, True, True, 7)
    assert facts[kind, 2] == (True, False, False, False, False, 902, True, True, 7)
    assert facts[kind, 3] == (True, True, False, past[1], False, 903, True, True, 7)


def test_exposure_of_a_marker_that_was_never_seen(said: Said) -> None:
    assert _exposure(said, "the marker was never seen", "payload_offset", "critical_offset", "seen_there") == {
        (MARKER, 1): (0, None, False),
        (MARKER, 2): (0, None, False),
    }


def test_exposure_of_a_marker_that_was_emptied_before_it_was_removed(said: Said) -> None:
    run = "only what was left of the marker was seen on one of two"
    assert _exposure(said, run, "critical_offset", "seen_there", "removed_at_ms") == {
        (MARKER, 1): (1, True, 4),
        (MARKER, 2): (1, False, 4),
    }


def test_exposure_is_to_what_the_payload_deleted_and_ended_while_it_was_away(said: Said) -> None:
    facts = _exposure(
        said, "what else was written", "payload_offset", "critical_offset", "was_served", "same_directory"
    )
    assert facts == {
        (TOMBSTONE, 1): (2, 10, True, False),
        (TOMBSTONE, 2): (2, 10, False, False),
        (MARKER, 1): (4, 12, True, False),
        (MARKER, 2): (4, 12, False, False),
    }


def test_exposure_of_a_marker_that_was_emptied_first(said: Said) -> None:
    facts = _exposure(
        said, "emptied, and removed later", "seen_there", "removed_at_ms", "cleaned_past", "same_directory"
    )
    assert facts == {(MARKER, 1): (True, 4, True, False), (MARKER, 2): (False, None, False, True)}


def test_exposure_of_what_the_cleaner_has_not_come_past(said: Said) -> None:
    facts = _exposure(said, "stamped, and the cleaner has not come past", "cleaned_past", "passed", "held_critical")
    assert facts == {(TOMBSTONE, 1): (False, False, True), (TOMBSTONE, 2): (False, False, False)}


def test_exposure_of_what_lies_beyond_the_bound(said: Said) -> None:
    assert _exposure(said, "nothing is replicated", "payload_offset", "critical_offset") == {
        (MARKER, 1): (0, None),
        (MARKER, 2): (0, None),
    }
