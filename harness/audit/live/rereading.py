"""Reads differing partitions again: a log that changes while it is read can seem to differ from other replicas.

Replicas are read batch by batch, at different times on different brokers. The work of a cleaner or a producer meanwhile
can look like any anomaly, but not twice at the same place: when the next reading begins, the cause of the difference is
below every high watermark. A record that a replica missed for good is missing again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from checkers.anomalies import FINDERS
from harness.judge.finding import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from harness.audit.copy_checks import Rows
    from harness.broker_files.copies.copies import ReplicaCopy
    from harness.judge.finding import CheckerRow, Place

READINGS = 3
DOUBTFUL_TABLES = (*FINDERS, "doubts", "unsure", "damaged")
"""Tables whose rows must not rest on one reading."""
CHANGING = "each reading found differences at other offsets: the partition changes faster than it can be read"


@dataclass(frozen=True)
class CheckedReading:
    """One reading of some partitions, with the checkers' rows.

    ``rows``: as `copy_checks.judge_whole` returns them. ``unknown``: by partition, further reasons against ``clean``.
    """

    replicas: tuple[ReplicaCopy, ...]
    rows: Mapping[str, Rows]
    unknown: Mapping[Place, tuple[str, ...]]

    @property
    def places_in_doubt(self) -> set[Place]:
        """The partitions with differences."""
        return {place_of(row) for name in DOUBTFUL_TABLES for row in self.rows[name]}

    @property
    def finding_keys(self) -> set[tuple[Place, int, int, str]]:
        """The findings, each by its place and name."""
        return {_key(row) for name in FINDERS for row in self.rows[name]}


def read_until_confirmed(read: Callable[[int, Collection[Place] | None], CheckedReading]) -> CheckedReading:
    """Read everything, then the partitions in doubt again; return each partition's last reading.

    ``read`` takes the reading's number and the partitions; None for all. Only findings that two readings have in common
    are kept. There are at most `READINGS` readings; a partition that is in doubt after them is unknown.
    """
    latest = read(1, None)
    confirmed: set[tuple[Place, int, int, str]] = set()
    doubtful = latest.places_in_doubt
    for number in range(2, READINGS + 1):
        if not doubtful:
            break
        again = read(number, doubtful)
        confirmed |= latest.finding_keys & again.finding_keys
        latest = _replaced(latest, again, doubtful)
        doubtful = (latest.places_in_doubt & doubtful) - {place for place, *_ in confirmed}
    unsure = {place for place, *_ in latest.finding_keys - confirmed} - {place for place, *_ in confirmed}
    findings = {name: [row for row in latest.rows[name] if _key(row) in confirmed] for name in FINDERS}
    unknown = {place: (*latest.unknown.get(place, ()), CHANGING) for place in unsure}
    return replace(latest, rows={**latest.rows, **findings}, unknown={**latest.unknown, **unknown})


def _replaced(earlier: CheckedReading, again: CheckedReading, places: Collection[Place]) -> CheckedReading:
    """Return the readings merged: these partitions from the later reading. Errors of checkers are kept."""
    replicas = [copy for copy in earlier.replicas if copy.place not in places]
    rows = {
        name: [*(row for row in table if name == "raised" or place_of(row) not in places), *again.rows[name]]
        for name, table in earlier.rows.items()
    }
    unknown = {place: reasons for place, reasons in earlier.unknown.items() if place not in places}
    return CheckedReading((*replicas, *again.replicas), rows, {**unknown, **again.unknown})


def _key(row: CheckerRow) -> tuple[Place, int, int, str]:
    return place_of(row), row["broker"], row["offset"], row["anomaly"]
