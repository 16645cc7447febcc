"""The records that a read_committed consumer is delivered from a replica, and the aborted transactions that it learns.

Source of the rules: Fetch (``LocalLog.read``, ``TransactionIndex``) and the Java consumer (``CompletedFetch``).
"""

from collections.abc import Iterator

from harness.broker_files.segments.records import ABORT, Record
from harness.models.log.batch import ModelBatch
from harness.models.log.replica import Replica


def listed_aborts(replica: Replica) -> tuple[tuple[int, int], ...]:
    """Return producer id and first offset of the aborted transactions that a read_committed consumer receives.

    The consumer reads from the start. One answer never crosses the end of a segment, nor the last stable offset
    (``LocalLog.read``), and lists the transactions that end at or after its start and begin before the next segment
    (``LocalLog.addAbortedTransactions``, ``TransactionIndex.collectAbortedTxns``), in the index's order.
    """
    aborts: set[tuple[int, int]] = set()
    at, stable_offset = replica.log_start, replica.last_stable_offset
    ends = [*(segment.base_offset for segment in replica.segments[1:]), replica.log_end]
    for segment, upper in zip(replica.segments, ends, strict=True):
        batches = [batch for batch in segment.batches if at <= batch.last_offset]
        if batches and at < stable_offset:
            entries = replica.aborted_before(segment.base_offset, upper, at)
            aborts.update((entry.producer_id, entry.first_offset) for entry in entries)
            # An answer without a record lists aborted transactions, too.
            at = max((b.last_offset + 1 for b in batches if b.base_offset < stable_offset), default=stable_offset)
    return tuple(dict.fromkeys(pair for it in replica.aborted if (pair := (it.producer_id, it.first_offset)) in aborts))


def batches_up_to(replica: Replica, end: int) -> Iterator[ModelBatch]:
    """Yield the batches from the log start to an offset: to the last stable offset for a read_committed consumer."""
    return (batch for batch in replica.from_offset(replica.log_start) if batch.base_offset < end)


def delivered(replica: Replica) -> Iterator[Record]:
    """Yield the records that a read_committed consumer delivers: no data of a listed transaction, until its ABORT."""
    ahead = sorted(((first, producer_id) for producer_id, first in listed_aborts(replica)), reverse=True)
    aborted: set[int] = set()
    for batch in batches_up_to(replica, replica.last_stable_offset):
        while ahead and ahead[-1][0] <= batch.last_offset:
            aborted.add(ahead.pop()[1])
        if batch.marker == ABORT:
            aborted.discard(batch.producer_id)
        elif not batch.control and not (batch.transactional and batch.producer_id in aborted):
            yield from batch.records
