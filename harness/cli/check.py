"""``harness check``: judge a stored run again."""

from pathlib import Path

import cloup

from harness.cli.options.common import Group, command
from harness.cli.options.parameters import RUN_FOLDER
from harness.console import ConsoleProgress, show
from harness.judge.verdict import EXIT_CODES
from harness.spark.options import SparkOptions

EVIDENCE = Group("Evidence")


@command(
    "harness check results/kafka-3.9/stuck-lso/latest",
    "harness check results/kafka-3.9/stuck-lso/latest --partial --format json",
    spark=True,
)
@cloup.argument("run_dir", type=RUN_FOLDER)
@EVIDENCE.flag("--partial", "Check although evidence is missing or changed; the verdict says so.")
def check(run_dir: Path, output: str, spark: SparkOptions, *, partial: bool) -> int:
    """Check a stored run again, from its folder alone.

    Exit codes: 0 clean, 1 anomaly, 2 unknown, 254 usage or set-up error, 255 failed.
    """
    from harness.play.check import check_folder  # noqa: PLC0415

    result = check_folder(run_dir, ConsoleProgress(), spark, partial=partial)
    show(result, output)
    return EXIT_CODES[result.verdict.verdict]
