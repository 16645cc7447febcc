"""What clients know of each key's final state: the values that it may have once everything is compacted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.soak.evidence.client_log import ABORTED, COMMITTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.kafka_api.messages import TopicPartition
    from harness.soak.evidence.client_log import ClientLog, WrittenRecord

NO_VALUE: Final = "no value"
SOMEWHERE_LATER: Final = float("inf")
"""The offset of a copy that nobody has seen."""

Key = tuple["TopicPartition", str]


@dataclass(frozen=True)
class Possible:
    """A final state that a key may have: the write whose value it is, None for no value.

    ``offset`` and ``transaction`` of the write that makes it so; None where they are unknown, or there is none.
    """

    state: int | None
    offset: int | None = None
    transaction: int | None = None

    def from_start(self, log_start: int) -> set[int | None]:
        """Return the states that a replica may serve whose log starts there."""
        if self.offset is None:
            return {self.state, None} if log_start else {self.state}
        return {None} if self.offset < log_start else {self.state}


@dataclass(frozen=True)
class KeyTruth:
    """The states that a key may have in the end.

    ``aborted``: those that later records of aborted transactions would make, with the transaction. ``before``: the
    state without the last committed record. ``is_deleted``: the last record that clients know to be committed is a
    delete.
    """

    possible: frozenset[Possible]
    aborted: frozenset[tuple[int | None, int]]
    before: int | None
    is_deleted: bool

    @property
    def is_known(self) -> bool:
        """Whether clients know enough."""
        return len({one.state for one in self.possible}) == 1


def key_truths(log: ClientLog, offsets: Mapping[int, set[float]]) -> Mapping[TopicPartition, Mapping[str, KeyTruth]]:
    """Return what clients know of each key that they wrote.

    ``offsets``: where each write is, by its number; more than one of a write that was appended again.
    """
    by_key: dict[Key, list[WrittenRecord]] = defaultdict(list)
    for write in log.writes.values():
        by_key[(write.topic, write.partition), write.key].append(write)
    found: dict[TopicPartition, dict[str, KeyTruth]] = defaultdict(dict)
    for (tp, key), writes in sorted(by_key.items()):
        found[tp][key] = _key_truth(log, writes, offsets)
    return found


def in_words(write: int | None) -> str:
    """Return a final state in words."""
    return NO_VALUE if write is None else f"the value of write {write}"


def _key_truth(log: ClientLog, writes: Sequence[WrittenRecord], offsets: Mapping[int, set[float]]) -> KeyTruth:
    """Return what clients know of a key.

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
    certain = _possible(known[last], last) if known else Possible(None)
    possible = (*(_possible(write, None) for write in maybe), certain)
    aborted = frozenset(
        (None if write.is_delete else write.number, write.transaction or 0)
        for write in writes
        if log.outcome_of(write) == ABORTED and max(offsets[write.number], default=last + 1) > last
    )
    previous = known[max(earlier)] if (earlier := known.keys() - {last}) else None
    before = None if previous is None or previous.is_delete else previous.number
    return KeyTruth(frozenset(possible), aborted, before, is_deleted=bool(known) and known[last].is_delete)


def _possible(write: WrittenRecord, offset: int | None) -> Possible:
    return Possible(None if write.is_delete else write.number, offset, write.transaction)
