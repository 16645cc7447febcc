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
    "Version (`harness targets`), or path of a Kafka build.",
    required=True,
)
@SCHEDULES.option("--patch", PATCH, "Classes to put first on the brokers' class path.")
@SCHEDULES.option("--schedules", COUNT, "Number of random schedules.", default=20)
@SCHEDULES.option("--group-schedules", COUNT, "Number of random schedules of consumer groups.", default=20)
@SCHEDULES.option("--seed", SEED, "Seed of random schedules.", default=0)
@SCHEDULES.option("--transactions", Count(1, 2), "Version of transactions; 2 needs Kafka 4.0 or later.", default=1)
@SCHEDULES.option(
    "--schedule",
    file_to_read(),
    "Run only this schedule: of `harness explore --out`, or a soak's round with one partition.",
)
def conform(*, target: str, patch: Path | None, schedule: Path | None, output: str, **numbers: int) -> int:
    """Compare the model with real brokers, replica by replica after every step.

    Runs the known schedules of each anomaly, then random schedules, on one cluster; the same for consumer groups and
    their coordinators.

    Exit codes: 0 both agree to the end, 1 they differ, 2 brokers could not run a schedule to its end, 254 usage or
    set-up error, 255 failed.
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
