"""Every key and transaction in each replica's files, compared with the history of clients: which replicas are wrong.

This judge uses neither the checkers nor Spark: it also judges the candidates of a shrinking round, and a finding that
only one of both judges has is worth a look.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from harness.kafka_api import TopicPartition
from harness.soak.evidence.client_log import ABORTED, COMMITTED, UNKNOWN, ClientLog, Transaction, WrittenRecord
from harness.soak.evidence.replica_log import OPEN, Replica, ReplicaLog, final_state

SERVED, HIDDEN, STUCK, STATE = "aborted record served", "committed record hidden", "transaction open", "wrong state"
STRANGE, LOG_START = "record that no client wrote", "log start that nobody asked for"
NO_VALUE: Final = "no value"
FILLER: Final = "filler"
"""The client whose records only make cleaners pass (`harness.soak.play.round`)."""
_SOMEWHERE_LATER: Final = float("inf")
"""The offset of a copy that nobody has seen."""
_MISJUDGED: Final = {
    (COMMITTED, ABORTED): SERVED,
    (ABORTED, COMMITTED): HIDDEN,
    (OPEN, COMMITTED): STUCK,
    (OPEN, ABORTED): STUCK,
}
"""Kinds of errors by what the replica takes a record for, and by its transaction's outcome."""

Key = tuple[TopicPartition, str]
Writes = Mapping[tuple[TopicPartition, int], WrittenRecord]
"""The write at each offset."""


@dataclass(frozen=True)
class Wrong:
    """An error of a replica: about a key's final state, or a record of a transaction.

    ``due``: of a final state, the transaction whose record should have made it; 0 for a record outside transactions.
    ``counts_aborted``: aborted transactions whose records would make it of the key. ``leaves_out_last``: it is what the
    key would be without its last committed record. ``is_deleted``: the last record of the key that clients know to be
    committed is a delete, and one of which they know nothing may be later; or such a delete has removed it everywhere.
    """

    kind: str
    key: str
    here: str
    truth: str
    offset: int | None = None
    transaction: int | None = None
    producer_id: int | None = None
    due: int | None = None
    counts_aborted: tuple[int, ...] = ()
    leaves_out_last: bool = False
    is_deleted: bool = False

    def __str__(self) -> str:
        """Return the error in words."""
        at = "" if self.offset is None else f" at offset {self.offset}"
        return f"{self.kind}: key {self.key}{at}: here {self.here}, by clients {self.truth}"


@dataclass(frozen=True)
class Truth:
    """Which replicas are wrong, about what; and the keys and transactions that no client can vouch for.

    ``missed``: transactions of which a replica missed the marker, by its log and the history of clients, with the
    outcome that another marker gives them there. Where both markers agree, the replica is not wrong about them.
    ``transactions``: as clients know them. ``at``: the write at each offset, on any replica, or as acknowledged to a
    client. ``followed``: the outcomes of later transactions of the same client, by partition and transaction.
    ``reached``: the highest offset of each key, as acknowledged or on any replica; other records may have it since.
    ``markers``: the offsets of markers that end a transaction on any replica, by partition and transaction.
    ``stale_markers``: of former coordinators on any replica, see `causes.stale_marker`.
    """

    wrongs: Mapping[Replica, tuple[Wrong, ...]]
    unknown_keys: frozenset[Key]
    missed: Mapping[Replica, Mapping[int, str]]
    transactions: Mapping[int, Transaction]
    at: Writes
    followed: Mapping[tuple[TopicPartition, int], Collection[str]] = field(default_factory=dict)
    log_starts: Mapping[Replica, int] = field(default_factory=dict)
    reached: Mapping[Key, int] = field(default_factory=dict)
    markers: Mapping[tuple[TopicPartition, int], Collection[int]] = field(default_factory=dict)
    stale_markers: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)

    def outcome_at(self, partition: TopicPartition, offset: int) -> str | None:
        """Return the outcome of the transaction of the record at an offset; None for any other record."""
        write = self.at.get((partition, offset))
        return None if write is None or write.transaction is None else self.transactions[write.transaction].outcome

    @property
    def diverged(self) -> set[TopicPartition]:
        """Partitions of which a replica is wrong."""
        return {tp for (_, tp), wrongs in self.wrongs.items() if wrongs}


class _FinalState(NamedTuple):
    """A state that a key may have: a write, None for no value. Its offset and transaction, None if unknown."""

    state: int | None
    offset: int | None = None
    transaction: int | None = None

    def from_start(self, log_start: int) -> set[int | None]:
        """Return the states that a replica may serve whose log starts there."""
        if self.offset is None:
            return {self.state, None} if log_start else {self.state}
        return {None} if self.offset < log_start else {self.state}


class _KeyTruth(NamedTuple):
    """The states that a key may have in the end.

    ``aborted``: states that later records of aborted transactions would make, with the transaction. ``before``: the
    state without the last committed record. ``is_deleted``: the last record that clients know to be committed is a
    delete.
    """

    possible: set[_FinalState]
    aborted: set[tuple[int | None, int]]
    before: int | None
    is_deleted: bool


