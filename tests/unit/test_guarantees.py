"""Each guarantee on hand-written histories: violations, and similar histories that are legal; all cases in one job.

Times are of the harness's clock: a record is begun at its ``at_ms``, and the observer looks when a line says.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import literal
import pytest
from literal import Txn, abort, absent, appeared, commit, delete, emptied, emptied_marker, put, removed, replica
from pyspark.sql import SparkSession
from test_checkers import by_run

from checkers import guarantees
from checkers.evidence.parse import NotReadableError, json_object, retentions_ms
from checkers.evidence.tables import load, raise_if_damaged
from checkers.replay.judged import judge
from harness.judge.check import collected

T1, T2 = Txn(5, "t/1"), Txn(5, "t/2")
U1 = Txn(7, "u/1")
LAST, ORDER, OFFSETS = "last-value", "order", "offsets"
TOMBSTONES, LAG, CONTROL = "tombstones", "min-compaction-lag", "control-batches"
RETAINED = {"delete.retention.ms": "500"}
LAGGING = {"min.compaction.lag.ms": "300"}
END = put(9, "end", at_ms=60)


@dataclass(frozen=True)
class Broken:
    """The expected violations of a guarantee: the first of each replica; None without any."""

    broker: int | None
    offset: int
    says: str
    count: int = 1


@dataclass(frozen=True)
class Case:
    """A history, a guarantee, the number of values that it compares for each replica, and the violations."""

    guarantee: str
    history: literal.History
    compared: dict[int | None, int]
    broken: tuple[Broken, ...] = ()


def case(guarantee: str, name: str, compared: dict[int | None, int], *broken: Broken, **history: Any) -> Case:
    return Case(guarantee, literal.History(name, **history), compared, broken)


def everywhere(*log: literal.Entry, **fields: Any) -> tuple[literal.Replica, ...]:
    return tuple(replica(broker, *log, **fields) for broker in (1, 2))


def seen(entry: literal.Entry, *, gone_at_ms: int, broker: int = 1, **then: int) -> tuple[literal.Seen, ...]:
    """What was there at 100 ms, and gone later; ``then``: the replica's fields when it was gone."""
    return appeared(broker, entry), removed(broker, entry, at_ms=gone_at_ms, **then)


last_value_case, order_case, offsets_case = (partial(case, guarantee) for guarantee in (LAST, ORDER, OFFSETS))

LAST_VALUE_CASES = [
    last_value_case(
        "the last value is of a transaction, and gone", {1: 2, 2: 2}, Broken(1, 0, "and this replica serves nothing"),
        wrote=(put(0, "K", T1), commit(1, T1), END),
        after=(replica(1, commit(1, T1), END), replica(2, put(0, "K", T1), commit(1, T1), END))),
    last_value_case(
        "the last value is gone", {1: 2, 2: 2},
        Broken(1, 0, "key K: its last committed record is the value at offset 0, and this replica serves nothing"),
        wrote=(put(0, "K"), END), after=(replica(1, END), replica(2, put(0, "K"), END))),
    last_value_case(
        "an older value in place of the last two", {1: 3, 2: 3},
        Broken(1, 1, "is the value at offset 1, and this replica serves the record at offset 0", count=2),
        wrote=(put(0, "K"), put(1, "K"), put(2, "L"), END),
        after=(replica(1, put(0, "K"), END), replica(2, put(1, "K"), put(2, "L"), END))),
    last_value_case(
        "a deleted value is alive", {1: 2, 2: 2},
        Broken(2, 1, "is the delete at offset 1, and this replica serves the record at offset 0"),
        wrote=(put(0, "K"), delete(1, "K"), END), after=(replica(1, END), replica(2, put(0, "K"), END))),
    last_value_case(
        "superseded values and a delete that went with its value", {1: 3, 2: 3},
        wrote=(put(0, "K"), put(1, "K"), put(2, "L"), delete(3, "L"), END),
        after=(replica(1, put(1, "K"), END), replica(2, put(0, "K"), put(1, "K"), delete(3, "L"), END))),
    last_value_case(
        "an aborted value is not the last value", {1: 2, 2: 2}, wrote=(put(0, "K"), put(1, "K", T1), abort(2, T1), END),
        after=everywhere(put(0, "K"), END)),
    last_value_case(
        "the client did not see the transaction end, and one replica has its marker no more", {1: 1, 2: 1},
        wrote=(put(0, "K"), put(1, "K", T1), commit(2, T1), END), in_doubt=(T1,),
        after=(replica(1, put(1, "K", T1), commit(2, T1), END), replica(2, put(0, "K"), END))),
    last_value_case(
        "a log that starts later", {1: 1, 2: 2}, wrote=(put(0, "K"), END),
        after=(replica(1, END, log_start=5), replica(2, put(0, "K"), END))),
]  # fmt: skip

