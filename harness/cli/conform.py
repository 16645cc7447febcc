"""``harness conform``: does the model behave like real brokers?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.options.common import command, envelope, format_option, given_on_command_line
from harness.cli.options.parameters import MOST_SEED, PATCH, TARGET, Count, file_to_read
from harness.console import JSON, STYLES, ConsoleProgress
from harness.errors import UsageError
from harness.judge.verdict import ANOMALY, CLEAN, EXIT_CODES, decide
from harness.terminal import stdout, styled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.model_checking.conform.conform import Outcome

MOST_SCHEDULES = 10_000
SCHEDULES = cloup.OptionGroup("Schedules")


@command(
    "harness conform --target kafka-4.4 --transactions 2",
    "harness conform --target kafka-3.9 --schedules 5 --seed 7",
    "harness conform --target kafka-4.4 --schedule schedules/stuck-lso.json",
)
@cloup.option(
    "--target", group=SCHEDULES, required=True, type=TARGET, metavar="NAME|PATH",
    help="A Kafka: see `harness targets`, or the path of one of your own.",
)  # fmt: skip
@cloup.option(
    "--patch", group=SCHEDULES, type=PATCH, metavar="DIR|JAR",
    help="Classes in front of the class path of the target's brokers.",
)  # fmt: skip
@cloup.option(
    "--schedules",
    group=SCHEDULES,
    type=Count(0, MOST_SCHEDULES),
    default=20,
    show_default=True,
    help="Number of random schedules.",
)
@cloup.option(
    "--group-schedules",
    group=SCHEDULES,
    type=Count(0, MOST_SCHEDULES),
    default=20,
    show_default=True,
    help="Number of random schedules of consumer groups.",
)
@cloup.option(
    "--seed", group=SCHEDULES, type=Count(0, MOST_SEED), default=0, show_default=True, help="Fixes the random ones."
)
@cloup.option(
    "--transactions",
    group=SCHEDULES,
    type=Count(1, 2),
    default=1,
    show_default=True,
    help="Version; 2 exists from 4.0 on.",
)
@cloup.option(
    "--schedule",
    group=SCHEDULES,
    type=file_to_read(),
    metavar="FILE",
    help="Run this schedule instead: of `harness explore --out`, or a round of a soak with one partition.",
)
@format_option
@click.pass_context
def conform(
    context: click.Context,
    /,
    *,
    target: str,
    patch: Path | None,
    schedules: int,
    group_schedules: int,
    seed: int,
    transactions: int,
    schedule: Path | None,
    output: str,
) -> int:
    """Run schedules on the model and on real brokers, and compare every replica after every step.

    First the known ways to each anomaly, then random schedules, all on one cluster. The same for consumer groups, with
    the answers of their coordinators. Exits with 0 where both agree to
    the end of each, with 1 where they do not, and with 2 where brokers could not run them to the end.

    With --schedule, runs only the schedule of a file, unless its operations are not supported.
    """
    from harness.model_checking.conform.conform import conform as go  # noqa: PLC0415
    from harness.model_checking.conform.conform import outcomes_json  # noqa: PLC0415  (slow imports, only where needed)
    from harness.targets import find_target, patched  # noqa: PLC0415

    if schedule and (others := sorted(given_on_command_line(context) & {"schedules", "group_schedules", "seed"})):
        raise UsageError(f"--schedule is the only schedule: leave out --{others[0].replace('_', '-')}")
    name = find_target(patched(target, patch)).name
    progress = ConsoleProgress()
    try:
        outcomes, failure = go(
            name,
            Path.cwd(),
            progress,
            schedules=schedules,
            group_schedules=group_schedules,
            seed=seed,
            transactions=transactions,
            schedule_file=schedule,
        )
    finally:
        progress.close()
    disagreeing = [outcome.schedule.case for outcome in outcomes if outcome.disagreements]
    verdict, _ = decide(disagreeing, [failure] if failure else [], "every step agrees")
    if output == JSON:
        stdout().json(envelope(**outcomes_json(verdict, name, outcomes, failure)))
    else:
        _show(outcomes, failure, verdict)
    return EXIT_CODES[verdict]


def _show(outcomes: Sequence[Outcome], failure: str | None, verdict: Any) -> None:
    from harness.model_checking.conform.picture import shown  # noqa: PLC0415  (slow imports, only where needed)

    out = stdout()
    for outcome in outcomes:
        style = STYLES[ANOMALY if outcome.disagreements else CLEAN]
        out.line(
            f"{outcome.schedule.case}: ",
            styled(f"{outcome.agreed} of {len(outcome.schedule.steps)} steps agree", style),
        )
        if outcome.disagreements:
            for number, step in enumerate(outcome.schedule.operations[: outcome.agreed + 1], 1):
                out.line(f"  {number}. {step}")
        for other in outcome.disagreements:
            out.line(f"  broker {other.broker} after step {other.number}, {other.step}:")
            for line in (*other.differences, "the model:", *shown(other.expected)):
                out.line(f"    {line}")
            for line in ("the broker:", *shown(other.actual)) if other.actual else ():
                out.line(f"    {line}")
    agreed = sum(outcome.agreed for outcome in outcomes)
    if failure:
        out.line(f"not completed: {failure}")
    out.line(f"{len(outcomes)} schedules, {agreed} steps agree (exit code {EXIT_CODES[verdict]})")
