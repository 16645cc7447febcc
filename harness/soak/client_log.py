"""What all clients of a round know: of each record whether it was acknowledged, of each transaction how it ended.

Derived from the history (`harness.run_folder.history`). A write without an acknowledgement, or a transaction without an
acknowledged end, stays unknown: it may be either. A new start of a transactional id aborts what its former client had
left open (KIP-98), so where no end was asked for before, the transaction is aborted once that start was acknowledged.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.brokers.protocol.replica import TopicPartition

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
INVOKE, OK, FAIL = "invoke", "ok", "fail"
DELETE_RECORDS, RECREATE = "delete records", "recreate topic"
"""Operations of administrators in a history. The former has ``before``, the offset up to which records go."""
_ENDS: Final = {"commit": COMMITTED, "abort": ABORTED}


@dataclass
class WrittenRecord:
    """One record of one client; ``offset`` is None until it is acknowledged. ``number``: also in its header."""

    number: int
    topic: str
    partition: int
    key: str
    is_delete: bool
    transaction: int | None
    offset: int | None = None


@dataclass
class Transaction:
    """One transaction; its ``outcome`` is unknown until its end was acknowledged to a client."""

    number: int
    transactional_id: str
    outcome: str = UNKNOWN


@dataclass(frozen=True)
class ClientLog:
    """What all clients of a round know, by number.

    ``deleted_before``: up to where an administrator asked that records be deleted, by partition.
    """

    writes: dict[int, WrittenRecord] = field(default_factory=dict)
    transactions: dict[int, Transaction] = field(default_factory=dict)
    deleted_before: dict[TopicPartition, int] = field(default_factory=dict)

    def outcome_of(self, write: WrittenRecord) -> str:
        """Return whether a write counts: committed, aborted or unknown."""
        if write.transaction is not None:
            return self.transactions[write.transaction].outcome
        return UNKNOWN if write.offset is None else COMMITTED

    def save(self, path: Path) -> None:
        """Write its records and transactions down."""
        rows = {name: [asdict(row) for row in getattr(self, name).values()] for name in ("writes", "transactions")}
        path.write_text(json.dumps(rows))


def load_client_log(path: Path) -> ClientLog:
    """Read what `ClientLog.save` wrote."""
    rows = json.loads(path.read_text())
    return ClientLog(
        {row["number"]: WrittenRecord(**row) for row in rows["writes"]},
        {row["number"]: Transaction(**row) for row in rows["transactions"]},
    )


@dataclass(frozen=True)
class _Recreation:
    """Between which events of the history a topic was deleted and created again."""

    began: int
    ended: float


def client_log_of(events: Sequence[Mapping[str, Any]]) -> ClientLog:
    """Return what the clients of a history know.

    What was acknowledged before its topic was deleted and created again is left out: no replica may have it any more.
    What was under way meanwhile may be in either topic, and counts as not acknowledged.
    """
    log, numbers = ClientLog(), dict[tuple[str, int], int]()
    again = _recreations(events)
    invoked: dict[int, int] = {}
    asked: set[int] = set()
    by_id: dict[str, set[int]] = defaultdict(set)
    for at, event in enumerate(events):
        kind, f, op = event["type"], event["f"], event["op"]
        number = _transaction(log, numbers, event)
        if f == "produce" and kind == INVOKE:
            invoked[op] = at
            log.writes[op] = _record(op, event, number)
            if number is not None:
                by_id[event["transactional_id"]].add(number)
        elif f == "produce" and kind == OK:
            _acknowledge(log, log.writes[op], event["offset"], (invoked[op], at), again.get(event["topic"]))
        elif f == DELETE_RECORDS and kind == INVOKE:
            tp = (event["topic"], event["partition"])
            if (last := again.get(tp[0])) is None or at > last.began:
                log.deleted_before[tp] = max(log.deleted_before.get(tp, 0), event["before"])
        elif f in _ENDS and number is not None:
            if kind == OK:
                log.transactions[number].outcome = _ENDS[f]
            (asked.discard if kind == FAIL else asked.add)(number)
        elif f == "init" and kind == OK:
            for left_open in by_id.pop(event["transactional_id"], set()) - asked:
                log.transactions[left_open].outcome = ABORTED
    for topic, last in again.items():
        for op in [op for op, w in log.writes.items() if w.topic == topic and invoked[op] < last.began]:
            if log.writes[op].offset == _GONE:
                del log.writes[op]
    return log


_GONE: Final = -2
"""The offset of a record of a topic that was deleted since."""


def _acknowledge(
    log: ClientLog, write: WrittenRecord, offset: int, when: tuple[int, int], last: _Recreation | None
) -> None:
    invoked, acknowledged = when
    if last is None or invoked > last.ended:
        write.offset = offset
    elif acknowledged < last.began:
        write.offset = _GONE
    # Else it was under way while the topic was deleted: it stays unknown.


def _recreations(events: Sequence[Mapping[str, Any]]) -> dict[str, _Recreation]:
    """Return the last time that each topic was created again."""
    found: dict[str, _Recreation] = {}
    for at, event in enumerate(events):
        if event["f"] == RECREATE:
            topic = event["topic"]
            is_begin = event["type"] == INVOKE
            # Where nobody knows how it ended, everything later may be in either topic.
            ended = float("inf") if is_begin or event["type"] != OK else at
            found[topic] = _Recreation(at if is_begin else found[topic].began, ended)
    return found


def _transaction(log: ClientLog, numbers: dict[tuple[str, int], int], event: Mapping[str, Any]) -> int | None:
    """Return the number of an event's transaction, counted from 1 in the order in which they are first met."""
    transactional_id, nth = event.get("transactional_id"), event.get("txn")
    if transactional_id is None or not nth:
        return None
    number = numbers.setdefault((transactional_id, nth), len(numbers) + 1)
    log.transactions.setdefault(number, Transaction(number, transactional_id))
    return number


def _record(op: int, event: Mapping[str, Any], transaction: int | None) -> WrittenRecord:
    return WrittenRecord(op, event["topic"], event["partition"], event["key"], bool(event["tombstone"]), transaction)


def certain_events(events: Sequence[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """Yield the events of a history without the records that a deleted topic had, or may have had.

    Checkers know a topic by its name alone.
    """
    again = _recreations(events)
    invoked = {event["op"]: at for at, event in enumerate(events) if event["type"] == INVOKE}
    return (
        event
        for event in events
        if event["f"] != "produce"
        or (last := again.get(event["topic"])) is None
        or invoked[event["op"]] > last.ended
    )
