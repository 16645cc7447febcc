"""Statistics of random runs: how many were exposed, how many had each finding, and whether both judges agree.

A run is *exposed* where a broker missed a record that the others removed, or would have, by the facts that real runs
earn ``clean`` with (`harness.judge.earned.earn`), or where there was any finding. Checkers judge by rows, the model by
its own state (`harness.models.log.invariants`): where they differ, one of the two is wrong, and the other results do
not count.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from checkers.anomalies import FINDERS
from checkers.consistency.doubts import CONTRADICTION
from harness.judge.earned import earn
from harness.judge.guarantees import CHECKER
from harness.judge.verdict import decide
from harness.model_checking.explore.sweep import CONSEQUENCES, ORACLE
from harness.models.log.invariants import LOST_VALUE
from harness.models.world.groups import AT_RELOAD
from harness.models.world.world import ABSENT, ADDED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.model_checking.explore.sweep import CheckerResults

SeedsByName: TypeAlias = "dict[str, list[int]]"
"""Seeds of runs, by the name of an anomaly or a consequence."""
_CRITICAL: Final = ("run", "kind", "payload_offset", "critical_offset")


@dataclass
class RunStatistics:
    """Counts. ``seeds_by_anomaly``: seeds of runs. ``amiss``: what forbids a verdict, with examples.

    ``seeds_by_consequence``: for groups, by the model's state (`harness.models.world.groups`). Each has an anomaly of
    that replica, unless every replica gives the same answer.
    """

    runs: int = 0
    exposed: int = 0
    seeds_by_anomaly: SeedsByName = field(default_factory=lambda: defaultdict(list))
    seeds_by_consequence: SeedsByName = field(default_factory=lambda: defaultdict(list))
    amiss: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def verdict(self) -> str:
        """Clean only where runs were exposed; unknown where the judges differ, whatever the findings."""
        found = [] if self.amiss else [*self.seeds_by_anomaly, *self.seeds_by_consequence]
        return decide(found, list(self.amiss), "runs were exposed" if self.exposed else None)[0]

    def add(self, runs: int, results: CheckerResults) -> None:
        """Count the runs of one job."""
        findings = found_by_checkers(results)
        oracle = {(row["run"], row["broker"], row["anomaly"]) for row in results.rows.get(ORACLE, [])}
        self.runs += runs
        runs_with_findings = {run for run, *_ in findings}
        self.exposed += len(runs_with_findings | set(_exposed(results.rows.get("exposure", []))))
        consequences = {(row["run"], row["broker"], row["anomaly"]) for row in results.rows.get(CONSEQUENCES, [])}
        _add_seeds(self.seeds_by_anomaly, findings & oracle)
        _add_seeds(self.seeds_by_consequence, consequences)
        diverged = {(run, broker) for run, broker, _ in findings}
        self._note(
            "consequences for groups without an anomaly",
            {one for one in consequences if one[:2] not in diverged and not one[2].endswith(AT_RELOAD)},
        )
        self._note("checkers alone find", findings - oracle)
        self._note("the model's state alone tells", oracle - findings)
        self._note("contradictions", _of_rows(results.rows.get("doubts", []), "reason", CONTRADICTION))
        broken = [row for row in results.rows.get(CHECKER, []) if row["run"] not in runs_with_findings]
        self._note("guarantees broken without an anomaly", _of_rows(broken, "guarantee"))
        for name, error in results.raised.items():
            self.amiss["checkers that raised"].append(f"{name}: {error}")

    def _note(self, kind: str, places: Iterable[tuple[str, int | None, str]]) -> None:
        for run, broker, text in sorted(places, key=lambda place: (int(place[0]), str(place[1]), place[2])):
            self.amiss[kind].append(f"seed {run}, broker {broker}: {text}")


def _add_seeds(seeds_by_name: SeedsByName, places: set[tuple[str, int, str]]) -> None:
    for name in sorted({name for *_, name in places}):
        seeds_by_name[name] += sorted({int(run) for run, _, other in places if other == name})


def found_by_checkers(results: CheckerResults) -> set[tuple[str, int, str]]:
    """Return run, broker and anomaly; a doubt has no anomaly name, and stands for the model's `LOST_VALUE`."""
    named = {(row["run"], row["broker"], row["anomaly"]) for name in FINDERS for row in results.rows.get(name, [])}
    doubts = [row for row in results.rows.get("doubts", []) if row["kind"] != CONTRADICTION]
    return named | {(row["run"], row["broker"], LOST_VALUE) for row in doubts}


def _of_rows(rows: Iterable[dict[str, Any]], column: str, kind: str | None = None) -> set[tuple[str, int | None, str]]:
    return {(row["run"], row["broker"], row[column]) for row in rows if kind is None or row["kind"] == kind}


def _exposed(facts: list[dict[str, Any]]) -> Iterable[str]:
    """Yield the runs in which any critical record earns ``clean``."""

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(-1 if row[name] is None else row[name] for name in _CRITICAL)

    for (run, kind, *_), group in groupby(sorted(facts, key=place), key=place):
        rows = list(group)
        brokers = [row["broker"] for row in rows]
        absent = [ADDED if ADDED in brokers else ABSENT]
        scenario = {"replicas": {str(rows[0]["partition"]): brokers}, "critical": [kind]}
        if earn(scenario, rows, [], absent=absent)[0]:
            yield run
