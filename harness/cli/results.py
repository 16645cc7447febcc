"""``harness check``, ``compare``, ``report`` and ``serve``: stored runs, and the site over all of them."""

from pathlib import Path

import cloup

from harness.cli.options.common import OUTPUT, RESULTS, Group, command, envelope
from harness.cli.options.parameters import DIRECTORY, PORT, RUN_FOLDER
from harness.console import JSON, ConsoleProgress, show
from harness.errors import EXIT_CLEAN, UsageError, interruptible
from harness.judge.verdict import EXIT_CODES
from harness.spark.options import SparkOptions
from harness.terminal import Table, stderr, stdout

OLD = "results/kafka-4.4/all/2026-11-22T17-49-05Z-e334"
NEW = "results/kafka-4.4/all/latest"


@command(
    "harness check results/kafka-3.9/stuck-lso/latest",
    "harness check results/kafka-3.9/stuck-lso/latest --partial --format json",
    options=(
        cloup.Argument(["run_dir"], type=RUN_FOLDER),
        Group("Evidence").flag("--partial", "Check although evidence is missing or changed; the verdict says so."),
    ),
    spark=True,
)
def check(run_dir: Path, output: str, spark: SparkOptions, *, partial: bool) -> int:
    """Check a stored run again, from its folder alone.

    Exit codes: 0 clean, 1 anomaly, 2 unknown, 254 usage or set-up error, 255 failed.
    """
    from harness.play.check import check_folder  # noqa: PLC0415  (slow imports, only where needed)

    result = check_folder(run_dir, ConsoleProgress(), spark, partial=partial)
    show(result, output)
    return EXIT_CODES[result.verdict.verdict]


@command(
    f"harness compare {OLD} {NEW}",
    f"harness compare {OLD} {NEW} --format json",
    options=[cloup.Argument([name], type=RUN_FOLDER, metavar=name.upper()) for name in ("before", "after")],
)
def compare(before: Path, after: Path, output: str) -> int:
    """Compare verdicts, findings and settings of two runs. The exit code is 0 in any case."""
    from harness.report.differences import difference  # noqa: PLC0415
    from harness.report.stored import stored_run  # noqa: PLC0415

    try:
        kinds = difference(stored_run(before), stored_run(after))
    except ValueError as error:
        raise UsageError(str(error)) from error
    if output == JSON:
        content = {
            kind: [
                {"name": c.name, "before": c.before or None, "after": c.after or None, "differs": c.before != c.after}
                for c in changes
            ]
            for kind, changes in kinds.items()
        }
        stdout().json(envelope(before=str(before), after=str(after), **content))
        return EXIT_CLEAN
    for kind, changes in kinds.items():
        compared = [(change, "differs" if change.before != change.after else "") for change in changes]
        rows = [(change.name, change.before or "none", change.after or "none", note) for change, note in compared]
        if rows:
            stdout().table(Table((kind, "before", "after", ""), rows))
        else:
            stdout().line(f"{kind}: none differ" if kind == "settings" else f"{kind}: none in either run")
    return EXIT_CLEAN


@command(
    "harness report --out site",
    "harness report --results /data/results --out site",
    options=(RESULTS, OUTPUT.option("--out", DIRECTORY, "Folder of the site.", required=True)),
    formats=False,
)
def report(results: Path, out: Path) -> int:
    """Write a static site with a page for each run, audit, anomaly and night."""
    from harness.report.site import write_site  # noqa: PLC0415

    with interruptible(lambda: f"the site in {out} is not complete: run this again"):
        site = write_site(results, out, ConsoleProgress().stage)
    for line in site.left_out:
        stderr().line(f"left out: {line}")
    stdout().line(f"{out / 'index.html'}: {len(site.runs)} runs, {len(site.audits)} audits")
    return EXIT_CLEAN


@command(
    "harness serve",
    "harness serve --results /data/results --port 0",
    options=(RESULTS, Group("Server").option("--port", PORT, "Port of the site; 0 chooses a free port.", default=8642)),
    formats=False,
)
def serve(results: Path, port: int) -> int:
    """Serve the same site on 127.0.0.1 until Ctrl-C. It follows runs in progress."""
    from harness.report.site import serving  # noqa: PLC0415

    if not results.is_dir():
        raise UsageError(f"{results} is not a folder; give one with --results")
    server = serving(results, port)
    stdout().line(f"http://{server.host}:{server.port}/   (Ctrl-C ends it)")
    try:
        server.serve_forever()
    finally:
        server.server_close()
    return EXIT_CLEAN