def compare(log: ClientLog, replicas: Mapping[Replica, ReplicaLog], with_retention: Collection[str] = ()) -> Truth:
    """Compare every replica with the history of clients. ``with_retention``: topics whose log starts may move."""
    log = _located(log, replicas)
    at = {(write.place, write.offset): write for write in log.writes.values() if write.offset is not None}
    for (_, tp), replica in replicas.items():
        at |= {(tp, r.offset): log.writes[r.write] for r in replica.records if r.write in log.writes}
    offsets: dict[int, set[float]] = defaultdict(set)
    for (_, offset), write in at.items():
        offsets[write.number].add(offset)
    for number in _repeated(log, replicas):
        offsets[number].add(_SOMEWHERE_LATER)
    by_key: dict[Key, list[WrittenRecord]] = defaultdict(list)
    for write in log.writes.values():
        by_key[write.place, write.key].append(write)
    states: dict[TopicPartition, dict[str, _KeyTruth]] = defaultdict(dict)
    for (tp, key), writes in sorted(by_key.items()):
        states[tp][key] = _key_truth(log, writes, offsets)
    remaining: dict[TopicPartition, set[int]] = defaultdict(set)
    markers: dict[tuple[TopicPartition, int], set[int]] = defaultdict(set)
    stale_markers: dict[TopicPartition, frozenset[int]] = defaultdict(frozenset)
    for (_, tp), replica in replicas.items():
        remaining[tp] |= {record.offset for record in replica.records}
        stale_markers[tp] |= replica.stale_markers
        for ended in replica.ended:
            first = at.get((tp, ended.offset))
            if first is not None and first.transaction is not None:
                markers[tp, first.transaction].add(ended.marker)
    return Truth(
        wrongs={
            (broker, tp): (
                *_wrong_records(log, tp, replica, at),
                *_wrong_log(log, tp, replica, has_retention=tp[0] in with_retention),
                *_wrong_states(states.get(tp, {}), replica, remaining[tp]),
            )
            for (broker, tp), replica in replicas.items()
        },
        unknown_keys=frozenset(
            (tp, key)
            for tp, keys in states.items()
            for key, truth in keys.items()
            if len({possible.state for possible in truth.possible}) > 1
        ),
        missed=_missed(log, replicas, at),
        transactions=log.transactions,
        at=at,
        followed=_followed(log),
        log_starts={place: replica.log_start for place, replica in replicas.items()},
        reached={
            key: max((w.offset for w in writes if w.offset is not None), default=-1) for key, writes in by_key.items()
        },
        markers=markers,
        stale_markers=stale_markers,
    )


def _located(log: ClientLog, replicas: Mapping[Replica, ReplicaLog]) -> ClientLog:
    """Return the log with the offsets of writes that no broker acknowledged, but that a replica has."""
    writes = dict(log.writes)
    for replica in replicas.values():
        for record in replica.records:
            if record.write in writes and writes[record.write].offset is None:
                writes[record.write] = replace(writes[record.write], offset=record.offset)
    return replace(log, writes=writes)


def _repeated(log: ClientLog, replicas: Mapping[Replica, ReplicaLog]) -> Iterator[int]:
    """Yield the writes that may have been appended again, by a late request of their client.

    Nobody can see which of them were compacted since: a delete may have come again after the value that followed it.
    """
    late = {
        (tp, log.writes[record.write].client)
        for (_, tp), replica in replicas.items()
        for record in replica.records
        if record.producer_id in replica.late_producers and record.write in log.writes
    }
    for write in log.writes.values():
        if write.transaction is None and (write.place, write.client) in late:
            yield write.number


def _key_truth(log: ClientLog, writes: Sequence[WrittenRecord], offsets: Mapping[int, set[float]]) -> _KeyTruth:
    """Return the states of a key. ``offsets``: where each write is; more than one if it was appended again.

    Of a retry whose first attempt was written, too, no client knows where that lies in the order of things.
    """

    def state(write: WrittenRecord) -> int | None:
        return None if write.is_delete else write.number

    ordered = {
        write.offset: write
        for write in writes
        if write.offset is not None and log.outcome_of(write) == COMMITTED and len(offsets[write.number]) == 1
    }
    last, *earlier = sorted(ordered, reverse=True) or [-1]
    later = [write for write in writes if max(offsets[write.number], default=last + 1) > last]
    certain = _FinalState(state(ordered[last]), last, ordered[last].transaction) if ordered else _FinalState(None)
    possible = {
        _FinalState(state(write), None, write.transaction)
        for write in later
        if log.outcome_of(write) != ABORTED and write not in ordered.values()
    }
    return _KeyTruth(
        {certain, *possible},
        {(state(write), write.transaction or 0) for write in later if log.outcome_of(write) == ABORTED},
        before=state(ordered[earlier[0]]) if earlier else None,
        is_deleted=bool(ordered) and ordered[last].is_delete,
    )


