"""Clients of soaks on a fake library: their histories, their actions after failures, and the log of their knowledge."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from harness.clients import NO_OFFSET, Answered, ClientError, Headers, Library, TransactionStep
from harness.errors import HarnessError
from harness.host.clock import RealClock
from harness.kafka_api import TopicPartition
from harness.run_folder.history import DELETE_RECORDS, FAIL, INVOKE, OK, RECREATE, History, read_lines
from harness.schedules.operations import CommitOffset, DeleteGroup, Die, End, Operation, SendOffset, VisitGroup, Write
from harness.schedules.schedule import RoundClient
from harness.soak.evidence import client_log
from harness.soak.evidence.client_log import ABORTED, COMMITTED, UNKNOWN, client_log_of
from harness.soak.play.clients import MOST_POLLS, MOST_UNANSWERED, ClientProcess

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


@pytest.mark.parametrize(("then", "outcome"), [
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
])  # fmt: skip
def test_how_a_transaction_ended(then: list[tuple[Any, ...]], outcome: str) -> None:
    log = client_log_of(history(put(1, txn=1), put(1, OK, txn=1), *then))
    assert log.outcome_of(log.writes[1]) == outcome


def test_a_new_start_aborts_only_what_was_open_before_and_checkers_are_told() -> None:
    log = client_log_of(history(of_id(OK, "init", 1), put(2, txn=1), of_id(OK, "init", 3), put(4, txn=2)))
    assert [log.outcome_of(log.writes[op]) for op in (2, 4)] == [ABORTED, UNKNOWN]
    events = history(put(1, txn=1), put(1, OK, txn=1), of_id(INVOKE, "init", 2), of_id(OK, "init", 2))
    added = client_log.events_for_checkers(events)[len(events) :]
    assert [(event["type"], event["f"], event["transactional_id"], event["txn"]) for event in added] == [
        (INVOKE, "abort", "id", 1), (OK, "abort", "id", 1),
    ]  # fmt: skip
    assert {event["op"] for event in added}.isdisjoint(event["op"] for event in events)
    ended = history(put(1, txn=1), of_id(INVOKE, "abort", 2, 1), of_id(OK, "abort", 2, 1))
    assert client_log.events_for_checkers(ended) == ended


@pytest.mark.parametrize(("lines", "offsets", "for_checkers"), [
    ([put(1), put(1, OK), put(2), (INVOKE, RECREATE, 3, AGAIN), put(2, OK), put(4), (OK, RECREATE, 3, AGAIN),
      put(4, OK), put(5), put(5, OK), put(6, topic="other"), put(6, OK, topic="other")],
     {2: None, 4: None, 5: 5, 6: 6}, {5, 6}),
    # The records of the first topic are gone. The second topic may still exist.
    ([put(1), put(1, OK), (INVOKE, RECREATE, 2, AGAIN), (OK, RECREATE, 2, AGAIN), put(3), put(3, OK),
      (INVOKE, RECREATE, 4, AGAIN), (INFO, RECREATE, 4, AGAIN), put(5), put(5, OK)], {3: None, 5: None}, set()),
], ids=["created again", "maybe created again"])  # fmt: skip
def test_records_of_a_topic_that_was_deleted_are_gone_or_unknown(
    lines: list[Any], offsets: dict[int, int | None], for_checkers: set[int]
) -> None:
    events = history(*lines)
    assert {op: write.offset for op, write in client_log_of(events).writes.items()} == offsets
    produced = [event["op"] for event in client_log.events_for_checkers(events) if event["f"] == "produce"]
    assert set(produced) == for_checkers


def test_deletions_that_were_asked_for() -> None:
    place = {"topic": "t", "partition": 0}
    first, second = ((INVOKE, DELETE_RECORDS, op, {**place, "before": before}) for op, before in ((1, 9), (2, 4)))
    assert client_log_of(history(first, second)).deleted_before == {("t", 0): 9}
    tried = [first, (INVOKE, RECREATE, 2, AGAIN)]
    assert client_log_of(history(*tried)).deleted_before == {("t", 0): 9}
    assert client_log_of(history(*tried, (OK, RECREATE, 2, AGAIN))).deleted_before == {}


PUT, COMMIT, ABORT = Write("c", "k", topic="t"), End("c", "commit"), End("c", "abort")


@dataclass(eq=False)
class FakeLibrary:
    """Stands for a library, and for its producers, groups and members.

    Answers everything, but for the operations in ``fails``, once each: with certainty where that is True.
    """

    fails: dict[str, bool] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)

    def opened(self) -> Library:
        return Library(lambda _: self, self, lambda: self, self.once)

    def once(self) -> FakeLibrary:
        self.calls.append("made to send once")
        return self

    def do(self, operation: str) -> None:
        self.calls.append(operation)
        if operation in self.fails:
            raise ClientError(f"{operation} failed", certainly=self.fails.pop(operation))

    def transact(self, step: TransactionStep) -> None:
        self.do(step)

    def send(self, to: TopicPartition, key: str | bytes, value: str | None, headers: Headers, reply: Answered) -> None:
        del to, key, value, headers
        self.do("send")
        self.answers.append(reply)

    def flush(self) -> int:
        self.calls.append("flush")
        for offset, answered in enumerate(self.answers):
            has_no_offset = self.fails.pop("offset", None) is not None
            is_late = not has_no_offset and self.fails.pop("answer", None) is not None
            answered(ClientError("timed out") if is_late else None, NO_OFFSET if has_no_offset else offset)
        self.answers.clear()
        return 0

    def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.do(f"send offsets of {group}: {dict(offsets)}")

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.do(f"commit offsets of {group}: {dict(offsets)}")

    def delete(self, group: str) -> None:
        self.do(f"delete {group}")

    def producer(self, transactional_id: str) -> Any:
        raise NotImplementedError(transactional_id)

    def consumer(self, group: str, topic: str, protocol: str) -> FakeLibrary:
        self.do(f"join {group} of {topic} ({protocol})")
        return self

    def poll(self, _timeout_s: float) -> Sequence[tuple[TopicPartition, int]]:
        self.do("poll")
        return []

    def close(self) -> None:
        self.do("leave")


@contextmanager
def processes(folder: Path) -> Iterator[Callable[[RoundClient, Library], ClientProcess]]:
    """Yield a function that makes processes of clients."""
    with closing(History(folder / "history.jsonl", RealClock())) as history:
        yield lambda client, library: ClientProcess(client, library, history, itertools.count(1))


def play(
    folder: Path, library: FakeLibrary, *operations: Operation, transactional_id: str | None = "id"
) -> list[tuple[str, str, int | None]]:
    """Have a client do these and close; return type, operation and transaction of each event."""
    folder.mkdir(exist_ok=True)
    with processes(folder) as process_of:
        process = process_of(RoundClient("c", "fake", transactional_id), library.opened())
        for operation in operations:
            process.play(operation)
        process.close()
    events = read_lines(folder / "history.jsonl")
    return [(event["type"], event["f"], event.get("txn")) for event in events if event["type"] != "invoke"]


def test_a_transaction_begins_with_its_first_record_and_anew_where_the_client_died(tmp_path: Path) -> None:
    assert play(tmp_path / "no transaction", FakeLibrary(), COMMIT, ABORT) == [("ok", "init", None)]
    done = play(tmp_path / "two", FakeLibrary(), PUT, PUT, COMMIT, PUT, ABORT)
    assert done == [
        ("ok", "init", None), ("ok", "begin", 1), ("ok", "produce", 1), ("ok", "produce", 1), ("ok", "commit", 1),
        ("ok", "begin", 2), ("ok", "produce", 2), ("ok", "abort", 2), ("ok", "init", None),
    ]  # fmt: skip
    library = FakeLibrary()
    done = play(tmp_path, library, PUT, Die("c"), PUT, COMMIT)
    assert [f for _, f, _ in done].count("init") == 3, "at first, after its death, and in the end"
    assert "abort" not in library.calls
    assert ("ok", "commit", 2) in done


@pytest.mark.parametrize(("certainly", "kind"), [(True, "fail"), (False, "info")])
def test_after_a_failure_a_new_producer_goes_on(tmp_path: Path, *, certainly: bool, kind: str) -> None:
    done = play(tmp_path, FakeLibrary({"commit": certainly}), PUT, COMMIT, PUT, COMMIT)
    assert (kind, "commit", 1) in done
    assert ("ok", "commit", 2) in done
    assert done[done.index((kind, "commit", 1)) + 1] == ("ok", "init", None)


def test_an_unacknowledged_record_ends_the_transaction_and_one_without_an_offset_does_not(tmp_path: Path) -> None:
    assert ("fail", "produce", 1) in play(tmp_path / "a", FakeLibrary({"send": True}), PUT, COMMIT)
    done = play(tmp_path / "b", FakeLibrary({"answer": False}), PUT, COMMIT)
    assert ("info", "produce", 1) in done
    assert ("ok", "commit", 1) not in done
    done = play(tmp_path / "c", FakeLibrary({"offset": False}), PUT, PUT, COMMIT)
    assert [kind for kind, f, _ in done if f == "produce"] == ["info", "ok"]
    assert ("ok", "commit", 1) in done, "it is written all the same"


def test_a_client_outside_of_transactions_waits_for_answers_now_and_then(tmp_path: Path) -> None:
    library = FakeLibrary()
    done = play(tmp_path, library, *[PUT] * (2 * MOST_UNANSWERED + 1), transactional_id=None)
    assert done == [("ok", "produce", None)] * (2 * MOST_UNANSWERED + 1)
    assert library.calls.count("flush") == 3, "twice on the way, and once at the end"


def test_what_clients_do_with_groups(tmp_path: Path) -> None:
    library = FakeLibrary()
    done = play(
        tmp_path, library, SendOffset("c", "g", "t", 0, 7), COMMIT, CommitOffset("c", "g", "t", 1, 8),
        VisitGroup("c", "g", "t", "classic"), DeleteGroup("c", "g"),
    )  # fmt: skip
    assert [f for kind, f, _ in done if kind == "ok"] == [
        "init", "begin", "send offset", "commit", "commit offset", "visit group", "delete group", "init",
    ]  # fmt: skip
    groups = ("send offsets", "commit offsets", "join", "poll", "leave", "delete")
    assert [call for call in library.calls if call.startswith(groups)] == [
        "send offsets of g: {('t', 0): 7}", "commit offsets of g: {('t', 1): 8}", "join g of t (classic)",
        *["poll"] * MOST_POLLS, "leave", "delete g",
    ]  # fmt: skip
    events = [event for event in read_lines(tmp_path / "history.jsonl") if event["f"].endswith("offset")]
    assert {(e["group"], e["input"], e["committed"]) for e in events} == {("g", "t-0", 7), ("g", "t-1", 8)}
    assert not any("offset" in event for event in events), "checkers treat it as the offset of a record"


@pytest.mark.parametrize(("client", "sends_once"), [
    (RoundClient("c", "fake"), True),
    (RoundClient("c", "fake", "id"), False),
    (RoundClient("c", "fake", is_idempotent=True), False),
])  # fmt: skip
def test_who_may_send_a_record_again(tmp_path: Path, client: RoundClient, *, sends_once: bool) -> None:
    """Copies of records of a producer that is not idempotent may be appended at any time: after later values, too."""
    library = FakeLibrary()
    with processes(tmp_path) as process_of:
        process_of(client, library.opened()).play(PUT)
    assert ("made to send once" in library.calls) is sends_once


def test_what_a_library_lacks_ends_the_round(tmp_path: Path) -> None:
    with processes(tmp_path) as process_of:
        for client, operation in (
            (RoundClient("c", "fake"), DeleteGroup("c", "g")),
            (RoundClient("c", "fake", is_idempotent=True), PUT),
            (RoundClient("c", "fake", "id"), SendOffset("c", "g", "t", 0, 1)),
        ):
            with pytest.raises(HarnessError, match=r"here$"):
                process_of(client, Library(lambda _: FakeLibrary())).play(operation)


def test_a_client_that_is_closed_lets_go_of_its_producer(tmp_path: Path) -> None:
    """An answer that never comes keeps the client, and kept the producer: 3,188 threads after 86 rounds of a soak."""
    library, made = FakeLibrary(), []

    def producer(_: str | None) -> FakeLibrary:
        copy = replace(library)
        made.append(weakref.ref(copy))
        return copy

    with processes(tmp_path) as process_of:
        process = process_of(RoundClient("c", "fake", "id"), replace(library.opened(), producer=producer))
        process.play(PUT)
        never = [*library.answers]
        process.play(Die("c"))
        process.close()
    assert never
    assert [reference() for reference in made] == [None, None]
