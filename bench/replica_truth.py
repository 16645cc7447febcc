"""What each replica's files say of every key and transaction, against what clients know: which replicas are wrong.

None of it goes through the checkers. A record counts on a replica as it does for a read_committed consumer there:
hidden where the broker's ``.txnindex`` lists its transaction as aborted (`AbortedTxn`), not yet served where no marker
of its producer follows, committed else.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from random_traffic import ABORTED, COMMITTED, HEADER_WRITE

from harness.brokers.segments.batches import iter_batches, iter_records, marker
from harness.brokers.segments.folder import live_segments
from harness.brokers.segments.txnindex import iter_txnindex

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from random_traffic import ClientLog, Write

    from harness.brokers.protocol.replica import TopicPartition
    from harness.brokers.segments.batches import Batch

OPEN = "open"
SERVED, HIDDEN, STUCK, STATE = "aborted record served", "committed record hidden", "transaction open", "wrong state"

Key = tuple["TopicPartition", str]
Replica = tuple[int, "TopicPartition"]
"""A broker and a partition that it has a replica of."""


@dataclass(frozen=True)
class Held:
    """A record that a replica holds; ``belief``: committed, aborted or open, as its broker serves it."""

    write: int
    offset: int
    key: str
    is_delete: bool
    producer_id: int
    belief: str


@dataclass(frozen=True)
class Ended:
    """A transaction on a replica, or what is left of it: the offsets of a batch and of its marker there."""

    offset: int
    marker: int
    belief: str


@dataclass(frozen=True)
class ReplicaLog:
    """What a replica holds: its records; and its ended transactions, by batches, emptied or not, and ``.txnindex``."""

    records: Sequence[Held] = ()
    ended: Sequence[Ended] = ()


@dataclass(frozen=True)
class Wrong:
    """One thing that a replica is wrong about: a key's final state, or a record of a transaction."""

    kind: str
    key: str
    offset: int | None
    transaction: int | None
    producer_id: int | None
    here: str
    truth: str


@dataclass(frozen=True)
class Truth:
    """Which replicas are wrong, about what; and the keys and transactions that no client can vouch for."""

    wrongs: Mapping[Replica, tuple[Wrong, ...]]
    unknown_keys: frozenset[Key]
    missed: Mapping[Replica, Mapping[int, str]]
    """Transactions of which a replica missed the marker, by its log and by what clients know, and what it takes them
    for: another marker ends them there. Where both say the same, the replica is not wrong about them."""
    outcomes: Mapping[int, str]
    """Of transactions, as clients know it."""
    at: Mapping[tuple[TopicPartition, int], Write]
    """The write at each offset, as any replica has it or as it was acknowledged to a client."""

    @property
    def diverged(self) -> set[TopicPartition]:
        """Partitions of which a replica is wrong."""
        return {tp for (_, tp), wrongs in self.wrongs.items() if wrongs}


def read_replica(folder: Path) -> ReplicaLog:
    """Return every record of a partition's folder with what its broker takes it for."""
    segments = live_segments(folder).segments
    aborted = [
        entry
        for segment in segments
        if segment.txnindex
        for entry in iter_txnindex((folder / segment.txnindex).read_bytes(), source=segment.txnindex)
    ]
    batches = [
        batch for segment in segments for batch in iter_batches((folder / segment.log).read_bytes(), source=segment.log)
    ]
    markers: dict[int, list[int]] = defaultdict(list)
    for batch in batches:
        if marker(batch, source=folder.name) is not None:
            markers[batch.producer_id].append(batch.last_offset)

    def end_of(batch: Batch) -> int | None:
        return next((end for end in markers[batch.producer_id] if end > batch.base_offset), None)

    def belief(batch: Batch) -> str:
        if not batch.is_transactional:
            return COMMITTED
        offset = batch.base_offset
        if any(e.producer_id == batch.producer_id and e.first_offset <= offset <= e.last_offset for e in aborted):
            return ABORTED
        return OPEN if end_of(batch) is None else COMMITTED

    data = [batch for batch in batches if not batch.is_control]
    records = [
        Held(
            int(dict(record.headers)[HEADER_WRITE] or 0),
            record.offset,
            (record.key or b"").decode(),
            record.value is None,
            batch.producer_id,
            belief(batch),
        )
        for batch in data
        for record in iter_records(batch, source=folder.name)
    ]
    ended = [
        Ended(batch.base_offset, end, belief(batch))
        for batch in data
        if batch.is_transactional and (end := end_of(batch)) is not None
    ]
    return ReplicaLog(records, [*ended, *(Ended(e.first_offset, e.last_offset, ABORTED) for e in aborted)])


