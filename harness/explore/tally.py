"""What came of many random runs: how many were exposed, what was found in how many, and whether two judges agree.

A run is *exposed* where a broker missed something that the others did away with, or would have, by the facts that real
runs earn ``clean`` with (`harness.judge.verdict.earn`), or where anything was found. Checkers judge by rows, the model
by its own state (`models.invariants`): where they differ, one of the two is wrong, and nothing else counts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from checkers.anomalies import FINDERS
from checkers.consistency.doubts import CONTRADICTION
from harness.explore.sweep import ORACLE
from harness.judge.guarantees import CHECKER
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN, earn
from models.invariants import LOST_VALUE
from models.world import ABSENT, ADDED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harness.explore.sweep import Told

_CRITICAL: Final = ("run", "kind", "payload_offset", "critical_offset")
MOST_TOLD: Final = 5
"""How many of many things of a kind are told."""


@dataclass
class Tally:
    """Adds up. ``found``: by name the seeds of runs. ``amiss``: what forbids a verdict, by what it is, and where."""

    runs: int = 0
    exposed: int = 0
    found: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    amiss: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def verdict(self) -> str:
        """Clean only where runs were exposed; unknown where judges differ, whatever was found."""
        if self.amiss:
            return UNKNOWN
        return ANOMALY if self.found else CLEAN if self.exposed else UNKNOWN

    def add(self, runs: int, told: Told) -> None:
        """Count the runs of one job."""
        findings = found_by_checkers(told)
        oracle = {(row["run"], row["broker"], row["anomaly"]) for row in told.rows.get(ORACLE, [])}
        self.runs += runs
        wrong = {run for run, *_ in findings}
        self.exposed += len(wrong | set(_exposed(told.rows.get("exposure", []))))
        for name in sorted({name for *_, name in findings & oracle}):
            self.found[name] += sorted({int(run) for run, _, found in findings & oracle if found == name})
        self._note("checkers alone find", findings - oracle)
        self._note("the model's state alone tells", oracle - findings)
        self._note("contradictions", _of_rows(told.rows.get("doubts", []), "reason", CONTRADICTION))
        broken = [row for row in told.rows.get(CHECKER, []) if row["run"] not in wrong]
        self._note("guarantees broken without an anomaly", _of_rows(broken, "guarantee"))
        for name, error in told.raised.items():
            self.amiss["checkers that raised"].append(f"{name}: {error}")

    def _note(self, what: str, places: Iterable[tuple[str, int | None, str]]) -> None:
        for run, broker, words in sorted(places, key=lambda place: (int(place[0]), str(place[1]), place[2])):
            self.amiss[what].append(f"seed {run}, broker {broker}: {words}")


def found_by_checkers(told: Told) -> set[tuple[str, int, str]]:
    """Return run, broker and anomaly; what has no name for users is a doubt of theirs, and the model's `LOST_VALUE`."""
    named = {(row["run"], row["broker"], row["anomaly"]) for name in FINDERS for row in told.rows.get(name, [])}
    doubts = [row for row in told.rows.get("doubts", []) if row["kind"] != CONTRADICTION]
    return named | {(row["run"], row["broker"], LOST_VALUE) for row in doubts}


def _of_rows(rows: Iterable[dict[str, Any]], column: str, kind: str | None = None) -> set[tuple[str, int | None, str]]:
    return {(row["run"], row["broker"], row[column]) for row in rows if kind is None or row["kind"] == kind}


def _exposed(facts: list[dict[str, Any]]) -> Iterable[str]:
    """Yield the runs in which anything critical earns ``clean``."""

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(-1 if row[name] is None else row[name] for name in _CRITICAL)

    for (run, kind, *_), group in groupby(sorted(facts, key=place), key=place):
        rows = list(group)
        brokers = [row["broker"] for row in rows]
        absent = [ADDED if ADDED in brokers else ABSENT]
        scenario = {"replicas": {str(rows[0]["partition"]): brokers}, "critical": [kind]}
        if earn(scenario, rows, [], absent=absent)[0]:
            yield run


def summary(target: str, with_: Sequence[str], tally: Tally, more: dict[str, Any]) -> dict[str, Any]:
    """Return what is printed as JSON; ``more``: what else is known of the sweep."""
    return {
        "schema": 1,
        "verdict": tally.verdict,
        "target": {"name": target, "with": list(with_)},
        **more,
        "runs": tally.runs,
        "exposed": tally.exposed,
        "found": {
            name: {"runs": len(seeds), "per_1000": round(1000 * len(seeds) / tally.runs, 3), "first_seed": min(seeds)}
            for name, seeds in sorted(tally.found.items())
        },
        "amiss": {what: {"times": len(where), "first": where[:MOST_TOLD]} for what, where in tally.amiss.items()},
    }
