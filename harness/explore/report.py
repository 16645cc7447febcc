"""``harness explore --runs``: goes through the seeds, and says what was found."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from harness.command_line.console import JSON, STYLES, ConsoleProgress
from harness.errors import UsageError
from harness.explore.cases import COORDINATED
from harness.explore.chance import Odds
from harness.explore.many import explore_many, is_replayable
from harness.explore.tally import MOST_TOLD, summary
from harness.judge.verdict import EXIT_CODES, UNKNOWN
from harness.plan.schedule import Schedule, write_schedule
from harness.targets import SIM_CLOUD_TOPICS, SIM_REDPANDA
from harness.terminal import Table, stdout, styled

if TYPE_CHECKING:
    from pathlib import Path

    from harness.explore.chance import Drawn
    from harness.explore.many import Swept
    from harness.explore.tally import Tally
    from harness.spark.options import SparkOptions


def explore_runs(
    target: str,
    with_: tuple[str, ...],
    without: tuple[str, ...],
    seeds: range,
    *,
    spark: SparkOptions,
    out: Path | None,
    output: str,
) -> int:
    """Run every seed, print what came of it, write the smallest schedules to ``out``; return the exit code.

    Raises `UsageError` for what has no random runs.
    """
    if set(with_) - {COORDINATED} or target == SIM_CLOUD_TOPICS:
        raise UsageError(f"{_found_on(target, with_)} has no random runs: leave out --runs")
    is_redpanda = target == SIM_REDPANDA
    odds = Odds(coordinated=is_redpanda or COORDINATED in with_, without=frozenset(without), redpanda=is_redpanda)
    progress, began_s = ConsoleProgress(), time.monotonic()
    progress.stage("start Spark")

    def done(tally: Tally) -> None:
        counts = ", ".join(f"{name} {len(found)}" for name, found in sorted(tally.found.items()))
        progress.stage(f"{tally.runs:,} runs, {tally.exposed:,} exposed: {counts or 'nothing found'}")

    swept = explore_many(odds, seeds, spark, done)
    more = {"without": sorted(without), "seed": seeds.start, "took_s": round(time.monotonic() - began_s, 3)}
    said = tell(target, with_, swept, more)
    if out is not None:
        for name, way in swept.smallest.items():
            write_schedule(out / f"{name}.json", Schedule(name, _found_on(target, with_), _case(way), way.steps))
    code = EXIT_CODES[said["verdict"]]
    if output == JSON:
        stdout().json(said)
    else:
        _show(said)
        stdout().line(f"(exit code {code})")
    return code


def tell(target: str, with_: tuple[str, ...], swept: Swept, more: dict[str, Any]) -> dict[str, Any]:
    """Return what is printed as JSON; ``more``: what else is known of the sweep."""
    said = summary(target, with_, swept.tally, more)
    for name, way in swept.smallest.items():
        said["found"][name]["smallest"] = {
            "seed": way.seed,
            "case": _case(way),
            "steps": list(way.steps),
            "replayable": is_replayable(name, way),
        }
    return said


def _found_on(target: str, with_: tuple[str, ...]) -> str:
    return " with ".join([target, *with_])


def _case(way: Drawn) -> str:
    """Return by what rules a schedule was played."""
    left_out = [f"without {rule}" for rule in sorted(way.rules.without)]
    return ", ".join([f"random run {way.seed}", f"transactions v{2 if way.rules.epoch_bump else 1}", *left_out])


def _show(said: dict[str, Any]) -> None:
    out, rows = stdout(), []
    for name, found in said["found"].items():
        rates = (1000 * found["runs"] / (said[of] or 1) for of in ("runs", "exposed"))
        rows.append((name, f"{found['runs']:,}", *(f"{rate:.2f}" for rate in rates), str(found["first_seed"])))
    if rows:
        out.table(Table(("anomaly", "runs", "per 1,000 runs", "per 1,000 exposed", "first seed"), rows))
    for name, found in said["found"].items():
        way = found["smallest"]
        steps = f" in {len(way['steps'])} steps ({way['case']}): {'; '.join(way['steps'])}"
        out.line(styled(name, STYLES["anomaly"]), steps)
    for what, amiss in said["amiss"].items():
        out.line(styled(what, STYLES[UNKNOWN]), f": {amiss['times']}")
        for where in amiss["first"][:MOST_TOLD]:
            out.line(f"  {where}")
    verdict = said["verdict"]
    counts = f"{said['runs']:,} runs from seed {said['seed']}, {said['exposed']:,} of them exposed"
    out.line(f"{counts}, in {said['took_s']:.0f} s: ", styled(verdict, STYLES[verdict]))
