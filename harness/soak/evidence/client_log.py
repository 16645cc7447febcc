"""Records that clients of a round wrote, and whether each was acknowledged; transactions, and how each ended.

Derived from the history (`harness.run_folder.history`). A write without an acknowledgement, or a transaction without an
acknowledged end, stays unknown: it may be either. A new start of a transactional id aborts the transactions that its
former client had left open (KIP-98), so where no end was asked for before, the transaction is aborted once that start
was acknowledged.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Any, Final

from harness.judge.finding import PlaceOf
from harness.kafka_api import TopicPartition
from harness.run_folder.history import DELETE_RECORDS, FAIL, INVOKE, OK, RECREATE

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
OUTCOMES: Final = {"commit": COMMITTED, "abort": ABORTED}
"""Outcomes of transactions by the operations that end them."""


@dataclass
class WrittenRecord:
    """A record of a client process; ``offset`` is None until it is acknowledged. ``number``: also in its header.

    ``before_recreation``: its topic was deleted and created again since. The checkers do not learn of such records.
    """

    number: int
    topic: str
    partition: int
    key: str
    is_delete: bool
    transaction: int | None
    offset: int | None = None
    client: str = ""
    before_recreation: bool = False

    place = PlaceOf()


@dataclass
class Transaction:
    """A transaction; its ``outcome`` is unknown until its end was acknowledged to a client."""

    number: int
    transactional_id: str
    outcome: str = UNKNOWN


@dataclass(frozen=True)
class ClientLog:
    """Records and transactions of clients by number. ``deleted_before``: up to where a deletion was asked for."""

    writes: dict[int, WrittenRecord] = field(default_factory=dict)
    transactions: dict[int, Transaction] = field(default_factory=dict)
    deleted_before: dict[TopicPartition, int] = field(default_factory=dict)

    def outcome_of(self, write: WrittenRecord) -> str:
        """Return whether a write counts: committed, aborted or unknown."""
        if write.transaction is not None:
            return self.transactions[write.transaction].outcome
        return UNKNOWN if write.offset is None else COMMITTED


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
    by_topic: dict[str, Recreation] = {}
    begun: dict[str, int] = {}
    for at, event in enumerate(events):
        topic = event.get("topic", "")
        if (event["f"], event["type"]) == (RECREATE, INVOKE):
            begun[topic] = at
            by_topic[topic] = Recreation(by_topic.get(topic, _NEVER).began, inf)
        elif (event["f"], event["type"]) == (RECREATE, OK):
            by_topic[topic] = Recreation(begun[topic], at)
    return by_topic


def transaction_of(event: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the transactional id and the count of an event's transaction."""
    return event.get("transactional_id"), event.get("txn")


@dataclass
class _Reading:
    """A history while it is read.

    ``gone``: records of a former topic, and records that were certainly not written. ``ending``: ends were asked for.
    """

    again: Mapping[str, Recreation]
    log: ClientLog = field(default_factory=ClientLog)
    numbers: dict[tuple[Any, Any], int] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    ending: set[int] = field(default_factory=set)
    left_open: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def transaction(self, event: Mapping[str, Any]) -> int | None:
        """Return the number of an event's transaction, counted from 1 in the order in which they are first met."""
        transactional_id, nth = transaction_of(event)
        if transactional_id is None or not nth:
            return None
        number = self.numbers.setdefault((transactional_id, nth), len(self.numbers) + 1)
        self.log.transactions.setdefault(number, Transaction(number, transactional_id))
        if event["type"] == INVOKE and event["f"] not in OUTCOMES:
            self.left_open[transactional_id].add(number)
        return number

    def record(self, at: int, event: Mapping[str, Any]) -> None:
        op, kind, topic = event["op"], event["type"], event["topic"]
        number, last = self.transaction(event), self.again.get(topic, _NEVER)
        if kind == INVOKE:
            fields = (op, topic, event["partition"], event["key"], bool(event["tombstone"]), number)
            self.log.writes[op] = WrittenRecord(*fields, client=event["process"], before_recreation=at <= last.ended)
        elif kind == OK and not self.log.writes[op].before_recreation:
            self.log.writes[op].offset = event["offset"]
        elif kind == OK and at < last.began:
            # Else it was under way while the topic was deleted, or nobody knows whether that was, and stays unknown.
            self.gone.add(op)
        elif kind == FAIL:
            self.gone.add(op)

    def end(self, _at: int, event: Mapping[str, Any]) -> None:
        number = self.transaction(event)
        if number is not None:
            if event["type"] == OK:
                self.log.transactions[number].outcome = OUTCOMES[event["f"]]
            (self.ending.discard if event["type"] == FAIL else self.ending.add)(number)

    def start(self, _at: int, event: Mapping[str, Any]) -> None:
        if event["type"] == OK:
            for number in self.left_open.pop(event["transactional_id"], set()) - self.ending:
                self.log.transactions[number].outcome = ABORTED

    def deletion(self, at: int, event: Mapping[str, Any]) -> None:
        tp, last = (event["topic"], event["partition"]), self.again.get(event["topic"], _NEVER)
        if event["type"] == INVOKE and at > last.began:
            self.log.deleted_before[tp] = max(self.log.deleted_before.get(tp, 0), event["before"])


_READERS: Final = {
    "produce": _Reading.record,
    "send offset": lambda reading, _at, event: reading.transaction(event),
    **dict.fromkeys(OUTCOMES, _Reading.end),
    "init": _Reading.start,
    DELETE_RECORDS: _Reading.deletion,
}


def _read(events: Sequence[Mapping[str, Any]]) -> _Reading:
    reading = _Reading(recreations(events))
    for at, event in enumerate(events):
        if event["f"] in _READERS:
            _READERS[event["f"]](reading, at, event)
    return reading


def client_log_of(events: Sequence[Mapping[str, Any]]) -> ClientLog:
    """Return the records and transactions of a history.

    Records that were acknowledged before their topic was deleted and created again are left out: no replica may have
    them any more. Records under way meanwhile may be in either topic, and count as not acknowledged; so do all records
    of a topic of which nobody knows whether it was deleted.
    """
    reading = _read(events)
    for op in reading.gone:
        del reading.log.writes[op]
    return reading.log


def transactions_of(events: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, Any], str]:
    """Return the outcome of every transaction, by transactional id and count."""
    reading = _read(events)
    return {names: reading.log.transactions[number].outcome for names, number in reading.numbers.items()}


def events_for_checkers(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the events of a history as the checkers are to read them, which know topics by their names alone.

    Without the records that a deleted topic had, or may have had, and with an abort of each transaction that a new
    start of its transactional id has aborted.
    """
    reading = _read(events)
    rest = [
        event for event in events if event["f"] != "produce" or not reading.log.writes[event["op"]].before_recreation
    ]
    acknowledged = {transaction_of(event) for event in events if event["f"] in OUTCOMES and event["type"] == OK}
    op, index = max((event["op"] for event in events), default=0), count(len(events))
    for (transactional_id, nth), number in reading.numbers.items():
        if reading.log.transactions[number].outcome == ABORTED and (transactional_id, nth) not in acknowledged:
            op += 1
            abort = {"f": "abort", "op": op, "process": "init", "transactional_id": transactional_id, "txn": nth}
            at = {"time_ms": events[-1]["time_ms"]}
            rest += [{"index": next(index), "type": kind, **at, **abort} for kind in (INVOKE, OK)]
    return rest
