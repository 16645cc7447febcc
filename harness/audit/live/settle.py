"""Readings of partitions, judged, without the differences that went away meanwhile, as a cleaner may have caused them.

A replica that is read while its cleaner works may show a record without a later record that was removed meanwhile. But
a cleaner removes in order: a value before the later record that supersedes it, the data of a transaction before its
marker, and the index entry of an aborted transaction with its marker (`Cleaner.cleanInto`,
`CleanedTransactionMetadata`). So where the earlier record is still there afterwards, nothing that follows it was
removed before it was read, and the difference is real. Where it is gone, the difference proves nothing; and if the row
of a checker stands for several records, it may hide others: then the partition is read again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeAlias

from checkers.anomalies import FINDERS
from checkers.evidence.tables import REPLICA_PLACE
from checkers.finding import BATCH, LIST, LISTED, RECORD
from harness.audit.judge_copies import KEY_STATES, NO_ROWS, NOT_LOOKED_UP, Rows
from harness.audit.live.cluster import PATIENT, AuditedCluster
from harness.audit.live.reading import FETCH_BYTES, PARTITIONS_A_REQUEST
from harness.audit.live.spool import SpoolLimitError
from harness.broker_files.copies.copies import ReplicaCopy
from harness.broker_files.segments.batches import iter_batches, iter_records, until_cut
from harness.broker_files.segments.key_share import ALL_KEYS, KeyShare
from harness.judge.finding import CheckerRow, Place, name_of, place_of
from harness.judge.verdict import UnknownReason
from harness.kafka_api import OUT_OF_RANGE
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import READ_COMMITTED, READ_UNCOMMITTED, ReplicaState, choose_version, fetch

READINGS = 3
UNANSWERED: Final = "unanswered"
"""In place of ``shown_by``: an item that a broker refuses to show, which proves nothing."""
DOUBTFUL_TABLES = (*FINDERS, "doubts", "unsure")
"""Tables whose rows brokers are asked about again."""
GROUPED_TABLES = frozenset({"aborted_to_committed", "committed_to_aborted", "missed_marker", "doubts"})
"""Tables with rows that stand for several records."""
MOST_LOOKED_UP = 1_000
"""The most differences of a partition about which brokers are asked again."""
CHANGING = (
    "each reading found other differences that went away, or that a broker could not show again: the partition is"
    " cleaned faster than it can be read, or its replicas move"
)
MOST_SHARES: Final = 256
"""The most shares of keys in which partitions are read."""
PARTITION_BYTES: Final = 64 << 10
"""Of an answer. A larger batch is sent where its partition is the first one with records."""
SAME_STATEMENT: Final = {**dict.fromkeys(FINDERS, (*REPLICA_PLACE, "anomaly", "offset")), "replicas": REPLICA_PLACE}
"""The columns in which two rows agree that say the same of a replica; of other tables, all columns."""
Holders: TypeAlias = Mapping[tuple[Place, bytes, int], Sequence[int]]
"""The brokers that had a disputed record, by partition, key and offset."""


@dataclass(frozen=True)
class CheckedReading:
    """One reading of some partitions, with the checkers' rows.

    ``rows``: as `judge_whole` returns them. ``unknown``: by partition, further reasons against ``clean``.
    """

    replicas: tuple[ReplicaCopy, ...]
    rows: Mapping[str, Rows]
    unknown: Mapping[Place, tuple[UnknownReason, ...]]


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


StillThere: TypeAlias = Callable[[Iterable[DisputedItem]], set[DisputedItem]]


def read_until_settled(
    read: Callable[[int, Collection[Place]], CheckedReading], places: Collection[Place], still_there: StillThere
) -> CheckedReading:
    """Read partitions, and those in doubt again; return each partition's last reading, without what went away.

    ``read`` takes the reading's number and the partitions. ``still_there``: see there. There are at most `READINGS`
    readings; a partition that is in doubt after them is unknown.
    """
    latest, doubtful = _settled(read(1, places), still_there)
    for number in range(2, READINGS + 1):
        if not doubtful:
            break
        again, still_doubtful = _settled(read(number, doubtful), still_there)
        latest, doubtful = merged([without(latest, doubtful), again]), still_doubtful
    why = UnknownReason("changing", CHANGING)
    changing = {place: (*latest.unknown.get(place, ()), why) for place in doubtful}
    return replace(latest, unknown={**latest.unknown, **changing})


def _settled(reading: CheckedReading, still_there: StillThere) -> tuple[CheckedReading, set[Place]]:
    """Return a reading without the differences that went away, and the partitions to read again."""
    holders = _holders_of(reading.rows[KEY_STATES])
    counts: Counter[Place] = Counter()
    looked_up: list[tuple[str, CheckerRow, list[DisputedItem]]] = []
    for name in DOUBTFUL_TABLES:
        for row in reading.rows[name]:
            counts[place_of(row)] += 1
            if counts[place_of(row)] <= MOST_LOOKED_UP:
                looked_up.append((name, row, _items_of(row, holders)))
    shown = still_there({item for *_, items in looked_up for item in items})
    remaining: dict[str, list[CheckerRow]] = {name: [] for name in DOUBTFUL_TABLES}
    doubtful = {place_of(row) for row in reading.rows["damaged"]}
    for name, row, items in looked_up:
        if not shown.isdisjoint(items):
            remaining[name].append(row)
        elif (
            name in GROUPED_TABLES
            # Rows beyond the listed ones were not collected, and not looked up.
            or row.get("total", 0) > LISTED
            or not shown.isdisjoint(map(_unanswered, items))
        ):
            doubtful.add(place_of(row))
    unknown = dict(reading.unknown)
    for place, count in counts.items():
        if (left_out := count - MOST_LOOKED_UP) > 0:
            text = f"{left_out:,} of {count:,} differences were not looked up again, and are not reported"
            unknown[place] = (*unknown.get(place, ()), UnknownReason(NOT_LOOKED_UP, text))
    return replace(reading, rows={**reading.rows, **remaining}, unknown=unknown), doubtful


def _holders_of(key_states: Rows) -> Holders:
    """Return the brokers that had each disputed record, by rows of `checkers.attribution.blame.key_states`."""
    holders: dict[tuple[Place, bytes, int], list[int]] = {}
    for row in key_states:
        if row["at"] is not None:
            holders.setdefault((place_of(row), bytes(row["key"]), row["disputed"]), []).append(row["broker"])
    return holders


def _items_of(row: CheckerRow, holders: Holders) -> list[DisputedItem]:
    """Return the evidence of a row, of which one suffices: of the row's broker, else of those that had the record."""
    place, offset = place_of(row), row["offset"]
    is_of_record = row["shown_by"] == RECORD and row.get("key") is not None
    had_it = holders.get((place, bytes(row["key"]), offset), []) if is_of_record else []
    brokers = [row["broker"]] if row["broker"] in had_it or not had_it else had_it
    return [DisputedItem(broker, place, offset, row["shown_by"], row["producer_id"]) for broker in brokers]


