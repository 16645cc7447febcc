"""Readings of partitions, judged, without the differences that went away meanwhile.

A row of a checker that stands for several records may hide others: where such a row goes away, the partition is read
again.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from checkers.anomalies import FINDERS
from harness.audit.judge_copies import KEY_STATES, NO_ROWS, Rows
from harness.audit.live.recheck import DisputedItem, holders_of, items_of
from harness.broker_files.copies.copies import ReplicaCopy
from harness.judge.finding import CheckerRow, Place, place_of
from harness.judge.verdict import UnknownReason

READINGS = 3
DOUBTFUL_TABLES = (*FINDERS, "doubts", "unsure")
"""Tables whose rows brokers are asked about again."""
GROUPED_TABLES = frozenset({"aborted_to_committed", "committed_to_aborted", "missed_marker", "doubts"})
"""Tables with rows that stand for several records."""
MOST_LOOKED_UP = 1_000
"""The most differences of a partition about which brokers are asked again."""
CHANGING = "each reading found other differences that went away: the partition is cleaned faster than it can be read"


@dataclass(frozen=True)
class CheckedReading:
    """One reading of some partitions, with the checkers' rows.

    ``rows``: as `judge_whole` returns them. ``unknown``: by partition, further reasons against ``clean``.
    """

    replicas: tuple[ReplicaCopy, ...]
    rows: Mapping[str, Rows]
    unknown: Mapping[Place, tuple[UnknownReason, ...]]


def read_until_settled(
    read: Callable[[int, Collection[Place]], CheckedReading],
    places: Collection[Place],
    still_there: Callable[[Iterable[DisputedItem]], set[DisputedItem]],
) -> CheckedReading:
    """Read partitions, and those in doubt again; return each partition's last reading, without what went away.

    ``read`` takes the reading's number and the partitions. ``still_there``: see `recheck`. There are at
    most `READINGS` readings; a partition that is in doubt after them is unknown.
    """
    latest, doubtful = _settled(read(1, places), still_there)
    for number in range(2, READINGS + 1):
        if not doubtful:
            break
        again, still_doubtful = _settled(read(number, doubtful), still_there)
        latest, doubtful = _replaced(latest, again, doubtful), still_doubtful
    why = UnknownReason("changing", CHANGING)
    changing = {place: (*latest.unknown.get(place, ()), why) for place in doubtful}
    return replace(latest, unknown={**latest.unknown, **changing})


def _settled(
    reading: CheckedReading, still_there: Callable[[Iterable[DisputedItem]], set[DisputedItem]]
) -> tuple[CheckedReading, set[Place]]:
    """Return a reading without the differences that went away, and the partitions to read again."""
    holders = holders_of(reading.rows[KEY_STATES])
    rows = [(name, row, items_of(row, holders)) for name in DOUBTFUL_TABLES for row in reading.rows[name]]
    counts: Counter[Place] = Counter()
    looked_up = []
    for item in rows:
        counts[place_of(item[1])] += 1
        if counts[place_of(item[1])] <= MOST_LOOKED_UP:
            looked_up.append(item)
    shown = still_there({evidence for *_, every in looked_up for evidence in every})
    remaining: dict[str, list[CheckerRow]] = {name: [] for name in DOUBTFUL_TABLES}
    doubtful = {place_of(row) for row in reading.rows["damaged"]}
    for name, row, every in looked_up:
        if not shown.isdisjoint(every):
            remaining[name].append(row)
        elif name in GROUPED_TABLES:
            doubtful.add(place_of(row))
    unknown = dict(reading.unknown)
    for place, count in counts.items():
        if (left_out := count - MOST_LOOKED_UP) > 0:
            text = f"{left_out:,} of {count:,} differences were not looked up again, and are not reported"
            unknown[place] = (*unknown.get(place, ()), UnknownReason("not-looked-up", text))
    return replace(reading, rows={**reading.rows, **remaining}, unknown=unknown), doubtful


def _replaced(earlier: CheckedReading, again: CheckedReading, places: Collection[Place]) -> CheckedReading:
    """Return the readings merged: these partitions from the later reading. Errors of checkers are kept."""
    replicas = [copy for copy in earlier.replicas if copy.place not in places]
    rows = {
        name: [*(row for row in table if name == "raised" or place_of(row) not in places), *again.rows[name]]
        for name, table in earlier.rows.items()
    }
    unknown = {place: reasons for place, reasons in earlier.unknown.items() if place not in places}
    return CheckedReading((*replicas, *again.replicas), rows, {**unknown, **again.unknown})


def merged(readings: Sequence[CheckedReading]) -> CheckedReading:
    """Return the readings of different partitions as one."""
    rows = {name: [row for reading in readings for row in reading.rows[name]] for name in NO_ROWS}
    raised = {tuple(sorted(row.items())): row for row in rows["raised"]}
    return CheckedReading(
        tuple(copy for reading in readings for copy in reading.replicas),
        {**rows, "raised": list(raised.values())},
        {place: reasons for reading in readings for place, reasons in reading.unknown.items()},
    )
