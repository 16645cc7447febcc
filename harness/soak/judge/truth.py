"""What each replica's files say of every key and transaction, against what clients know: which replicas are wrong.

None of it goes through the checkers, and none through Spark: it judges the candidates of a shrinking round, too, and a
finding that only one of both judges has is worth a look.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.soak.evidence.client_log import ABORTED, COMMITTED, UNKNOWN
from harness.soak.evidence.replica_log import OPEN, final_state
from harness.soak.judge.key_truth import SOMEWHERE_LATER, in_words, key_truths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from harness.kafka_api.messages import TopicPartition
    from harness.soak.evidence.client_log import ClientLog, WrittenRecord
    from harness.soak.evidence.replica_log import Held, Replica, ReplicaLog
    from harness.soak.judge.key_truth import Key, KeyTruth

SERVED, HIDDEN, STUCK, STATE = "aborted record served", "committed record hidden", "transaction open", "wrong state"
STRANGE, LOG_START = "record that no client wrote", "log start that nobody asked for"


@dataclass(frozen=True)
class Wrong:
    """One thing that a replica is wrong about: a key's final state, or a record of a transaction.

    ``due``: of a final state, the transaction whose record should have made it; 0 for a record outside transactions.
    ``counts_aborted``: aborted transactions whose records would make it of the key. ``leaves_out_last``: it is what the
    key would be without its last committed record. ``is_deleted``: the last record of the key that clients know to be
    committed is a delete; one of which they know nothing may be later.
    """

    kind: str
    key: str
    offset: int | None
    transaction: int | None
    producer_id: int | None
    here: str
    truth: str
    due: int | None = None
    counts_aborted: tuple[int, ...] = ()
    leaves_out_last: bool = False
    is_deleted: bool = False


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
    at: Mapping[tuple[TopicPartition, int], WrittenRecord]
    """The write at each offset, as any replica has it or as it was acknowledged to a client."""
    followed: Mapping[TopicPartition, Mapping[int, Collection[str]]] = field(default_factory=lambda: defaultdict(dict))
    """How later transactions of the same client ended there, by partition and transaction."""
    log_starts: Mapping[Replica, int] = field(default_factory=dict)
    markers: Mapping[tuple[TopicPartition, int], Collection[int]] = field(default_factory=dict)
    """The offsets of markers that end a transaction there, as any replica has it: by partition and transaction."""
    stale_markers: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    """The offsets of markers of former coordinators, as any replica has them: see `causes.stale_marker`."""
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    """Of transactions."""

    @property
    def diverged(self) -> set[TopicPartition]:
        """Partitions of which a replica is wrong."""
        return {tp for (_, tp), wrongs in self.wrongs.items() if wrongs}


def compare(log: ClientLog, replicas: Mapping[Replica, ReplicaLog], with_retention: Collection[str] = ()) -> Truth:
    """Hold every replica against what clients know. ``with_retention``: topics whose log starts move by themselves."""
    at = {((w.topic, w.partition), w.offset): w for w in log.writes.values() if w.offset is not None}
    for (_, tp), held in replicas.items():
        at |= {(tp, one.offset): log.writes[one.write] for one in held.records if one.write in log.writes}
    offsets: dict[int, set[float]] = defaultdict(set)
    written: dict[TopicPartition, dict[int, WrittenRecord]] = defaultdict(dict)
    for (tp, offset), write in at.items():
        offsets[write.number].add(offset)
        written[tp][offset] = write
    for number in _repeated(log, replicas):
        offsets[number].add(SOMEWHERE_LATER)
    states = key_truths(log, offsets)
    wrongs = {
        (broker, tp): (
            *_misjudged(log, held.records),
            *_open_empty(log, written[tp], held.open_empty),
            *_strange(log, tp, held, has_retention=tp[0] in with_retention),
            *_wrong_states(states.get(tp, {}), held),
        )
        for (broker, tp), held in replicas.items()
    }
    missed = {(broker, tp): _missed(log, tp, written[tp], held) for (broker, tp), held in replicas.items()}
    unknown_keys = {(tp, key) for tp, keys in states.items() for key, one in keys.items() if not one.is_known}
    outcomes = {transaction.number: transaction.outcome for transaction in log.transactions.values()}
    log_starts = {replica: held.log_start for replica, held in replicas.items()}
    stale: dict[TopicPartition, frozenset[int]] = defaultdict(frozenset)
    for (_, tp), held in replicas.items():
        stale[tp] |= held.stale_markers
    transactional_ids = {transaction.number: transaction.transactional_id for transaction in log.transactions.values()}
    return Truth(
        wrongs,
        frozenset(unknown_keys),
        missed,
        outcomes,
        at,
        _followed(log),
        log_starts,
        _markers(replicas, at),
        stale,
        transactional_ids,
    )


def _repeated(log: ClientLog, replicas: Mapping[Replica, ReplicaLog]) -> Iterator[int]:
    """Yield the writes that may have been appended again, by a late request of their client.

    What of it was compacted since, nobody can see: a delete may have come again after the value that followed it.
    """
    late: dict[TopicPartition, set[str]] = defaultdict(set)
    for (_, tp), held in replicas.items():
        own = [one.write for one in held.records if one.producer_id in held.late_producers]
        late[tp] |= {log.writes[number].client for number in own if number in log.writes}
    for write in log.writes.values():
        if write.transaction is None and write.client in late[write.topic, write.partition]:
            yield write.number


def _markers(
    replicas: Mapping[Replica, ReplicaLog], at: Mapping[tuple[TopicPartition, int], WrittenRecord]
) -> dict[tuple[TopicPartition, int], set[int]]:
    found: dict[tuple[TopicPartition, int], set[int]] = defaultdict(set)
    for (_, tp), held in replicas.items():
        for one in held.ended:
            write = at.get((tp, one.offset))
            if write is not None and write.transaction is not None:
                found[tp, write.transaction].add(one.marker)
    return found


def _followed(log: ClientLog) -> dict[TopicPartition, dict[int, set[str]]]:
    """Return how later transactions of the same client ended, by partition and transaction."""
    by_client: dict[TopicPartition, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for write in log.writes.values():
        if write.transaction is not None:
            transactional_id = log.transactions[write.transaction].transactional_id
            by_client[write.topic, write.partition][transactional_id].add(write.transaction)
    found: dict[TopicPartition, dict[int, set[str]]] = defaultdict(dict)
    for tp, clients in by_client.items():
        for numbers in clients.values():
            later: set[str] = set()
            for number in sorted(numbers, reverse=True):
                found[tp][number] = set(later)
                later.add(log.transactions[number].outcome)
    return found


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
        write = log.writes.get(one.write)
        if write is None:
            continue
        outcome = COMMITTED if write.transaction is None else log.outcome_of(write)
        kind = _MISJUDGED.get((one.belief, outcome))
        if kind is not None:
            found.append(Wrong(kind, one.key, one.offset, write.transaction, one.producer_id, one.belief, outcome))
    return found


def _open_empty(
    log: ClientLog, written: Mapping[int, WrittenRecord], held: Iterable[tuple[int, int]]
) -> Iterator[Wrong]:
    """Yield the ended transactions that are open on a replica although it has no record of them any more."""
    for offset, producer_id in held:
        write = written.get(offset)
        outcome = UNKNOWN if write is None or write.transaction is None else log.outcome_of(write)
        if write is not None and outcome != UNKNOWN:
            yield Wrong(STUCK, write.key, offset, write.transaction, producer_id, OPEN, outcome)


def _strange(log: ClientLog, tp: TopicPartition, held: ReplicaLog, *, has_retention: bool) -> list[Wrong]:
    """Return records that no client wrote, as of a topic that was deleted, and a log start that nobody asked for."""
    found = [
        Wrong(STRANGE, one.key, one.offset, None, one.producer_id, f"write {one.write}", "no such write")
        for one in held.records
        if one.write not in log.writes
    ]
    asked = log.deleted_before.get(tp, 0)
    if held.log_start > asked and not has_retention:
        found.append(Wrong(LOG_START, "", held.log_start, None, None, str(held.log_start), f"at most {asked}"))
    return found


def _missed(
    log: ClientLog, tp: TopicPartition, written: Mapping[int, WrittenRecord], held: ReplicaLog
) -> dict[int, str]:
    """Return the transactions whose client wrote a later one before the marker that ends the first one here.

    ``written``: the writes of the partition by offset. Where none of the first one's records is left, a later one may
    have no offset that anybody knows: its records were never acknowledged, and cleaned away everywhere.
    """
    clients: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for offset, write in written.items():
        if write.transaction is not None:
            transaction = log.transactions[write.transaction]
            clients[transaction.transactional_id].append((offset, transaction.number))
    numbers = {write.number for write in written.values()}
    lost: dict[str, set[int]] = defaultdict(set)
    for write in log.writes.values():
        if (write.topic, write.partition) == tp and write.transaction is not None and write.number not in numbers:
            lost[log.transactions[write.transaction].transactional_id].add(write.transaction)
    left = {one.write for one in held.records}
    missed = {}
    for one in held.ended:
        first = written.get(one.offset)
        if first is not None and first.transaction is not None:
            transactional_id = log.transactions[first.transaction].transactional_id
            later = [n for offset, n in clients[transactional_id] if one.offset < offset < one.marker]
            later += lost[transactional_id] if first.number not in left else ()
            if any(number > first.transaction for number in later):
                missed[first.transaction] = one.belief
    return missed


def _wrong_states(states: Mapping[str, KeyTruth], held: ReplicaLog) -> list[Wrong]:
    here, found = final_state(held.records), []
    for key, one in states.items():
        allowed = {state for possible in one.possible for state in possible.from_start(held.log_start)}
        if here.get(key) not in allowed:
            truth = " or ".join(sorted(map(in_words, allowed)))
            (due, *others) = sorted({possible.transaction or 0 for possible in one.possible})
            state = here.get(key)
            found.append(
                Wrong(
                    STATE,
                    key,
                    None,
                    None,
                    None,
                    in_words(state),
                    truth,
                    due=None if others else due,
                    counts_aborted=tuple(sorted(transaction for made, transaction in one.aborted if made == state)),
                    leaves_out_last=state == one.before,
                    is_deleted=one.is_deleted,
                )
            )
    return found
