"""``harness run``: one run on a cluster that the harness boots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.options.common import (
    command,
    format_option,
    given_on_command_line,
    results_option,
)
from harness.cli.options.parameters import RUN_FOLDER, Count
from harness.cli.options.request import RUN, WHERE, command_line, request_of, run_options
from harness.cli.options.spark import PARAMETERS, spark_options
from harness.console import ConsoleProgress, show
from harness.errors import UsageError
from harness.judge.verdict import EXIT_CODES

if TYPE_CHECKING:
    from pathlib import Path


@command(
    "harness run --target kafka-3.9 --anomaly stuck-lso",
    "harness run --target kafka-4.4 --anomaly all --nemesis join --seed 1",
)
@run_options
@results_option
@cloup.option(
    "--port-base",
    group=WHERE,
    type=Count(1024, 65_532),
    metavar="PORT",
    help="First of the loopback ports, one a broker and one more.  [default: free ones]",
)
@cloup.option(
    "--resume",
    "run_dir",
    group=RUN,
    type=RUN_FOLDER,
    metavar="RUN_DIR",
    help="Go on with a run with long timers that was cut off in its window; takes the place of --target and --anomaly.",
)
@cloup.option(
    "--keep", is_flag=True, group=RUN, help="Leave the cluster up and print how to reach, audit and remove it."
)
@spark_options
@format_option
@click.pass_context
def run(context: click.Context, /, output: str, run_dir: Path | None, **parameters: Any) -> int:
    """Boot a cluster, take a broker away, bring it back, and judge every broker's history."""
    from harness.play import run as runs  # noqa: PLC0415  (slow imports, only where needed)
    from harness.play.resume import GIVEN_ANEW, resume  # noqa: PLC0415

    given = given_on_command_line(context)
    progress = ConsoleProgress()
    try:
        if run_dir is None:
            result = runs.run(request_of(parameters, given), progress, command_line)
        else:
            repeated = given - GIVEN_ANEW - PARAMETERS - {"output", "run_dir"}
            refused = [parameter.opts[0] for parameter in context.command.params if parameter.name in repeated]
            if refused:
                raise UsageError(f"--resume takes everything else from the run folder; leave out {', '.join(refused)}")
            result = resume(run_dir, progress, **{name: parameters[name] for name in GIVEN_ANEW})
    finally:
        progress.close()
    show(result, output)
    return EXIT_CODES[result.verdict.verdict]
