"""Reads differing partitions again: a log that changes while it is read can seem to differ from other replicas.

Replicas are read batch by batch, at different times on different brokers. What a cleaner or a producer did meanwhile
can look like any anomaly, but not twice at the same place: by the time that the next reading begins, the cause of the
difference is below every high watermark. A record that a replica missed for good is missing again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from checkers.anomalies import FINDERS
from harness.audit.explain.knowledge import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from harness.audit.copy_checks import Rows
    from harness.broker_files.copies.copies import ReplicaCopy
    from harness.judge.finding import CheckerRow, Place

ROUNDS = 3
DOUBTFUL_TABLES = (*FINDERS, "doubts", "unsure", "damaged")
"""Tables whose rows must not rest on one reading."""
CHANGING = "each reading found differences at other offsets: the partition changes faster than it can be read"


@dataclass(frozen=True)
class Round:
    """One reading of some partitions, with the checkers' rows.

    ``rows``: as `copy_checks.judge_whole` returns them. ``unknown``: by partition, further reasons against ``clean``.
    """

    replicas: tuple[ReplicaCopy, ...]
    rows: Mapping[str, Rows]
    unknown: Mapping[Place, tuple[str, ...]]


def repeated(read: Callable[[int, Collection[Place] | None], Round]) -> Round:
    """Read everything, then the partitions in doubt again; return each partition's last reading.

    ``read`` takes the round's number and the partitions; None for all. Only findings that two readings have in common
    are kept. There are at most `ROUNDS` readings; a partition that is in doubt after them is unknown.
    """
    latest = read(1, None)
    confirmed: set[tuple[Any, ...]] = set()
    doubtful = _places_in_doubt(latest)
    for number in range(2, ROUNDS + 1):
        if not doubtful:
            break
        again = read(number, doubtful)
        confirmed |= _finding_keys(latest) & _finding_keys(again)
        latest = _replaced(latest, again, doubtful)
        confirmed_places = {place[:2] for place in confirmed}
        doubtful = {place for place in _places_in_doubt(latest) & doubtful if place not in confirmed_places}
    unsure = {place[:2] for place in _finding_keys(latest) - confirmed} - {place[:2] for place in confirmed}
    findings = {name: [row for row in latest.rows[name] if _key(row) in confirmed] for name in FINDERS}
    unknown = {place: (*latest.unknown.get(place, ()), CHANGING) for place in unsure}
    return replace(latest, rows={**latest.rows, **findings}, unknown={**latest.unknown, **unknown})


def _replaced(earlier: Round, again: Round, places: Collection[Place]) -> Round:
    """Return the rounds merged: these partitions from the later reading. What a checker raised is kept."""
    replicas = [copy for copy in earlier.replicas if (copy.topic, copy.partition) not in places]
    rows = {
        name: [*(row for row in table if name == "raised" or place_of(row) not in places), *again.rows[name]]
        for name, table in earlier.rows.items()
    }
    unknown = {place: reasons for place, reasons in earlier.unknown.items() if place not in places}
    return Round((*replicas, *again.replicas), rows, {**unknown, **again.unknown})


def _places_in_doubt(one: Round) -> set[Place]:
    return {place_of(row) for name in DOUBTFUL_TABLES for row in one.rows[name]}


def _finding_keys(one: Round) -> set[tuple[Any, ...]]:
    return {_key(row) for name in FINDERS for row in one.rows[name]}


def _key(row: CheckerRow) -> tuple[Any, ...]:
    return (*place_of(row), row["broker"], row["offset"], row["anomaly"])