ORDER_CASES = [
    order_case(
        "written at the same time, either may come first, and one was never acknowledged", {None: 3, 2: 3},
        wrote=(put(3, "a"), put(1, "b"), put(2, "c"), END), lost=(2,), overlapping=True,
        after=everywhere(put(1, "b"), put(3, "a"), END)),
    order_case(
        "begun later, and it lies before", {None: 3, 2: 1},
        Broken(None, 1, "the record at offset 1 was produced after offset 3 had been acknowledged"),
        wrote=(put(3, "a"), put(1, "b"), END), after=everywhere(END)),
    order_case(
        "delivered twice, and one before what came earlier", {None: 3, 2: 4},
        Broken(2, 0, "a consumer received offset 0 after offset 1", count=2), wrote=(put(0, "a"), put(1, "b"), END),
        after=everywhere(put(0, "a"), put(1, "b"), END), delivered=(1, 0, 9, 9)),
    order_case(
        "gaps are not disorder", {None: 3, 2: 2}, wrote=(put(0, "a"), put(4, "a"), END),
        after=everywhere(put(4, "a"), END)),
]  # fmt: skip

OFFSET_CASES = [
    offsets_case(
        "a marker of another producer than was seen", {1: 6, 2: 4}, Broken(1, 1, "offset 1 is a commit", count=2),
        Broken(2, 1, "offset 1 is a commit", count=2), after=everywhere(commit(1, U1), END),
        seen=(appeared(1, commit(1, T1)), appeared(1, END))),
    offsets_case(
        "another key than was acknowledged to the client", {1: 4, 2: 4},
        Broken(1, 0, "offset 0 is a value (key L, transaction none) here, and was a value (key K", count=2),
        wrote=(put(0, "K"), END), after=(replica(1, put(0, "L"), END), replica(2, put(0, "K"), END))),
    offsets_case(
        "a value that is a tombstone now", {1: 8, 2: 8},
        Broken(1, 0, "is a tombstone (key K, transaction none) here, and was a value", count=2), wrote=(END,),
        before=everywhere(put(0, "K"), END), after=(replica(1, delete(0, "K"), END), replica(2, put(0, "K"), END))),
    offsets_case(
        "the same record in another transaction", {1: 8, 2: 8},
        Broken(1, 0, "transaction t/2) here, and was a value (key K, transaction t/1)", count=2),
        Broken(2, 0, "transaction t/2) here, and was a value (key K, transaction t/1)", count=2),
        before=everywhere(put(0, "K", T1), commit(1, T1)), after=everywhere(put(0, "K", T2), commit(1, T1))),
    offsets_case(
        "a marker of another producer", {1: 4, 2: 4}, Broken(2, 1, "offset 1 is a commit", count=2),
        after=(replica(1, commit(1, T1), END), replica(2, commit(1, U1), END))),
    offsets_case(
        "a COMMIT that went as an ABORT", {1: 4, 2: 2}, Broken(1, 1, "offset 1 is a abort"), after=everywhere(END),
        seen=(appeared(1, commit(1, T1)), removed(1, abort(1, T1)))),
    offsets_case(
        "a tail beyond its high watermark, replaced after a change of leader", {1: 10, 2: 7},
        wrote=(put(0, "a"), put(1, "b"), END),
        before=(replica(1, put(0, "a"), put(1, "b")), absent(2, put(0, "a"), put(1, "stale"), high_watermark=1)),
        after=everywhere(put(0, "a"), put(1, "b"), END)),
    offsets_case(
        "seen beyond the high watermark, and another record took its place", {1: 4, 2: 4}, wrote=(put(1, "b"), END),
        after=everywhere(put(1, "b"), END),
        seen=(appeared(1, delete(1, "stale"), high_watermark=1), removed(1, delete(1, "stale"), high_watermark=9))),
    offsets_case(
        "compacted: gaps, an emptied batch, an emptied marker", {1: 15, 2: 14},
        wrote=(put(0, "a"), put(1, "K", T1), commit(2, T1), put(3, "a"), END),
        before=everywhere(put(0, "a"), put(1, "K", T1), commit(2, T1), put(3, "a"), END),
        after=everywhere(emptied(1, T1), emptied_marker(2, T1), put(3, "a"), END),
        seen=(appeared(1, commit(2, T1)), removed(1, emptied_marker(2, T1)))),
]  # fmt: skip

