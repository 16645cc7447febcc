"""The documented guarantees in a verdict: each holds, is violated, or was not checked for lack of evidence."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.judge.finding import CheckerRow, PlaceOf

CHECKER = "guarantees"
"""The name in `harness.judge.check.CHECKERS` of the checker of guarantees."""
GUARANTEES = (
    ("last-value", "final states of keys", "the last committed record of no key is known"),
    ("order", "records as written and as delivered", "no record was acknowledged or delivered"),
    ("offsets", "contents of offsets", "no offset is known to be below a replica's high watermark"),
    (
        "tombstones",
        "removed tombstones",
        "no removal of a key's last tombstone was observed for which all later writes are known and clocks were right",
    ),
    ("min-compaction-lag", "removals", "min.compaction.lag.ms is 0, or no removal was observed"),
    ("control-batches", "removed or emptied markers", "no replica was observed to remove or empty a marker"),
)
"""The name of each guarantee in checkers' rows, the things that are compared, and the reason why there may be none."""


@dataclass(frozen=True, kw_only=True)
class Violation:
    """The first violation of a guarantee on a replica (None where it does not depend on one), and their number."""

    broker: int | None
    topic: str
    partition: int
    offset: int | None
    explanation: str
    witness: Mapping[str, Any]
    count: int

    place = PlaceOf()

    def __str__(self) -> str:
        broker = "" if self.broker is None else f"broker {self.broker}, "
        return f"{broker}{self.topic}-{self.partition}: {self.explanation}"


@dataclass(frozen=True, kw_only=True)
class GuaranteeResult:
    """The result of a guarantee in a run; ``holds`` is None if there was nothing to compare."""

    guarantee: str
    holds: bool | None
    reason: str
    compared: int
    violations: tuple[Violation, ...]


def guarantee_results(
    rows: Sequence[CheckerRow] | None, distrusted: Iterable[tuple[str, int, int]], why_not: str
) -> tuple[GuaranteeResult, ...]:
    """Return ``guarantees`` of ``verdict.json``.

    ``rows``: of their checkers; None if they were not computed, for the reason ``why_not``. ``distrusted``: topic,
    partition and broker of replicas that contradict themselves, whose rows are left out.
    """
    left_out = set(distrusted)
    trusted = [row for row in rows or [] if (row["topic"], row["partition"], row["broker"]) not in left_out]
    results = []
    for name, subject, vacuous in GUARANTEES:
        of_guarantee = [row for row in trusted if row["guarantee"] == name]
        compared = sum(row["compared"] for row in of_guarantee)
        violations = sorted(
            (_violation(row) for row in of_guarantee if row["violated"]),
            key=lambda violation: (*violation.place, -1 if violation.broker is None else violation.broker),
        )
        holds, reason = None, (why_not if rows is None else "") or vacuous
        if compared:
            holds, reason = not violations, f"{compared} {subject} compared; none violates the guarantee"
        if violations:
            more = sum(violation.count for violation in violations) - 1
            reason = f"{violations[0]}" + (f" (and {more} more)" if more else "")
        results.append(
            GuaranteeResult(guarantee=name, holds=holds, reason=reason, compared=compared, violations=tuple(violations))
        )
    return tuple(results)


def _violation(row: CheckerRow) -> Violation:
    names = ("broker", "topic", "partition", "offset", "explanation")
    return Violation(**{name: row[name] for name in names}, witness=json.loads(row["witness"]), count=row["violated"])


def violated_on(results: Sequence[GuaranteeResult], concerns: Callable[[Violation], bool]) -> list[str]:
    """Return a reason for each guarantee with a violation that ``concerns`` the scenario."""
    first = ((result.guarantee, next(filter(concerns, result.violations), None)) for result in results)
    return [f"the guarantee {name} is violated: {violation}" for name, violation in first if violation is not None]


def summary_line(results: Sequence[GuaranteeResult]) -> str:
    """Return a summary in one line."""
    names = {holds: [result.guarantee for result in results if result.holds is holds] for holds in (True, False, None)}
    texts = {
        False: f"violated: {', '.join(names[False])}",
        True: f"{len(names[True])} hold",
        None: f"not checked (no evidence): {', '.join(names[None])}",
    }
    return f"guarantees: {'; '.join(text for holds, text in texts.items() if names[holds])}"
