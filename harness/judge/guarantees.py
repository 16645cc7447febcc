"""The documented guarantees in a verdict: each holds, is violated, or was not checked for lack of evidence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

CHECKER = "guarantees"
"""The name in `harness.judge.check.CHECKERS` of the checker of guarantees."""


@dataclass(frozen=True)
class Guarantee:
    """The name of its rows, the things that are compared, and why there may have been none."""

    name: str
    compared: str
    vacuous: str


GUARANTEES = (
    Guarantee("last-value", "final states of keys", "the last committed record of no key is known"),
    Guarantee("order", "records as written and as delivered", "no record was acknowledged or delivered"),
    Guarantee("offsets", "contents of offsets", "no offset is known to be below a replica's high watermark"),
    Guarantee(
        "tombstones",
        "removed tombstones",
        "no removal of a key's last tombstone was observed for which all later writes are known and clocks were right",
    ),
    Guarantee(
        "min-compaction-lag",
        "removals",
        "min.compaction.lag.ms is 0, or no removal was observed",
    ),
    Guarantee("control-batches", "removed or emptied markers", "no replica was observed to remove or empty a marker"),
)


def guarantee_results(
    rows: Sequence[dict[str, Any]] | None,
    distrusted: Iterable[tuple[str, int, int]],
    why_not: str,
    not_guaranteed: Mapping[str, str] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Return ``guarantees`` of ``verdict.json``.

    ``rows`` of the guarantees' checkers, None where none were computed, with the reason ``why_not``. Rows of replicas
    that contradict themselves (``distrusted``: topic, partition, broker) are left out. ``not_guaranteed``: guarantees
    that this target does not give, and why.
    """
    left_out = set(distrusted)
    trusted = [row for row in rows or [] if (row["topic"], row["partition"], row["broker"]) not in left_out]
    return [
        _one(guarantee, [], f"not guaranteed by this target: {not_guaranteed[guarantee.name]}")
        if guarantee.name in not_guaranteed
        else _one(guarantee, [row for row in trusted if row["guarantee"] == guarantee.name], why_not)
        for guarantee in GUARANTEES
    ]


def _one(guarantee: Guarantee, rows: Sequence[dict[str, Any]], why_not: str) -> dict[str, Any]:
    compared = sum(row["compared"] for row in rows)
    broken = sorted(
        (row for row in rows if row["violated"]),
        key=lambda row: (row["topic"], row["partition"], -1 if row["broker"] is None else row["broker"]),
    )
    if broken:
        first = broken[0]
        more = sum(row["violated"] for row in broken) - 1
        reason = f"{_where(first)}: {first['explanation']}" + (f" (and {more} more)" if more else "")
    elif compared:
        reason = f"{compared} {guarantee.compared} compared; none violates the guarantee"
    else:
        reason = why_not or guarantee.vacuous
    return {
        "guarantee": guarantee.name,
        "holds": not broken if compared else None,
        "reason": reason,
        "compared": compared,
        "violations": [_violation(row) for row in broken],
    }


def _violation(row: dict[str, Any]) -> dict[str, Any]:
    """Return the first violation on a replica, and the number of all."""
    fields = ("broker", "topic", "partition", "offset", "explanation")
    return {**{name: row[name] for name in fields}, "witness": json.loads(row["witness"]), "count": row["violated"]}


def _where(row: dict[str, Any]) -> str:
    broker = "" if row["broker"] is None else f"broker {row['broker']}, "
    return f"{broker}{row['topic']}-{row['partition']}"


def violated_on(results: Sequence[dict[str, Any]], concerns: Callable[[dict[str, Any]], bool]) -> list[str]:
    """Return a reason for each guarantee of which a violation ``concerns`` the scenario."""
    return [
        f"the guarantee {one['guarantee']} is violated: {_where(violation)}: {violation['explanation']}"
        for one in results
        for violation in [next((violation for violation in one["violations"] if concerns(violation)), None)]
        if violation is not None
    ]


def summary_line(results: Sequence[dict[str, Any]]) -> str:
    """Return a summary in one line."""
    counts = {holds: [one["guarantee"] for one in results if one["holds"] is holds] for holds in (True, False, None)}
    parts = [
        *([f"violated: {', '.join(counts[False])}"] if counts[False] else []),
        *([f"{len(counts[True])} hold"] if counts[True] else []),
        *([f"not checked (no evidence): {', '.join(counts[None])}"] if counts[None] else []),
    ]
    return f"guarantees: {'; '.join(parts)}"