D = delete(1, "K", at_ms=50)
DELETED = (put(0, "K", at_ms=40), D, put(2, "x", at_ms=60))
GONE = seen(D, gone_at_ms=200, log_end=3)
tombstones_case = partial(case, TOMBSTONES, settings=RETAINED, wrote=DELETED, after=everywhere(put(2, "x")), seen=GONE)
TOMBSTONE_CASES = [
    tombstones_case(
        "replicated when it was looked at again, and a value went, too", {1: 1}, Broken(1, 1, "at most 150 ms"),
        wrote=(*DELETED, END), after=everywhere(END),
        seen=(
            appeared(1, D, high_watermark=1), appeared(1, put(2, "x"), at_ms=150), removed(1, D, log_end=3),
            removed(1, put(2, "x"), log_end=3, at_ms=201)),
    ),
    tombstones_case(
        "nobody knows whether it was committed", {},
        wrote=(put(0, "K", at_ms=40), delete(1, "K", T1, at_ms=50), put(2, "x", at_ms=60)),
        after=everywhere(put(0, "K"), put(2, "x")), seen=seen(delete(1, "K", T1), gone_at_ms=200, log_end=3)),
    tombstones_case(
        "a tombstone that went at once", {1: 1},
        Broken(1, 1, "the delete of key K at offset 1 was removed at most 499 ms after it was written"),
        seen=seen(D, gone_at_ms=549, log_end=3)),
    tombstones_case("a tombstone that went in time", {1: 1}, seen=seen(D, gone_at_ms=550, log_end=3)),
    tombstones_case(
        "written again, it went at once", {}, wrote=(D, put(2, "K", at_ms=60)), after=everywhere(put(2, "K"))),
    tombstones_case(
        "written again beyond the end of another log, it went at once", {},
        wrote=(D, put(2, "x", at_ms=60), put(3, "K", at_ms=70)),
        after=(replica(1, put(2, "x"), put(3, "K"), high_watermark=4), replica(2, D, put(2, "x")))),
    tombstones_case(
        "the second value was aborted", {1: 1},
        Broken(1, 1, "at most 150 ms after it was written, and delete.retention.ms is 500"),
        wrote=(D, put(2, "K", T1, at_ms=60), abort(3, T1), put(4, "x", at_ms=70)),
        after=everywhere(abort(3, T1), put(4, "x")), seen=seen(D, gone_at_ms=200, log_end=5)),
    tombstones_case(
        "the records after it are unknown", {}, wrote=(D, put(3, "x", at_ms=60)), after=everywhere(put(3, "x")),
        seen=seen(D, gone_at_ms=200, log_end=4)),
    tombstones_case(
        "an unknown record was written when it was gone", {1: 1}, Broken(1, 1, "at most 150 ms"),
        wrote=(D, put(2, "x", at_ms=60), put(5, "x", at_ms=70)), after=everywhere(put(5, "x"))),
    tombstones_case(
        "an aborted delete goes at once", {}, wrote=(delete(1, "K", T1, at_ms=50), abort(2, T1), put(3, "x", at_ms=60)),
        after=everywhere(abort(2, T1), put(3, "x")), seen=seen(delete(1, "K", T1), gone_at_ms=200, log_end=4)),
    tombstones_case(
        "truncated with its tail", {}, after=everywhere(put(0, "K"), D, put(2, "x")),
        seen=(appeared(1, D, high_watermark=1), removed(1, D, log_end=3))),
    tombstones_case("deleted with all that was before", {}, seen=seen(D, gone_at_ms=200, log_end=3, log_start=2)),
    tombstones_case("not yet there again", {}, seen=seen(D, gone_at_ms=200, log_end=1)),
    tombstones_case("nobody knows for how long tombstones stay", {}, settings=None),
]  # fmt: skip

