"""``harness explore --runs``: runs random schedules and prints the findings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from harness.console import STYLES, ConsoleProgress
from harness.errors import UsageError
from harness.judge.verdict import UNKNOWN
from harness.model_checking.explore.cases import COORDINATED, FRESH_COPIES, GATE
from harness.model_checking.explore.random_runs import RunStatistics, SeedsByName, explore_random_runs
from harness.model_checking.explore.random_schedules import RandomSchedule, is_replayable
from harness.model_checking.explore.walk import write_schedules
from harness.models.world.groups import NEW, OLD
from harness.models.world.world import Rules
from harness.spark.options import SparkOptions
from harness.targets import SIM_REDPANDA
from harness.terminal import Table, stdout, styled

MOST_LISTED: Final = 5
"""The number of examples of each kind that are listed."""


def explore_runs(
    target: str,
    with_: tuple[str, ...],
    without: tuple[str, ...],
    seeds: range,
    *,
    groups: bool,
    spark: SparkOptions,
    out: Path | None,
) -> dict[str, Any]:
    """Run every seed, and write the smallest schedules to ``out``; return the content of the printed JSON.

    Raises `UsageError` for targets and proposals without random runs.
    """
    name = " with ".join([target, *with_])
    if set(with_) - {COORDINATED, GATE, FRESH_COPIES}:
        raise UsageError(f"{name} has no random runs: leave out --runs")
    is_redpanda = target == SIM_REDPANDA
    rules = Rules(
        coordinated=is_redpanda or COORDINATED in with_,
        without=frozenset(without),
        redpanda=is_redpanda,
        of_groups=groups,
        gate=GATE in with_,
        fresh_copies=FRESH_COPIES in with_,
    )
    progress, began_s = ConsoleProgress(), time.monotonic()
    progress.stage("start Spark")

    def on_progress(statistics: RunStatistics) -> None:
        counts = ", ".join(f"{name} {len(seeds)}" for name, seeds in sorted(statistics.seeds_by_anomaly.items()))
        progress.stage(f"{statistics.runs:,} runs, {statistics.exposed:,} exposed: {counts or 'nothing found'}")

    swept = explore_random_runs(rules, seeds, spark, on_progress)
    if out is not None:
        smallest = swept.smallest.items()
        write_schedules(out, name, ((name, _case(drawn), drawn.steps, groups) for name, drawn in smallest))
    statistics = swept.statistics
    return {
        "verdict": statistics.verdict,
        "target": {"name": target, "with": list(with_)},
        "without": sorted(without),
        "seed": seeds.start,
        "took_s": round(time.monotonic() - began_s, 3),
        "runs": statistics.runs,
        "exposed": statistics.exposed,
        "found": _frequencies(statistics.runs, statistics.seeds_by_anomaly, swept.smallest),
        "consequences": _frequencies(statistics.runs, statistics.seeds_by_consequence, swept.smallest),
        "amiss": {
            kind: {"times": len(places), "first": places[:MOST_LISTED]} for kind, places in statistics.amiss.items()
        },
    }


def _frequencies(runs: int, seeds_by_name: SeedsByName, smallest: Mapping[str, RandomSchedule]) -> dict[str, Any]:
    return {
        name: {
            "runs": len(seeds),
            "per_1000": round(1000 * len(seeds) / runs, 3),
            "first_seed": min(seeds),
            "smallest": {
                "seed": smallest[name].seed,
                "case": _case(smallest[name]),
                "steps": list(map(str, smallest[name].steps)),
                "replayable": is_replayable(name, smallest[name]),
            },
        }
        for name, seeds in sorted(seeds_by_name.items())
    }


def _case(drawn: RandomSchedule) -> str:
    rules = drawn.rules
    coordinator = [f"{NEW if rules.version.tombstone_drops_pending else OLD} coordinator"] if rules.of_groups else []
    left_out = [f"without {rule}" for rule in sorted(rules.without)]
    version = f"transactions v{2 if rules.epoch_bump else 1}"
    return ", ".join([f"random run {drawn.seed}", version, *coordinator, *left_out])


def show_runs(content: dict[str, Any]) -> None:
    """Print the findings of random runs."""
    out = stdout()
    for kind, head in (("found", "anomaly"), ("consequences", "consequence for groups")):
        rows = []
        for name, frequency in content[kind].items():
            rates = (1000 * frequency["runs"] / (content[total] or 1) for total in ("runs", "exposed"))
            first_seed = str(frequency["first_seed"])
            rows.append((name, f"{frequency['runs']:,}", *(f"{rate:.2f}" for rate in rates), first_seed))
        if rows:
            out.table(Table((head, "runs", "per 1,000 runs", "per 1,000 exposed", "first seed"), rows))
    for name, frequency in {**content["found"], **content["consequences"]}.items():
        smallest = frequency["smallest"]
        steps = f" in {len(smallest['steps'])} steps ({smallest['case']}): {'; '.join(smallest['steps'])}"
        out.line(styled(name, STYLES["anomaly"]), steps)
    for kind, amiss in content["amiss"].items():
        out.line(styled(kind, STYLES[UNKNOWN]), f": {amiss['times']}")
        for example in amiss["first"][:MOST_LISTED]:
            out.line(f"  {example}")
    verdict = content["verdict"]
    counts = f"{content['runs']:,} runs from seed {content['seed']}, {content['exposed']:,} of them exposed"
    out.line(f"{counts}, in {content['took_s']:.0f} s: ", styled(verdict, STYLES[verdict]))