def _followed(log: ClientLog) -> dict[tuple[TopicPartition, int], set[str]]:
    by_client: dict[tuple[TopicPartition, str], set[int]] = defaultdict(set)
    for write in log.writes.values():
        if write.transaction is not None:
            by_client[write.place, log.transactions[write.transaction].transactional_id].add(write.transaction)
    return {
        (tp, number): {log.transactions[later].outcome for later in numbers if later > number}
        for (tp, _), numbers in by_client.items()
        for number in numbers
    }


def _wrong_records(log: ClientLog, tp: TopicPartition, replica: ReplicaLog, at: Writes) -> Iterator[Wrong]:
    """Yield the misjudged records of a replica, and the ended transactions that are open although it has no record."""
    for record in replica.records:
        write = log.writes.get(record.write)
        if write is not None:
            outcome = COMMITTED if write.transaction is None else log.outcome_of(write)
            if (kind := _MISJUDGED.get((record.belief, outcome))) is not None:
                place = (record.offset, write.transaction, record.producer_id)
                yield Wrong(kind, record.key, record.belief, outcome, *place)
    for offset, producer_id in replica.open_empty:
        write = at.get((tp, offset))
        outcome = UNKNOWN if write is None or write.transaction is None else log.outcome_of(write)
        if write is not None and outcome != UNKNOWN:
            yield Wrong(STUCK, write.key, OPEN, outcome, offset, write.transaction, producer_id)


def _wrong_log(log: ClientLog, tp: TopicPartition, replica: ReplicaLog, *, has_retention: bool) -> Iterator[Wrong]:
    """Yield records that no client wrote, as of a topic that was deleted, and a log start that nobody asked for."""
    for record in replica.records:
        if record.write not in log.writes:
            at = (record.offset, None, record.producer_id)
            yield Wrong(STRANGE, record.key, f"write {record.write}", "no such write", *at)
    asked = log.deleted_before.get(tp, 0)
    if replica.log_start > asked and not has_retention:
        yield Wrong(LOG_START, "", str(replica.log_start), f"at most {asked}", replica.log_start)


def _wrong_states(states: Mapping[str, _KeyTruth], replica: ReplicaLog, remaining: Collection[int]) -> Iterator[Wrong]:
    """Yield the keys with a wrong final state. ``remaining``: the offsets of records that some replica still has."""
    final, offsets = final_state(replica.records), {record.write: record.offset for record in replica.records}
    for key, truth in states.items():
        here = final.get(key)
        allowed = {state for possible in truth.possible for state in possible.from_start(replica.log_start)}
        # Only a later delete removes the last known value from every replica.
        last = {possible.offset for possible in truth.possible if possible.offset is not None}
        is_gone = None in allowed and bool(last) and last.isdisjoint(remaining)
        # The last known record, or a later one, has replaced the record here, even if that was written again.
        is_replaced = here is not None and offsets[here] < max(last, default=0)
        if here not in allowed or is_replaced:
            (due, *others) = sorted({possible.transaction or 0 for possible in truth.possible})
            yield Wrong(
                STATE,
                key,
                _in_words(here),
                " or ".join(sorted(map(_in_words, allowed))),
                due=None if others else due,
                counts_aborted=tuple(sorted(transaction for state, transaction in truth.aborted if state == here)),
                leaves_out_last=here == truth.before,
                is_deleted=truth.is_deleted or is_gone,
            )


def _in_words(state: int | None) -> str:
    return NO_VALUE if state is None else f"the value of write {state}"


def _missed(log: ClientLog, replicas: Mapping[Replica, ReplicaLog], at: Writes) -> dict[Replica, dict[int, str]]:
    """Return the transactions whose client wrote a later one before the marker that ends the first one here.

    Where no record of the first one is left, a later one may have no known offset: its records were never
    acknowledged, and cleaned away everywhere.
    """
    located = {write.number for write in at.values()}
    placed: list[tuple[float, WrittenRecord]] = [(offset, write) for (_, offset), write in at.items()]
    placed += [(_SOMEWHERE_LATER, write) for write in log.writes.values() if write.number not in located]
    by_client: dict[tuple[TopicPartition, str], list[tuple[float, int]]] = defaultdict(list)
    for offset, write in placed:
        if write.transaction is not None:
            client = log.transactions[write.transaction].transactional_id
            by_client[write.place, client].append((offset, write.transaction))
    missed: dict[Replica, dict[int, str]] = {}
    for (broker, tp), replica in replicas.items():
        remaining, of_replica = {record.write for record in replica.records}, missed.setdefault((broker, tp), {})
        for ended in replica.ended:
            first = at.get((tp, ended.offset))
            if first is not None and first.transaction is not None:
                is_gone = first.number not in remaining
                client = log.transactions[first.transaction].transactional_id
                if any(
                    number > first.transaction
                    for offset, number in by_client[tp, client]
                    if ended.offset < offset < ended.marker or (is_gone and offset == _SOMEWHERE_LATER)
                ):
                    of_replica[first.transaction] = ended.belief
    return missed
