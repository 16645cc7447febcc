"""The knowledge of clients, from histories of a few events."""

from typing import Any

import pytest

from harness.soak.evidence.client_log import (
    ABORTED,
    COMMITTED,
    DELETE_RECORDS,
    FAIL,
    INVOKE,
    OK,
    RECREATE,
    UNKNOWN,
    client_log_of,
    events_for_checkers,
)

INFO = "info"
AGAIN = {"topic": "t"}


def history(*lines: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return events of (type, f, op, more)."""
    return [
        {"index": at, "type": kind, "f": f, "op": op, "process": "p", "time_ms": at, **(more[0] if more else {})}
        for at, (kind, f, op, *more) in enumerate(lines)
    ]


def put(op: int, kind: str = INVOKE, txn: int | None = None, **more: Any) -> tuple[Any, ...]:
    fields = {"topic": "t", "partition": 0, "key": "k", "tombstone": False, **more}
    if txn is not None:
        fields |= {"transactional_id": "id", "txn": txn}
    return kind, "produce", op, {**fields, "offset": op} if kind == OK else fields


def of_id(kind: str, f: str, op: int, txn: int | None = None) -> tuple[Any, ...]:
    return kind, f, op, {"transactional_id": "id", "txn": txn}


def test_an_acknowledged_record_counts_and_another_may_be_either() -> None:
    log = client_log_of(history(put(1), put(2), put(1, OK), put(2, INFO)))
    outcomes = {op: (write.offset, log.outcome_of(write)) for op, write in log.writes.items()}
    assert outcomes == {1: (1, COMMITTED), 2: (None, UNKNOWN)}


@pytest.mark.parametrize(
    ("then", "outcome"),
    [
        ([], UNKNOWN),
        ([of_id(INVOKE, "commit", 3, 1)], UNKNOWN),
        ([of_id(INVOKE, "commit", 3, 1), of_id(OK, "commit", 3, 1)], COMMITTED),
        ([of_id(INVOKE, "abort", 3, 1), of_id(OK, "abort", 3, 1)], ABORTED),
        ([of_id(INVOKE, "init", 3), of_id(OK, "init", 3)], ABORTED),
        ([of_id(INVOKE, "init", 3)], UNKNOWN),
        # Its end was asked for before: it may have been committed.
        ([of_id(INVOKE, "commit", 3, 1), of_id(INFO, "commit", 3, 1), of_id(OK, "init", 4)], UNKNOWN),
        # That certainly failed, as with a producer that was fenced.
        ([of_id(INVOKE, "commit", 3, 1), of_id(FAIL, "commit", 3, 1), of_id(OK, "init", 4)], ABORTED),
    ],
)
def test_how_a_transaction_ended(then: list[tuple[Any, ...]], outcome: str) -> None:
    log = client_log_of(history(put(1, txn=1), put(1, OK, txn=1), *then))
    assert log.outcome_of(log.writes[1]) == outcome


def test_a_new_start_ends_only_what_was_open_before() -> None:
    log = client_log_of(history(of_id(OK, "init", 1), put(2, txn=1), of_id(OK, "init", 3), put(4, txn=2)))
    assert [log.outcome_of(log.writes[op]) for op in (2, 4)] == [ABORTED, UNKNOWN]


def test_records_of_a_topic_that_was_deleted_are_gone_or_unknown() -> None:
    events = history(
        put(1), put(1, OK), put(2),
        (INVOKE, RECREATE, 3, AGAIN), put(2, OK), put(4), (OK, RECREATE, 3, AGAIN),
        put(4, OK), put(5), put(5, OK), put(6, topic="other"), put(6, OK, topic="other"),
    )  # fmt: skip
    log = client_log_of(events)
    assert {op: write.offset for op, write in log.writes.items()} == {2: None, 4: None, 5: 5, 6: 6}
    assert {event["op"] for event in events_for_checkers(events) if event["f"] == "produce"} == {5, 6}


def test_where_nobody_knows_whether_a_topic_was_created_again_nothing_is_certain() -> None:
    events = history(
        put(1), put(1, OK), (INVOKE, RECREATE, 2, AGAIN), (OK, RECREATE, 2, AGAIN), put(3), put(3, OK),
        (INVOKE, RECREATE, 4, AGAIN), (INFO, RECREATE, 4, AGAIN), put(5), put(5, OK),
    )  # fmt: skip
    log = client_log_of(events)
    # The records of the first topic are gone. The second topic may still exist.
    assert {op: write.offset for op, write in log.writes.items()} == {3: None, 5: None}
    assert not [event for event in events_for_checkers(events) if event["f"] == "produce"]


def test_deletions_that_were_asked_for() -> None:
    place = {"topic": "t", "partition": 0}
    first, second = ((INVOKE, DELETE_RECORDS, op, {**place, "before": before}) for op, before in ((1, 9), (2, 4)))
    assert client_log_of(history(first, second)).deleted_before == {("t", 0): 9}
    tried = [first, (INVOKE, RECREATE, 2, AGAIN)]
    assert client_log_of(history(*tried)).deleted_before == {("t", 0): 9}
    assert client_log_of(history(*tried, (OK, RECREATE, 2, AGAIN))).deleted_before == {}


def test_checkers_are_told_what_a_new_start_aborted() -> None:
    events = history(put(1, txn=1), put(1, OK, txn=1), of_id(INVOKE, "init", 2), of_id(OK, "init", 2))
    added = events_for_checkers(events)[len(events) :]
    assert [(event["type"], event["f"], event["transactional_id"], event["txn"]) for event in added] == [
        (INVOKE, "abort", "id", 1), (OK, "abort", "id", 1),
    ]  # fmt: skip
    assert {event["op"] for event in added}.isdisjoint(event["op"] for event in events)
    ended = history(put(1, txn=1), of_id(INVOKE, "abort", 2, 1), of_id(OK, "abort", 2, 1))
    assert events_for_checkers(ended) == ended