def final_state(held: Iterable[Held]) -> dict[str, int]:
    """Return the write whose value a read_committed consumer ends with for each key that is not deleted."""
    last = {one.key: one for one in held if one.belief == COMMITTED}
    return {key: one.write for key, one in last.items() if not one.is_delete}


def compare(log: ClientLog, replicas: Mapping[Replica, ReplicaLog]) -> Truth:
    """Hold every replica against what clients know."""
    at = {((w.topic, w.partition), w.offset): w for w in log.writes.values() if w.offset is not None}
    for (_, tp), held in replicas.items():
        at |= {(tp, one.offset): log.writes[one.write] for one in held.records}
    offsets: dict[int, set[int]] = defaultdict(set)
    for (_, offset), write in at.items():
        offsets[write.number].add(offset)
    states = {key: _possible_states(log, writes, offsets) for key, writes in _by_key(log).items()}
    wrongs = {
        (broker, tp): (*_misjudged(log, held.records), *_wrong_states(tp, states, final_state(held.records)))
        for (broker, tp), held in replicas.items()
    }
    missed = {(broker, tp): _missed(log, tp, at, held.ended) for (broker, tp), held in replicas.items()}
    unknown_keys = {key for key, possible in states.items() if len(possible) > 1}
    outcomes = {transaction.number: transaction.outcome for transaction in log.transactions.values()}
    return Truth(wrongs, frozenset(unknown_keys), missed, outcomes, at)


def _by_key(log: ClientLog) -> dict[Key, list[Write]]:
    writes: dict[Key, list[Write]] = defaultdict(list)
    for write in log.writes.values():
        writes[(write.topic, write.partition), write.key].append(write)
    return writes


def _possible_states(log: ClientLog, writes: list[Write], offsets: Mapping[int, set[int]]) -> set[int | None]:
    """Return the writes whose value a key may have in the end, None for no value: one, where clients know enough.

    Of a retry whose first attempt was written, too, no client knows where that lies in the order of things.
    """
    counting = [write for write in writes if log.outcome_of(write) != ABORTED]
    known = {
        write.offset: write
        for write in counting
        if write.offset is not None and log.outcome_of(write) == COMMITTED and len(offsets[write.number]) == 1
    }
    last = max(known, default=-1)
    maybe = [
        write
        for write in counting
        if write not in known.values() and max(offsets[write.number], default=last + 1) > last
    ]
    return {_state(write) for write in maybe} | {_state(known[last]) if known else None}


def _state(write: Write) -> int | None:
    return None if write.is_delete else write.number


_MISJUDGED = {
    (COMMITTED, ABORTED): SERVED,
    (ABORTED, COMMITTED): HIDDEN,
    (OPEN, COMMITTED): STUCK,
    (OPEN, ABORTED): STUCK,
}
"""What it is by what the replica takes a record for, and by its transaction's outcome."""


def _misjudged(log: ClientLog, held: Iterable[Held]) -> list[Wrong]:
    found = []
    for one in held:
        write = log.writes[one.write]
        outcome = COMMITTED if write.transaction is None else log.outcome_of(write)
        kind = _MISJUDGED.get((one.belief, outcome))
        if kind is not None:
            found.append(Wrong(kind, one.key, one.offset, write.transaction, one.producer_id, one.belief, outcome))
    return found


def _missed(
    log: ClientLog, tp: TopicPartition, at: Mapping[tuple[TopicPartition, int], Write], ended: Iterable[Ended]
) -> dict[int, str]:
    """Return the transactions whose client wrote a later one before the marker that ends the first one here."""
    clients: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for (place, offset), write in at.items():
        if place == tp and write.transaction is not None:
            transaction = log.transactions[write.transaction]
            clients[transaction.transactional_id].append((offset, transaction.number))
    missed = {}
    for one in ended:
        first = at.get((tp, one.offset))
        if first is not None and first.transaction is not None:
            others = clients[log.transactions[first.transaction].transactional_id]
            if any(one.offset < offset < one.marker and number > first.transaction for offset, number in others):
                missed[first.transaction] = one.belief
    return missed


def _wrong_states(tp: TopicPartition, states: Mapping[Key, set[int | None]], here: Mapping[str, int]) -> list[Wrong]:
    return [
        Wrong(STATE, key, None, None, None, _words(here.get(key)), " or ".join(sorted(map(_words, possible))))
        for (place, key), possible in sorted(states.items())
        if place == tp and here.get(key) not in possible
    ]


def _words(write: int | None) -> str:
    return "no value" if write is None else f"the value of write {write}"