def without(reading: CheckedReading, places: Collection[Place]) -> CheckedReading:
    """Return the reading of all other partitions. Errors of checkers are kept."""
    return CheckedReading(
        tuple(copy for copy in reading.replicas if copy.place not in places),
        {
            name: [row for row in table if name == "raised" or place_of(row) not in places]
            for name, table in reading.rows.items()
        },
        {place: reasons for place, reasons in reading.unknown.items() if place not in places},
    )


def merged(readings: Sequence[CheckedReading]) -> CheckedReading:
    """Return the readings of different partitions as one."""
    rows = {name: [row for reading in readings for row in reading.rows[name]] for name in NO_ROWS}
    raised = {tuple(sorted(row.items())): row for row in rows["raised"]}
    return CheckedReading(
        tuple(copy for reading in readings for copy in reading.replicas),
        {**rows, "raised": list(raised.values())},
        {place: reasons for reading in readings for place, reasons in reading.unknown.items()},
    )


def read_in_shares(read: Callable[[KeyShare], CheckedReading], places: Collection[Place]) -> CheckedReading:
    """Read all keys of the partitions together, and where these are larger than the limit of the spool, by shares.

    ``read`` raises `SpoolLimitError` for a share that is too large. Partitions of which one share of `MOST_SHARES` is
    too large are unknown.
    """
    shares, done = [ALL_KEYS], []
    while shares:
        share = shares.pop(0)
        try:
            done.append(read(share))
        except SpoolLimitError as error:
            if share.count >= MOST_SHARES:
                why = UnknownReason("too-large", f"{error}, even for one of {share.count} parts of its keys")
                return CheckedReading((), NO_ROWS, dict.fromkeys(places, (why,)))
            shares = [*share.halves(), *shares]
    return done[0] if len(done) == 1 else of_all_keys(done)


