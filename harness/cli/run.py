"""``harness run``: one run on a cluster that the harness boots."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from harness.cli.options.common import SPARK_PARAMETERS, command, flags_of, options_given, results_option
from harness.cli.options.parameters import RUN_FOLDER, Count
from harness.cli.options.request import RUN, WHERE, command_line, request_of, run_options
from harness.console import ConsoleProgress, show
from harness.errors import UsageError
from harness.judge.progress import Progress
from harness.judge.verdict import EXIT_CODES, RunResult


@command(
    "harness run --target kafka-3.9 --anomaly stuck-lso",
    "harness run --target kafka-4.4 --anomaly all --nemesis join --seed 1",
    spark=True,
)
@run_options
@results_option
@WHERE.option("--port-base", Count(1024, 65_532, "PORT"), "First of brokers + 1 loopback ports.  [default: free ports]")
@RUN.option("--resume", RUN_FOLDER, "Resume an interrupted run with long timers.", name="run_dir")
@RUN.flag("--keep", "Leave the cluster up, and print how to reach it and remove it.")
def run(output: str, **parameters: Any) -> int:
    """Boot a cluster, inject a fault, and compare the logs of all brokers."""
    with closing(ConsoleProgress()) as progress:
        result = carry_out(parameters, progress)
    show(result, output)
    return EXIT_CODES[result.verdict.verdict]


def carry_out(parameters: Mapping[str, Any], progress: Progress) -> RunResult:
    """Begin or resume the run that the parameters of the current command ask for. Raises `HarnessError`."""
    from harness.play import run as runs  # noqa: PLC0415  (slow imports, only where needed)
    from harness.play.resume import GIVEN_ANEW, resume  # noqa: PLC0415

    if parameters["run_dir"] is None:
        return runs.run(request_of(parameters, options_given()), progress, command_line)
    if refused := flags_of(options_given() - GIVEN_ANEW - SPARK_PARAMETERS - {"output", "run_dir"}):
        raise UsageError(f"--resume takes everything else from the run folder; leave out {', '.join(refused)}")
    return resume(parameters["run_dir"], progress, **{name: parameters[name] for name in GIVEN_ANEW})
