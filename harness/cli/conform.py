"""``harness conform``: compares the model with real brokers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.options.common import Group, command, envelope, flags_of, options_given
from harness.cli.options.parameters import PATCH, SEED, TARGET, Count, Text, file_to_read
from harness.console import JSON, STYLES, ConsoleProgress
from harness.errors import UsageError
from harness.judge.verdict import ANOMALY, CLEAN, EXIT_CODES, decide
from harness.terminal import stdout, styled

if TYPE_CHECKING:
    from harness.model_checking.conform.conform import Outcome

SCHEDULES = Group("Schedules")
COUNT = Count(0, 10_000)


@command(
    "harness conform --target kafka-4.4 --transactions 2",
    "harness conform --target kafka-3.9 --schedules 5 --seed 7",
    "harness conform --target kafka-4.4 --schedule schedules/stuck-lso.json",
)
@SCHEDULES.option(
    "--target",
    Text(TARGET.check, TARGET.names, "NAME|PATH"),
    "A Kafka: see `harness targets`, or the path of one of your own.",
    required=True,
)
@SCHEDULES.option("--patch", PATCH, "Classes in front of the class path of the target's brokers.")
@SCHEDULES.option("--schedules", COUNT, "Number of random schedules.", default=20)
@SCHEDULES.option("--group-schedules", COUNT, "Number of random schedules of consumer groups.", default=20)
@SCHEDULES.option("--seed", SEED, "Fixes the random ones.", default=0)
@SCHEDULES.option("--transactions", Count(1, 2), "Version; 2 exists from 4.0 on.", default=1)
@SCHEDULES.option(
    "--schedule",
    file_to_read(),
    "Run this schedule instead: of `harness explore --out`, or a round of a soak with one partition.",
)
def conform(*, target: str, patch: Path | None, schedule: Path | None, output: str, **numbers: int) -> int:
    """Run schedules on the model and on real brokers, and compare every replica after every step.

    First the known ways to each anomaly, then random schedules, all on one cluster. The same for consumer groups, with
    the answers of their coordinators. Exits with 0 where both agree to
    the end of each, with 1 where they do not, and with 2 where brokers could not run them to the end.

    With --schedule, runs only the schedule of a file, unless its operations are not supported.
    """
    from harness.model_checking.conform.conform import conform as compare  # noqa: PLC0415
    from harness.model_checking.conform.conform import outcomes_json  # noqa: PLC0415  (slow imports, only where needed)
    from harness.targets import find_target, patched  # noqa: PLC0415

    if schedule and (others := flags_of(options_given() & {"schedules", "group_schedules", "seed"})):
        raise UsageError(f"--schedule is the only schedule: leave out {others[0]}")
    name = find_target(patched(target, patch)).name
    with closing(ConsoleProgress()) as progress:
        outcomes, failure = compare(name, Path.cwd(), progress, schedule_file=schedule, **numbers)
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
        agreed = styled(f"{outcome.agreed} of {len(outcome.schedule.steps)} steps agree", style)
        out.line(f"{outcome.schedule.case}: ", agreed)
        if outcome.disagreements:
            for number, step in enumerate(outcome.schedule.operations[: outcome.agreed + 1], 1):
                out.line(f"  {number}. {step}")
        for other in outcome.disagreements:
            out.line(f"  broker {other.broker} after step {other.number}, {other.step}:")
            actual = ["the broker:", *shown(other.actual)] if other.actual else []
            for line in (*other.differences, "the model:", *shown(other.expected), *actual):
                out.line(f"    {line}")
    if failure:
        out.line(f"not completed: {failure}")
    steps = sum(outcome.agreed for outcome in outcomes)
    out.line(f"{len(outcomes)} schedules, {steps} steps agree (exit code {EXIT_CODES[verdict]})")