OLD = put(0, "K", at_ms=10)
lag_case = partial(case, LAG, settings=LAGGING, wrote=(OLD, put(1, "K", at_ms=20)), after=everywhere(put(1, "K")))
LAG_CASES = [
    lag_case(
        "acknowledged twice at one offset", {1: 1}, Broken(1, 0, "at most 289 ms"),
        wrote=(OLD, put(0, "K", at_ms=60), put(1, "K", at_ms=70)), seen=seen(OLD, gone_at_ms=349)),
    lag_case(
        "nobody knows when it was written", {}, wrote=(put(1, "K", at_ms=20),), before=everywhere(OLD, put(1, "K")),
        seen=seen(OLD, gone_at_ms=110)),
    lag_case(
        "a superseded value that went too early", {1: 1},
        Broken(1, 0, "the value at offset 0 was removed at most 299 ms after it was written"),
        seen=seen(OLD, gone_at_ms=309)),
    lag_case("a superseded value that went in time", {1: 1}, seen=seen(OLD, gone_at_ms=310)),
    lag_case(
        "a marker is no older than what lies before it", {1: 1},
        Broken(1, 2, "the commit at offset 2 was removed at most 299 ms"),
        wrote=(put(0, "K", T1, at_ms=10), put(1, "x", at_ms=50), commit(2, T1), END), after=everywhere(END),
        seen=seen(commit(2, T1), gone_at_ms=349)),
    lag_case("nothing is promised", {}, settings=RETAINED, seen=seen(OLD, gone_at_ms=101)),
]  # fmt: skip

C = commit(1, T1)
BEGUN = put(0, "K", T1, at_ms=50)
UNTIED = literal.untied(BEGUN)
control_case = partial(
    case, CONTROL, settings=RETAINED, wrote=(BEGUN, C, END), after=everywhere(END), seen=seen(C, gone_at_ms=900)
)
CONTROL_CASES = [
    control_case(
        "a marker went and left two batches, which the next marker covers", {1: 2},
        Broken(1, 2, "the marker at offset 2 was removed, and the batch that ends at offset 0"),
        wrote=(BEGUN, put(1, "L", T1), commit(2, T1), put(3, "M", T2), commit(4, T2), END),
        after=everywhere(BEGUN, put(1, "L", T1), put(3, "M", T2), commit(4, T2), END),
        seen=seen(commit(2, T1), gone_at_ms=900)),
    control_case("the remaining batch is not in a transaction any more", {1: 2}, after=everywhere(UNTIED, END)),
    control_case("lost with the end of the log", {}, wrote=(BEGUN,), after=everywhere(BEGUN), seen=(appeared(1, C),)),
    control_case(
        "a marker went and left its transaction's record", {1: 2},
        Broken(1, 1, "the marker at offset 1 was removed, and the batch that ends at offset 0"),
        after=(replica(1, BEGUN, END), replica(2, BEGUN, C, END))),
    control_case(
        "a marker was emptied and its transaction's emptied batch is left", {1: 1},
        Broken(1, 1, "the marker at offset 1 was removed"), seen=(), before=(replica(1, BEGUN, C, END),),
        after=(replica(1, emptied(0, T1), emptied_marker(1, T1), END), replica(2, BEGUN, C, END))),
    control_case(
        "a marker went too early", {1: 2},
        Broken(1, 1, "the COMMIT marker at offset 1 was removed at most 499 ms after it was written"),
        seen=seen(C, gone_at_ms=549)),
    control_case(
        "a marker went, and its retention is unknown: only the removal of its data is compared", {1: 1}, settings=None,
        seen=seen(C, gone_at_ms=549)),
    control_case(
        "a marker went in time, after its data", {1: 2}, seen=(*seen(BEGUN, gone_at_ms=300), *seen(C, gone_at_ms=550))),
    control_case(
        "a marker never arrived, and the record of its transaction is present", {1: 2},
        before=(replica(1, END), absent(2, BEGUN)), after=(replica(1, END), replica(2, BEGUN, END))),
    control_case(
        "a marker was removed, and its producer's next transaction is present", {1: 2},
        wrote=(BEGUN, C, put(2, "L", T2), commit(3, T2), END), after=everywhere(put(2, "L", T2), commit(3, T2), END)),
    control_case(
        "a marker was removed, and an older transaction has another marker", {1: 2},
        wrote=(BEGUN, C, put(2, "L", T2), commit(3, T2), END), after=everywhere(BEGUN, C, END),
        seen=seen(commit(3, T2), gone_at_ms=900)),
    control_case(
        "a marker beyond the high watermark was truncated", {}, wrote=(BEGUN, END), after=everywhere(BEGUN, END),
        before=(replica(1, BEGUN, C, high_watermark=1),), seen=(appeared(1, C, high_watermark=1), removed(1, C))),
    control_case(
        "an emptied batch is full again", {1: 1},
        Broken(1, 1, "the control batch at offset 1 was empty, and is a full marker again"), seen=(),
        before=(replica(1, emptied_marker(1, T1), END), replica(2, emptied_marker(1, T1), END)),
        after=(replica(1, C, END), replica(2, C, END, directory="another disk"))),
    control_case(
        "emptied, and it stays so", {1: 1}, seen=(),
        before=(replica(1, emptied_marker(1, T1), END), replica(2, C, END)),
        after=(replica(1, emptied_marker(1, T1), END), replica(2, C, END))),
]  # fmt: skip