def of_all_keys(readings: Sequence[CheckedReading]) -> CheckedReading:
    """Return the readings of the same partitions as one; each has other keys.

    A finding about a transaction is in several of them: the first one with a key is taken.
    """
    together = merged(readings)
    reasons: dict[Place, dict[UnknownReason, None]] = {}
    for reading in readings:
        for place, whys in reading.unknown.items():
            reasons.setdefault(place, {}).update(dict.fromkeys(whys))
    return CheckedReading(
        tuple({(copy.place, copy.broker): copy for copy in together.replicas}.values()),
        {name: _different(name, table) for name, table in together.rows.items()},
        {place: tuple(whys) for place, whys in reasons.items()},
    )


def _different(name: str, rows: Rows) -> Rows:
    """Return the rows of a table. Of several rows with the same statement about a replica, return only one."""
    columns = SAME_STATEMENT.get(name)
    different: dict[object, CheckerRow] = {}
    for row in sorted(rows, key=lambda row: row.get("key") is None):
        different.setdefault(tuple(map(row.get, columns)) if columns else repr(row), row)
    return list(different.values())


def still_there(cluster: AuditedCluster, items: Iterable[DisputedItem]) -> set[DisputedItem]:
    """Return the items that brokers still show, and those of brokers that do not answer."""
    by_broker: dict[int, list[DisputedItem]] = {}
    for item in items:
        by_broker.setdefault(item.broker, []).append(item)

    def ask(broker: int, caller: Connection) -> set[DisputedItem]:
        version = caller.ask(choose_version())
        of_lists = [item for item in by_broker[broker] if item.shown_by == LIST]
        of_logs = [item for item in by_broker[broker] if item.shown_by != LIST]
        shown = _look_up(caller, of_lists, READ_COMMITTED, version)
        return shown | _look_up(caller, of_logs, READ_UNCOMMITTED, version)

    answers, errors = cluster.client.ask_all(by_broker, ask, PATIENT)
    return {_unanswered(item) for broker in errors for item in by_broker[broker]}.union(*answers.values())


def _unanswered(item: DisputedItem) -> DisputedItem:
    return replace(item, shown_by=UNANSWERED)


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
            asked = waiting[place].pop(offsets[place])
            if isinstance(answer, ReplicaState):
                shown.update(item for item in asked if _is_shown(item, answer))
            elif answer != OUT_OF_RANGE:
                shown.update(map(_unanswered, asked))
            if not waiting[place]:
                del waiting[place]
    return shown


def _is_shown(item: DisputedItem, answer: ReplicaState) -> bool:
    if item.shown_by == LIST:
        return any(p == item.producer_id and first <= item.offset for p, first in answer.aborted)
    source = f"Fetch answer of {name_of(item.place)}"
    for batch in until_cut(iter_batches(answer.records, source=source, verify_crc=False)):
        if batch.base_offset <= item.offset <= batch.last_offset:
            if item.shown_by == BATCH:
                return batch.base_offset == item.offset
            return any(record.offset == item.offset for record in iter_records(batch, source=source))
    return False
