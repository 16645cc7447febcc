"""The truth that clients know of a generated partition, and the errors of each replica.

A replica is wrong about a key where its files give another final state than what clients wrote, and about a transaction
where they give another outcome: of records that it holds, by its ``.txnindex``, or as open although it ended.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from partition import Partition, Txn
from truth import Judged, is_below, judge
from view import View

from harness.broker_files.segments.records import COMMIT
from harness.broker_files.side_files.producer_state import AbortedTxn


@dataclass(frozen=True, slots=True)
class Wrongs:
    """The errors of one replica: ``keys`` by their final state; transactions by their keys and producers."""

    keys: frozenset[bytes]
    keys_in_transactions: frozenset[bytes]
    producers: frozenset[int]

    def __bool__(self) -> bool:
        """Return whether it is wrong about anything."""
        return bool(self.keys or self.keys_in_transactions or self.producers)

    def includes(self, key: bytes | None, producer_id: int | None) -> bool:
        """Return whether it is wrong about this key, or without a key about a transaction of this producer."""
        return producer_id in self.producers if key is None else key in self.keys | self.keys_in_transactions


def wrongs_by_broker(partition: Partition) -> dict[int, Wrongs]:
    """Return what each replica of a partition is wrong about."""
    judged = judge(partition, [])
    return {broker: _wrongs(judged, here) for broker, here in judged.views.items()}


def _wrongs(judged: Judged, here: View) -> Wrongs:
    misjudged = {txn.number: txn for txn in _misjudged(judged, here)}
    written = [one for one in judged.partition.written.values() if one.txn in misjudged]
    return Wrongs(
        frozenset(key for key in judged.by_key if _is_wrong(judged, here, key)),
        frozenset(one.key for one in written if one.key is not None),
        frozenset(txn.producer_id for txn in misjudged.values()),
    )


def _is_wrong(judged: Judged, here: View, key: bytes) -> bool:
    if not judged.is_settled(key, here.log_end):
        return False
    last, served = judged.last_committed(key), here.final.get(key)
    if last is None or last.tombstone:
        return served is not None and not served[1]
    return here.covers(last.offset) and served != (last.offset, False)


def _misjudged(judged: Judged, here: View) -> Iterator[Txn]:
    for run in here.runs:
        believed = run.marker.marker if run.marker else None
        for batch in run.batches:
            txn = judged.txn_of(batch)
            is_behind = believed is None and not is_below(txn.marker_offset, here.log_end)
            if txn.outcome != believed and not is_behind:
                yield txn
    for txn in judged.partition.txns:
        if txn.outcome == COMMIT and any(_spans(entry, txn) for entry in here.aborted):
            yield txn


def _spans(entry: AbortedTxn, txn: Txn) -> bool:
    return (
        entry.producer_id == txn.producer_id
        and txn.marker_offset is not None
        and entry.first_offset <= txn.first_offset
        and txn.marker_offset <= entry.last_offset
    )
