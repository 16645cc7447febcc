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
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.kafka_api.messages import TopicPartition

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
INVOKE, OK, FAIL = "invoke", "ok", "fail"
DELETE_RECORDS, RECREATE = "delete records", "recreate topic"
"""Operations of administrators in a history. The former has ``before``, the offset up to which records go."""
_ENDS: Final = {"commit": COMMITTED, "abort": ABORTED}


@dataclass
class WrittenRecord:
    """One record of one client process; ``offset`` is None until it is acknowledged. ``number``: also in its header."""

    number: int
    topic: str
    partition: int
    key: str
    is_delete: bool
    transaction: int | None
    offset: int | None = None
    client: str = ""


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
class Recreation:
    """Between which events of the history a topic was deleted and created again, the last time that this is certain.

    ``began``: -1 where it never is. ``ended``: infinite where it was tried again since, and nobody knows how it ended:
    then any record that was written since ``began`` may be in the topic, or gone with the former one.
    """

    began: int
    ended: float


_NEVER: Final = Recreation(-1, -1)


def recreations(events: Sequence[Mapping[str, Any]]) -> dict[str, Recreation]:
    """Return the last recreation of each topic, by the places of its events in the history."""
    found: dict[str, Recreation] = {}
    begun: dict[str, int] = {}
    for at, event in enumerate(events):
        if event["f"] != RECREATE:
            continue
        topic = event["topic"]
        if event["type"] == INVOKE:
            begun[topic] = at
            found[topic] = Recreation(found.get(topic, _NEVER).began, float("inf"))
        elif event["type"] == OK:
            found[topic] = Recreation(begun[topic], at)
    return found


@dataclass
class _Reading:
    """A history while it is read. ``numbers``: of transactions, by id and count; ``invoked``: when each record was.

    ``asked``: transactions of which a client asked for the end. ``left_open``: by transactional id.
    """

    again: Mapping[str, Recreation]
    log: ClientLog = field(default_factory=ClientLog)
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    invoked: dict[int, int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    asked: set[int] = field(default_factory=set)
    left_open: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def transaction(self, event: Mapping[str, Any]) -> int | None:
        """Return the number of an event's transaction, counted from 1 in the order in which they are first met."""
        transactional_id, nth = event.get("transactional_id"), event.get("txn")
        if transactional_id is None or not nth:
            return None
        number = self.numbers.setdefault((transactional_id, nth), len(self.numbers) + 1)
        self.log.transactions.setdefault(number, Transaction(number, transactional_id))
        return number

    def record(self, at: int, event: Mapping[str, Any]) -> None:
        """Note a record that is sent, or its acknowledgement."""
        op, kind, topic = event["op"], event["type"], event["topic"]
        number, last = self.transaction(event), self.again.get(topic)
        if kind == INVOKE:
            self.invoked[op] = at
            self.log.writes[op] = WrittenRecord(
                op, topic, event["partition"], event["key"], bool(event["tombstone"]), number, client=event["process"]
            )
            if number is not None:
                self.left_open[event["transactional_id"]].add(number)
        elif kind == OK and (last is None or self.invoked[op] > last.ended):
            self.log.writes[op].offset = event["offset"]
        elif kind == OK and last is not None and at < last.began:
            # Else it was under way while the topic was deleted, or nobody knows whether that was, and stays unknown.
            self.gone.add(op)

    def offset(self, _at: int, event: Mapping[str, Any]) -> None:
        """Note a transaction that has a group's offset, and maybe no record."""
        number = self.transaction(event)
        if number is not None and event["type"] == INVOKE:
            self.left_open[event["transactional_id"]].add(number)

    def end(self, _at: int, event: Mapping[str, Any]) -> None:
        """Note the end of a transaction: asked for, acknowledged, or certainly not done."""
        number = self.transaction(event)
        if number is not None:
            if event["type"] == OK:
                self.log.transactions[number].outcome = _ENDS[event["f"]]
            (self.asked.discard if event["type"] == FAIL else self.asked.add)(number)

    def start(self, _at: int, event: Mapping[str, Any]) -> None:
        """Note a new start of a transactional id."""
        if event["type"] == OK:
            for number in self.left_open.pop(event["transactional_id"], set()) - self.asked:
                self.log.transactions[number].outcome = ABORTED

    def deletion(self, at: int, event: Mapping[str, Any]) -> None:
        """Note that the records of a partition were to be deleted."""
        tp, last = (event["topic"], event["partition"]), self.again.get(event["topic"])
        if event["type"] == INVOKE and (last is None or at > last.began):
            self.log.deleted_before[tp] = max(self.log.deleted_before.get(tp, 0), event["before"])


_READ: Final = {
    "produce": _Reading.record,
    "send offset": _Reading.offset,
    "commit": _Reading.end,
    "abort": _Reading.end,
    "init": _Reading.start,
    DELETE_RECORDS: _Reading.deletion,
}


def _read(events: Sequence[Mapping[str, Any]]) -> _Reading:
    reading = _Reading(recreations(events))
    for at, event in enumerate(events):
        if event["f"] in _READ:
            _READ[event["f"]](reading, at, event)
    return reading


def client_log_of(events: Sequence[Mapping[str, Any]]) -> ClientLog:
    """Return what the clients of a history know.

    What was acknowledged before its topic was deleted and created again is left out: no replica may have it any more.
    What was under way meanwhile may be in either topic, and counts as not acknowledged; so does all that is in a topic
    of which nobody knows whether it was deleted.
    """
    reading = _read(events)
    for op in reading.gone:
        del reading.log.writes[op]
    return reading.log


def transactions_of(events: Sequence[Mapping[str, Any]]) -> dict[tuple[str | None, int | None], str]:
    """Return the outcome of every transaction, by transactional id and count."""
    reading = _read(events)
    return {named: reading.log.transactions[number].outcome for named, number in reading.numbers.items()}


def events_for_checkers(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the events of a history as the checkers are to read them, which know topics by their names alone.

    Without the records that a deleted topic had, or may have had, and with an abort of each transaction that a new
    start of its transactional id has aborted.
    """
    reading = _read(events)
    kept = [
        event
        for event in events
        if event["f"] != "produce"
        or (last := reading.again.get(event["topic"])) is None
        or reading.invoked[event["op"]] > last.ended
    ]
    acknowledged = {
        (event.get("transactional_id"), event.get("txn"))
        for event in events
        if event["f"] in _ENDS and event["type"] == OK
    }
    op, index = max((event["op"] for event in events), default=0), len(events)
    for (transactional_id, nth), number in reading.numbers.items():
        if reading.log.transactions[number].outcome == ABORTED and (transactional_id, nth) not in acknowledged:
            op += 1
            for kind in (INVOKE, OK):
                kept.append(
                    {
                        "index": index,
                        "type": kind,
                        "time_ms": events[-1]["time_ms"],
                        "f": "abort",
                        "op": op,
                        "process": "init",
                        "transactional_id": transactional_id,
                        "txn": nth,
                    }
                )
                index += 1
    return kept
