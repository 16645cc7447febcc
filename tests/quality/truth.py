"""The truth of a partition, which clients know, next to the files of each replica.

A replica is wrong about a key where its files give another final state than what clients wrote, and about a transaction
where they give another outcome: of records that it holds, by its ``.txnindex``, or as open although it ended.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from partition import Partition, Txn, Written
from view import View, view

from harness.broker_files.segments.records import COMMIT
from harness.broker_files.side_files.producer_state import AbortedTxn
from harness.models.log.batch import ModelBatch


@dataclass(slots=True)
class Judged:
    """The truth, and each replica's view; below ``bound``, as the oracle defines it, replicas are compared."""

    partition: Partition
    views: dict[int, View]
    bound: int
    by_key: dict[bytes, list[Written]]

    def txn_of(self, batch: ModelBatch) -> Txn:
        if batch.txn is None:
            raise ValueError(f"the batch at {batch.base_offset} is of no transaction")
        return self.partition.txns[batch.txn]

    def others(self, here: View) -> Iterator[View]:
        return (other for other in self.views.values() if other is not here)

    def is_committed(self, written: Written) -> bool:
        """Return the true outcome of a record; open is not committed."""
        return written.txn is None or self.partition.txns[written.txn].outcome == COMMIT

    def last_committed(self, key: bytes) -> Written | None:
        return next((written for written in reversed(self.by_key[key]) if self.is_committed(written)), None)

    def is_settled(self, key: bytes, log_end: int) -> bool:
        """Tell whether a replica that ends here has had all that can change a key.

        One that stopped while it copied a cleaned log has passed offsets of which a later record, beyond its end,
        has removed everything.
        """
        for written in self.by_key[key]:
            marker = None if written.txn is None else self.partition.txns[written.txn].marker_offset
            if self.is_committed(written) and max(written.offset, marker or 0) >= log_end:
                return False
        return True

    def is_wrong(self, here: View, key: bytes) -> bool:
        """Compare a key's last committed record on a replica with the true one below its log end."""
        if not self.is_settled(key, here.log_end):
            return False
        last, served = self.last_committed(key), here.final.get(key)
        if last is None or last.tombstone or not here.covers(last.offset):
            return served is not None and not served[1]
        return served != (last.offset, False)

    def only_here(self, here: View, key: bytes, offset: int) -> bool:
        """Tell whether another replica has removed what this one holds, and whatever removed it is not ahead."""
        return (
            offset < self.bound
            and self.nothing_hidden_ahead(here)
            and any(
                other.covers(offset)
                and offset < other.log_end <= here.log_end
                and other.last_of_keys.get(key, -1) < offset
                for other in self.others(here)
            )
        )

    def nothing_hidden_ahead(self, here: View) -> bool:
        """Tell whether all that was written beyond a replica's end is still on every replica that goes further.

        Else a record that is gone may have taken away, on the leader that this replica copied, what it lacks.
        """
        return all(
            other.log_end <= here.log_end or (other.replica.cleaned_to or 0) <= here.log_end
            for other in self.others(here)
        )

    def own_marker(self, here: View, txn: Txn) -> bool:
        """Tell whether another replica shows the marker of a transaction, below the bound."""
        return is_below(txn.marker_offset, min(self.bound, here.log_end)) and any(
            batch.marker and batch.base_offset == txn.marker_offset
            for other in self.others(here)
            for batch in other.control[txn.producer_id]
        )


def spans(entry: AbortedTxn, txn: Txn) -> bool:
    """Tell whether an entry of a ``.txnindex`` is of a transaction's producer, and spans it."""
    return (
        entry.producer_id == txn.producer_id
        and txn.marker_offset is not None
        and entry.first_offset <= txn.first_offset
        and txn.marker_offset <= entry.last_offset
    )


def is_below(offset: int | None, end: int) -> bool:
    """Tell whether there is such an offset, and it lies below an end."""
    return offset is not None and offset < end


def judge(partition: Partition, high_watermarks: Iterable[int]) -> Judged:
    """Read every replica; no checkpoint at all leaves the shortest log end as the bound."""
    by_key = defaultdict(list)
    for written in partition.written.values():
        if written.key is not None:
            by_key[written.key].append(written)
    shortest = min(replica.log_end for replica in partition.replicas.values())
    views = {broker: view(replica) for broker, replica in partition.replicas.items()}
    return Judged(partition, views, min(max(high_watermarks, default=shortest), shortest), by_key)


@dataclass(frozen=True, slots=True)
class Wrongs:
    """The errors of one replica: ``keys`` by their final state; transactions by their keys and producers."""

    keys: frozenset[bytes]
    keys_in_transactions: frozenset[bytes]
    producers: frozenset[int]

    def __bool__(self) -> bool:
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
        frozenset(key for key in judged.by_key if judged.is_wrong(here, key)),
        frozenset(one.key for one in written if one.key is not None),
        frozenset(txn.producer_id for txn in misjudged.values()),
    )


def _misjudged(judged: Judged, here: View) -> Iterator[Txn]:
    for run in here.runs:
        believed = run.marker.marker if run.marker else None
        for batch in run.batches:
            txn = judged.txn_of(batch)
            is_behind = believed is None and not is_below(txn.marker_offset, here.log_end)
            if txn.outcome != believed and not is_behind:
                yield txn
    for txn in judged.partition.txns:
        if txn.outcome == COMMIT and any(spans(entry, txn) for entry in here.aborted):
            yield txn
