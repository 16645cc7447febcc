"""Whether differences between replicas are still there after all replicas were read: a cleaner may have caused them.

A replica that is read while its cleaner works may show a record without a later record that was removed meanwhile. But
a cleaner removes in order: a value before the later record that supersedes it, the data of a transaction before its
marker, and the index entry of an aborted transaction with its marker (`Cleaner.cleanInto`,
`CleanedTransactionMetadata`). So where the earlier record is still there afterwards, nothing that follows it was
removed before it was read, and the difference is real. Where it is gone, the difference proves nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from checkers.finding import BATCH, LIST
from harness.audit.live.cluster import PATIENT, AuditedCluster
from harness.audit.live.reading import FETCH_BYTES, PARTITIONS_A_REQUEST
from harness.broker_files.segments.batches import iter_batches, iter_records, until_cut
from harness.judge.finding import CheckerRow, Place, name_of, place_of
from harness.kafka_api import OUT_OF_RANGE
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import READ_COMMITTED, READ_UNCOMMITTED, ReplicaState, choose_fetch_version, fetch

PARTITION_BYTES: Final = 64 << 10
"""Of an answer. A larger batch is sent where its partition is the first one with records."""
Holders = Mapping[tuple[Place, bytes, int], Sequence[int]]
"""The brokers that had a disputed record, by partition, key and offset."""


@dataclass(frozen=True)
class DisputedItem:
    """A record, a batch, or a listed aborted transaction (``shown_by``) of a broker, on which a checker's row rests.

    ``producer_id``: whose transaction is listed.
    """

    broker: int
    place: Place
    offset: int
    shown_by: str
    producer_id: int | None


def holders_of(key_states: Iterable[CheckerRow]) -> Holders:
    """Return the brokers that had each disputed record, by rows of `checkers.attribution.blame.key_states`."""
    holders: dict[tuple[Place, bytes, int], list[int]] = {}
    for row in key_states:
        if row["at"] is not None:
            holders.setdefault((place_of(row), bytes(row["key"]), row["disputed"]), []).append(row["broker"])
    return holders


def items_of(row: CheckerRow, holders: Holders) -> list[DisputedItem]:
    """Return the evidence of a row, of which one suffices: of the row's broker, else of those that had the record."""
    place, offset = place_of(row), row["offset"]
    had_it = [] if row.get("key") is None else holders.get((place, bytes(row["key"]), offset), [])
    brokers = [row["broker"]] if row["broker"] in had_it or not had_it or row["shown_by"] == LIST else had_it
    return [DisputedItem(broker, place, offset, row["shown_by"], row["producer_id"]) for broker in brokers]


def still_there(cluster: AuditedCluster, evidence: Iterable[DisputedItem]) -> set[DisputedItem]:
    """Return the evidence that brokers still show, and that of brokers that do not answer."""
    by_broker: dict[int, list[DisputedItem]] = {}
    for shown in evidence:
        by_broker.setdefault(shown.broker, []).append(shown)

    def ask(broker: int, caller: Connection) -> set[DisputedItem]:
        version = caller.ask(choose_fetch_version())
        of_lists, of_logs = (
            [shown for shown in by_broker[broker] if (shown.shown_by == LIST) == is_list] for is_list in (True, False)
        )
        return _look_up(caller, of_lists, READ_COMMITTED, version) | _look_up(
            caller, of_logs, READ_UNCOMMITTED, version
        )

    answers, errors = cluster.client.ask_all(by_broker, ask, PATIENT)
    unasked = {shown for broker in errors for shown in by_broker[broker]}
    return unasked.union(*answers.values())


def _look_up(broker: Connection, items: Iterable[DisputedItem], isolation: int, version: int) -> set[DisputedItem]:
    """Return the items that the broker still shows, or refuses to show. Each request has an offset of each partition.

    Raises OSError where the broker is gone.
    """
    waiting: dict[Place, dict[int, list[DisputedItem]]] = {}
    for item in items:
        waiting.setdefault(item.place, {}).setdefault(item.offset, []).append(item)
    shown: set[DisputedItem] = set()
    while waiting:
        offsets = {place: next(iter(waiting[place])) for place in islice(waiting, PARTITIONS_A_REQUEST)}
        request = fetch(
            offsets, isolation=isolation, max_bytes=FETCH_BYTES, partition_max_bytes=PARTITION_BYTES, version=version
        )
        answers = broker.ask(request)
        is_empty = not any(isinstance(answer, ReplicaState) and answer.records for answer in answers.values())
        for place, answer in answers.items():
            if isinstance(answer, ReplicaState) and not answer.records and not is_empty:
                # Others used up the answer. The first partition is always answered.
                continue
            shown.update(item for item in waiting[place].pop(offsets[place]) if _is_shown(item, answer))
            if not waiting[place]:
                del waiting[place]
    return shown


def _is_shown(item: DisputedItem, answer: ReplicaState | str) -> bool:
    if not isinstance(answer, ReplicaState):
        return answer != OUT_OF_RANGE
    if item.shown_by == LIST:
        return any(p == item.producer_id and first <= item.offset for p, first in answer.aborted)
    source = f"Fetch answer of {name_of(item.place)}"
    for batch in until_cut(iter_batches(answer.records, source=source, verify_crc=False)):
        if batch.base_offset <= item.offset <= batch.last_offset:
            if item.shown_by == BATCH:
                return batch.base_offset == item.offset
            return any(record.offset == item.offset for record in iter_records(batch, source=source))
    return False