CASES = [*LAST_VALUE_CASES, *ORDER_CASES, *OFFSET_CASES, *TOMBSTONE_CASES, *LAG_CASES, *CONTROL_CASES]

Rows = list[Mapping[str, Any]]


@pytest.fixture(scope="module")
def guaranteed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    top = tmp_path_factory.mktemp("guarantees")
    evidence = load(spark, [literal.write_run(top, case.history) for case in CASES])
    raise_if_damaged(evidence.problems)
    return by_run(collected(guarantees.check(judge(evidence))))


@pytest.mark.parametrize("case", [pytest.param(case, id=case.history.name) for case in CASES])
def test_guarantee(case: Case, guaranteed: dict[str, Rows]) -> None:
    rows = [row for row in guaranteed.get(case.history.name, []) if row["guarantee"] == case.guarantee]
    assert {row["broker"]: row["compared"] for row in rows} == case.compared
    broken = [row for row in rows if row["violated"]]
    assert [(row["broker"], row["offset"], row["violated"]) for row in broken] == [
        (expected.broker, expected.offset, expected.count) for expected in case.broken
    ]
    for row, expected in zip(broken, case.broken, strict=True):
        assert expected.says in row["explanation"]
        assert json.loads(row["witness"])


@pytest.mark.parametrize(("manifest", "expected"), [
    ({}, (None, None)),
    ({"topic_settings": {}}, (86_400_000, 0)),
    ({"topic_settings": {}, "nemesis": "kill"}, (86_400_000, 0)),
    ({"topic_settings": {}, "nemesis": "clock-skew"}, (None, None)),
    ({"topic_settings": {}, "nemesis": "kill", "timers": "days"}, (None, None)),
    ({"topic_settings": {"delete.retention.ms": "300", "min.compaction.lag.ms": "7"}}, (300, 7)),
    ({"topic_settings": {}, "broker_settings": {"log.cleaner.delete.retention.ms": "5"}}, (5, 0)),
])  # fmt: skip
def test_retentions(manifest: dict[str, Any], expected: tuple[int | None, int | None]) -> None:
    assert retentions_ms(manifest) == expected


def test_json_that_is_nested_too_deeply() -> None:
    with pytest.raises(NotReadableError, match="line 3 is not JSON: maximum recursion depth exceeded"):
        json_object(b"[" * 100_000, "line 3")


def test_a_retention_that_is_no_number() -> None:
    with pytest.raises(ValueError, match=r"delete\.retention\.ms is not a number: 'soon'"):
        retentions_ms({"topic_settings": {"delete.retention.ms": "soon"}})
