"""``harness report`` and ``harness serve``: the site over all runs of a results folder."""

from pathlib import Path

from harness.cli.options.common import OUTPUT, Group, command, results_option
from harness.cli.options.parameters import DIRECTORY, PORT
from harness.console import ConsoleProgress
from harness.errors import EXIT_CLEAN, UsageError, interruptible
from harness.terminal import stderr, stdout

SERVER = Group("Server")


@command("harness report --out site", "harness report --results /data/results --out site", formats=False)
@results_option
@OUTPUT.option("--out", DIRECTORY, "Folder of the site.", required=True)
def report(results: Path, out: Path) -> int:
    """Write a static site with a page for each run, audit, anomaly and night."""
    from harness.report.site import write_site  # noqa: PLC0415  (slow imports, only where needed)

    with interruptible(lambda: f"the site in {out} is not complete: run this again"):
        site = write_site(results, out, ConsoleProgress().stage)
    for line in site.left_out:
        stderr().line(f"left out: {line}")
    stdout().line(f"{out / 'index.html'}: {len(site.runs)} runs, {len(site.audits)} audits")
    return EXIT_CLEAN


@command("harness serve", "harness serve --results /data/results --port 0", formats=False)
@results_option
@SERVER.option("--port", PORT, "Port of the site; 0 chooses a free port.", default=8642)
def serve(results: Path, port: int) -> int:
    """Serve the same site on 127.0.0.1 until Ctrl-C. It follows runs in progress."""
    from harness.report.serve import serving  # noqa: PLC0415  (slow imports, only where needed)

    if not results.is_dir():
        raise UsageError(f"{results} is not a folder; give one with --results")
    server = serving(results, port)
    stdout().line(f"http://{server.host}:{server.port}/   (Ctrl-C ends it)")
    try:
        server.serve_forever()
    finally:
        server.server_close()
    return EXIT_CLEAN
