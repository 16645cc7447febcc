"""``harness explore``: every interleaving of small simulated clusters, or random runs of larger ones."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.options.common import OUTPUT, command, envelope, format_option, given_on_command_line
from harness.cli.options.parameters import MOST_SEED, Count, FilePath, Text
from harness.cli.options.spark import spark_options
from harness.console import JSON, STYLES, print_progress
from harness.errors import UsageError
from harness.judge.verdict import EXIT_CODES
from harness.targets import SIMULATED
from harness.terminal import Table, stdout, styled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from harness.model_checking.explore.cases import AnyCase
    from harness.model_checking.explore.walk import WalkResult
    from harness.schedules.operations.operation import Operation
    from harness.spark.options import SparkOptions

MODEL, WALK, RANDOM = map(cloup.OptionGroup, ("Model", "Walk of every interleaving", "Random runs"))
MOST_STATES, MOST_PROCESSES, MOST_RUNS = 10**9, 256, 10**8
_WALK_OPTIONS = {
    "most_states": "--most-states",
    "first_only": "--first",
    "processes": "--processes",
    "faults": "--faults",
}
_RUN_OPTIONS = {"seed": "--seed", "spark_master": "--spark-master", "spark_conf": "--spark-conf"}


@command(
    "harness explore --target sim-kafka",
    "harness explore --target sim-kafka --groups",
    "harness explore --target sim-kafka --runs 4000 --seed 1 --out schedules",
)
@cloup.option(
    "--target",
    group=MODEL,
    required=True,
    type=Text(known=SIMULATED),
    metavar="NAME",
    help="The simulated target: sim-kafka, sim-redpanda, sim-cloud-topics.",
)
@cloup.option(
    "--with",
    "with_",
    group=MODEL,
    multiple=True,
    type=Text(),
    metavar="PROPOSAL",
    help="A proposal to add: coordinated, gate, isr-gate, isr-gate-markers, fresh-copies (with --runs), kip-87, or a "
    "further rule of the gate; repeatable.",
)
@cloup.option(
    "--without", group=MODEL, multiple=True, type=Text(), metavar="RULE", help="A rule to leave out; repeatable."
)
@cloup.option(
    "--groups",
    group=MODEL,
    is_flag=True,
    help="Consumer groups: what each broker would answer them as their coordinator.",
)
@cloup.option(
    "--faults",
    group=WALK,
    is_flag=True,
    help="Late metadata, lag in the ISR, unclean elections, lost tails, lost disks, moves; isr-gate implies it.",
)
@cloup.option(
    "--most-states", group=WALK, type=Count(1, MOST_STATES), default=10_000_000, show_default=True, help="Of a case."
)
@cloup.option("--first", "first_only", group=WALK, is_flag=True, help="Stop a case at its first anomaly.")
@cloup.option(
    "--processes",
    group=WALK,
    type=Count(1, MOST_PROCESSES),
    default=os.cpu_count() or 1,
    help="Number of cases at once.",
)
@cloup.option(
    "--out",
    group=OUTPUT,
    type=FilePath(file_okay=False),
    metavar="DIR",
    help="Write the schedules there, for --schedule of `harness run`, `soak` and `conform`.",
)
@cloup.option(
    "--runs",
    group=RANDOM,
    type=Count(1, MOST_RUNS),
    metavar="N",
    help="Run N random schedules, as Spark jobs, instead.",
)
@cloup.option(
    "--seed", group=RANDOM, type=Count(0, MOST_SEED), default=0, show_default=True, help="Of the first random run."
)
@spark_options
@format_option
@click.pass_context
def explore(
    context: click.Context,
    /,
    *,
    target: str,
    with_: tuple[str, ...],
    without: tuple[str, ...],
    groups: bool,
    faults: bool,
    most_states: int,
    first_only: bool,
    processes: int,
    out: Path | None,
    runs: int | None,
    seed: int,
    spark: SparkOptions,
    output: str,
) -> int:
    """Explore every interleaving of small simulated clusters: of the steps of clients, faults, cleaners and time.

    Prints each case with the size of its state graph and the shortest way to each anomaly in it. Exits
    with 1 where there is an anomaly, with 0 where there is none and every state was seen, else with 2.

    With --groups, logs are logs of __consumer_offsets, and anomalies are the effects on groups: they freeze,
    skip records, or have deleted offsets back.

    With --faults, clusters of three and four brokers with late metadata, replicas that lag inside the ISR, unclean
    elections, lost tails and disks, and moves of replicas. Proposals: isr-gate, which has the rules of the gate in the
    broker; isr-gate-markers, where only tombstones and markers wait; coordinated; and rules that the gate does not
    have. Prints the shortest way in each case.

    With --runs, random workloads and faults instead, run N times in Spark and judged by the checkers of real runs.
    Prints how many runs had each anomaly, and the smallest schedule that leads to it. Exits with 0 where there was
    none, and some runs were exposed; with 2 also where the checkers and the model's own state disagree.
    """
    from harness.model_checking.explore.cases import FRESH_COPIES, UNDER_FAULTS, cases  # noqa: PLC0415  (slow imports, only where needed)
    from harness.model_checking.explore.walk import shortest, summary, walk, write_schedules  # noqa: PLC0415

    _refuse_others(
        context, *((_WALK_OPTIONS, "is for walks: leave out --runs") if runs else (_RUN_OPTIONS, "takes --runs"))
    )
    chosen = cases(target, with_=with_, without=without, groups=groups, faults=faults)
    if FRESH_COPIES in with_ and not runs:
        raise UsageError(f"--with {FRESH_COPIES} is for random runs: give --runs")
    is_under_faults = faults or bool(UNDER_FAULTS & set(with_))
    if runs:
        from harness.model_checking.explore.report import explore_runs, show_runs  # noqa: PLC0415

        content = explore_runs(target, with_, without, range(seed, seed + runs), groups=groups, spark=spark, out=out)
        show: Callable[[dict[str, Any]], None] = show_runs
    else:
        walked = walk(
            chosen, processes=processes, most_states=most_states, first_only=first_only, on_progress=_print_progress
        )
        content, ways = summary(target, with_, walked), shortest(walked)
        show = partial(_show, ways=ways, of_each_case=is_under_faults)
        if out is not None:
            schedules = ((name, case.title, steps, groups) for name, (case, steps) in ways.items())
            write_schedules(out, " with ".join([target, *with_]), schedules)
    code = EXIT_CODES[content["verdict"]]
    if output == JSON:
        stdout().json(envelope(**content))
    else:
        show(content)
        stdout().line(f"(exit code {code})")
    return code


def _refuse_others(context: click.Context, names: Mapping[str, str], why: str) -> None:
    """Raise `UsageError` for an option that was given but does not apply."""
    options_given = given_on_command_line(context)
    for name, option in names.items():
        if name in options_given:
            raise UsageError(f"{option} {why}")


def _print_progress(walked: WalkResult) -> None:
    print_progress(f"{walked.explored.states:>12,} states in {walked.took_s:.1f} s: {walked.case.title}")


def _show(
    content: dict[str, Any], ways: Mapping[str, tuple[AnyCase, tuple[Operation, ...]]], *, of_each_case: bool = False
) -> None:
    out = stdout()
    counted = ("states", "transitions", "depth")
    cases = [
        (case["case"], *(f"{case[name]:,}" for name in counted), styled(case["verdict"], STYLES[case["verdict"]]))
        for case in content["cases"]
    ]
    out.table(Table(("case", *counted, "verdict"), cases))
    shown = [(name, "", list(map(str, steps))) for name, (_, steps) in ways.items()]
    if of_each_case:
        shown = [
            (name, f" ({case['case']})", steps) for case in content["cases"] for name, steps in case["ways"].items()
        ]
    for name, title, steps in shown:
        out.line(styled(name, STYLES["anomaly"]), f"{title} in {len(steps)} steps: {'; '.join(steps)}")
    for rows in content["proposals"].values():
        out.line()
        out.line("records that delete a key by KIP-87; readers see deletes as before:")
        head = [name.replace("_", " ").replace("kip ", "KIP-") for name in rows[0]]
        out.table(Table(head, [list(row.values()) for row in rows]))
