"""What differs is read again: a cluster goes on while it is read, and a log that changes meanwhile seems to differ.

Replicas are read one batch after the other, at different times on different brokers. What a cleaner or a producer did
meanwhile can look like any anomaly, but not twice at the same place: whatever made the difference is below every high
watermark by the time that the next reading begins. What was missed for good is there again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from checkers.anomalies import FINDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from harness.audit.judge import Rows
    from harness.brokers.copies.copies import ReplicaCopy

ROUNDS = 3
IN_DOUBT = (*FINDERS, "doubts", "unsure", "damaged")
"""Tables of which no row may rest on one reading."""
MOVING = "replicas differed, at other places each time that they were read: it changes faster than it can be read"

Place: TypeAlias = "tuple[str, int]"
"""Topic and partition."""


@dataclass(frozen=True)
class Round:
    """A reading of some partitions, judged.

    ``rows``: as `harness.audit.judge.judge_whole` returns them. ``unknown``: by partition, what else forbids
    to call it clean.
    """

    replicas: tuple[ReplicaCopy, ...]
    rows: Mapping[str, Rows]
    unknown: Mapping[Place, tuple[str, ...]]


def repeated(read: Callable[[int, Collection[Place] | None], Round]) -> Round:
    """Read everything, and then what is in doubt again; return each partition's last reading.

    ``read`` is given the round's number and the partitions; None for all. Of the findings those are kept that two
    readings have in common. At most `ROUNDS` times; what is still in doubt then is unknown.
    """
    known = read(1, None)
    sure: set[tuple[Any, ...]] = set()
    doubtful = _doubtful(known)
    for number in range(2, ROUNDS + 1):
        if not doubtful:
            break
        again = read(number, doubtful)
        sure |= _found(known) & _found(again)
        known = _with(known, again, doubtful)
        settled = {place[:2] for place in sure}
        doubtful = {place for place in _doubtful(known) & doubtful if place not in settled}
    unsure = {place[:2] for place in _found(known) - sure} - {place[:2] for place in sure}
    found = {name: [row for row in known.rows[name] if _key(row) in sure] for name in FINDERS}
    unknown = {place: (*known.unknown.get(place, ()), MOVING) for place in unsure}
    return replace(known, rows={**known.rows, **found}, unknown={**known.unknown, **unknown})


def _with(known: Round, again: Round, places: Collection[Place]) -> Round:
    """Return what is known with these partitions as they were read again. What a checker raised is not forgotten."""
    replicas = [copy for copy in known.replicas if (copy.topic, copy.partition) not in places]
    rows = {
        name: [*(row for row in table if name == "raised" or _place(row) not in places), *again.rows[name]]
        for name, table in known.rows.items()
    }
    unknown = {place: reasons for place, reasons in known.unknown.items() if place not in places}
    return Round((*replicas, *again.replicas), rows, {**unknown, **again.unknown})


def _doubtful(one: Round) -> set[Place]:
    return {_place(row) for name in IN_DOUBT for row in one.rows[name]}


def _found(one: Round) -> set[tuple[Any, ...]]:
    return {_key(row) for name in FINDERS for row in one.rows[name]}


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return (*_place(row), row["broker"], row["offset"], row["anomaly"])


def _place(row: dict[str, Any]) -> Place:
    return row["topic"], row["partition"]
