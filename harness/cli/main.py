"""The command line. Progress goes to stderr, results to stdout, and every error is one clear sentence."""

from __future__ import annotations

import io
import logging
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

import click
import cloup

from harness import DISTRIBUTION
from harness.cli.audit import audit
from harness.cli.compare import compare
from harness.cli.config_file import default_map, read_config_file
from harness.cli.conform import conform
from harness.cli.explore import explore
from harness.cli.gate import gate
from harness.cli.guard import guard
from harness.cli.lists import LISTS
from harness.cli.nightly import nightly
from harness.cli.options.common import (
    OUTPUT,
    command,
    envelope,
    format_option,
    given_on_command_line,
    results_option,
    verbosity_options,
)
from harness.cli.options.parameters import RUN_FOLDER, TARGET, Count, FilePath, Text
from harness.cli.options.request import RUN, WHERE, command_line, request_of, run_options
from harness.cli.options.spark import PARAMETERS, spark_options
from harness.cli.repair import repair
from harness.cli.soak import soak
from harness.console import JSON, ConsoleProgress, show
from harness.errors import EXIT_CLEAN, EXIT_FAILED, EXIT_USAGE, HarnessError, UsageError, interruptible
from harness.escape import LogFormatter, visible
from harness.host import leftovers
from harness.judge.verdict import EXIT_CODES
from harness.terminal import Table, stderr, stdout, styled

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

    from harness.spark.options import SparkOptions


EVIDENCE, CACHE, SERVER = map(cloup.OptionGroup, ("Evidence", "Cache", "Server"))


@cloup.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name=DISTRIBUTION, prog_name="harness")
@cloup.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
@click.pass_context
def cli(context: click.Context) -> None:
    """Do the replicas of a compacted topic still agree after a broker was away?

    Options that stay the same may be kept in harness.toml: see `harness settings`.

    Exit codes: 0 clean, 1 anomaly, 2 unknown, 254 wrong before the first broker starts, 255 failed.
    """
    context.default_map = default_map(cli, read_config_file())


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
    from harness.play.resume import GIVEN_ANEW, resume  # noqa: PLC0415  (slow imports, only where needed)
    from harness.play.start import run as go  # noqa: PLC0415

    given = given_on_command_line(context)
    progress = ConsoleProgress()
    try:
        if run_dir is None:
            result = go(request_of(parameters, given), progress, command_line)
        else:
            repeated = given - GIVEN_ANEW - PARAMETERS - {"output", "run_dir"}
            refused = [parameter.opts[0] for parameter in context.command.params if parameter.name in repeated]
            if refused:
                raise UsageError(f"--resume takes everything else from the run folder; leave out {', '.join(refused)}")
            result = resume(run_dir, progress, **{name: parameters[name] for name in GIVEN_ANEW})
    finally:
        progress.close()
    show(result, output)
    return EXIT_CODES[result.verdict["verdict"]]


@command(
    "harness check results/kafka-3.9/stuck-lso/latest",
    "harness check results/kafka-3.9/stuck-lso/latest --partial --format json",
)
@cloup.argument("run_dir", type=RUN_FOLDER)
@cloup.option(
    "--partial",
    is_flag=True,
    group=EVIDENCE,
    help="Judge although evidence is missing or changed; the verdict says so.",
)
@spark_options
@format_option
def check(run_dir: Path, output: str, spark: SparkOptions, *, partial: bool) -> int:
    """Judge a stored run again, from its folder alone."""
    from harness.play.check import check_folder  # noqa: PLC0415

    progress = ConsoleProgress()
    result = check_folder(run_dir, progress, spark, partial=partial)
    show(result, output)
    return EXIT_CODES[result.verdict["verdict"]]


@command("harness doctor", "harness doctor --fetch kafka-3.9 --fetch kafka-4.4")
@cloup.option(
    "--fetch",
    "targets",
    group=CACHE,
    multiple=True,
    type=TARGET,
    metavar="TARGET",
    help="Warm the cache with this target's jars; repeatable.",
)
@format_option
def doctor(targets: tuple[str, ...], output: str) -> int:
    """Say what this machine lacks, and how to get it."""
    from harness.doctor import diagnose  # noqa: PLC0415
    from harness.host.java import find_java  # noqa: PLC0415
    from harness.judge.sessions import CHECKS  # noqa: PLC0415
    from harness.spark import background  # noqa: PLC0415
    from harness.spark.class_archive import make_archive  # noqa: PLC0415
    from harness.targets import find_target  # noqa: PLC0415
    from harness.targets.jars import jars_for  # noqa: PLC0415

    progress = ConsoleProgress()
    for target in [find_target(name) for name in targets]:
        jars = jars_for(target, on_progress=progress.jars, verify=True)
        progress.stage(f"{target.name} ({target.version}): {len(jars.digests)} jars in {jars.directory}")
    if targets:
        archive = make_archive(find_java(), CHECKS, wait_s=background.LIMIT_S)
        progress.stage(f"Spark's classes: {archive or 'another process still makes their archive'}")
    # What is missing comes first.
    found = sorted(diagnose(), key=lambda one: one.ok)
    if output == JSON:
        stdout().json(envelope(checks=[vars(one) for one in found]))
    else:
        signs = {True: styled("ok", "green"), False: styled("lacks", "red")}
        rows = [(signs[one.ok], one.name, one.found, one.remedy) for one in found]
        stdout().table(Table(("", "what", "found", "to do"), rows))
    return EXIT_CLEAN if all(one.ok for one in found) else EXIT_USAGE


@command("harness clean", "harness clean 2026-11-21T20-29-10Z-0c7f")
@cloup.argument("run_ids", nargs=-1, type=Text(), metavar="[RUN_ID]...")
@verbosity_options
def clean(run_ids: tuple[str, ...]) -> int:
    """Remove what ended runs left on this machine; a named run also when it was kept.

    Runs whose owner lives are spared.
    """
    found = leftovers.find_leftovers()
    unknown = set(run_ids) - {leftover.run_id for leftover in found}
    if unknown:
        raise UsageError(f"there is no such RUN_ID: nothing is left of {', '.join(sorted(unknown))}")
    for leftover in found:
        if spared := _why_spared(leftover, run_ids):
            stdout().line(f"spared {leftover.run_id}: {spared}")
    doomed = [one for one in found if one.run_id in run_ids or (not run_ids and leftovers.is_abandoned(one))]
    removed, failed = _remove(doomed)
    removed += [f"the network of {run_id}" for run_id in leftovers.remove_orphaned_networks()]
    removed += [f"the containers of {run_id}" for run_id in leftovers.remove_orphaned_containers()]
    for what in removed:
        stdout().line(f"removed {what}")
    if failed:
        raise HarnessError("; ".join(failed))
    if not removed:
        stdout().line("nothing to remove")
    return EXIT_CLEAN


def _remove(doomed: list[leftovers.Leftover]) -> tuple[list[str], list[str]]:
    """Return what was removed, and why something was not."""
    removed, failed = [], []
    for leftover in doomed:
        try:
            ended = leftovers.remove(leftover.run_id, leftover.directory)
        except HarnessError as error:
            failed.append(str(error))
        else:
            removed.append(f"{leftover.run_id}: {ended} processes and {leftover.directory}")
    return removed, failed


def _why_spared(leftover: leftovers.Leftover, run_ids: tuple[str, ...]) -> str | None:
    """Return why a run is left alone, None where there is nothing to say of that.

    Raises `UsageError` for a named one that is still going on.
    """
    owner = leftover.owner
    named = leftover.run_id in run_ids
    if owner is None:
        return None
    if not owner.kept and owner.lives():
        if named:
            raise UsageError(f"{leftover.run_id} is still going on (process {owner.pid}); end that first")
        return f"its run is going on (process {owner.pid})"
    if run_ids or not (owner.kept or owner.resumable):
        return None
    why = "kept" if owner.kept else f"it can go on with `harness run --resume {owner.run_dir}`"
    return f"{why}; remove it with `harness clean {leftover.run_id}`"


@cloup.group()
def images() -> None:
    """Container images for `--runtime docker`."""


@command("harness images build kafka-3.9", "harness images build kafka-4.4.0")
@cloup.argument("target_name", type=TARGET, metavar="TARGET")
@verbosity_options
def build(target_name: str) -> int:
    """Make an image with the contract of apache/kafka from the brokers' jars and this host's Java; pulls nothing."""
    from harness.host import engine  # noqa: PLC0415
    from harness.host.java import find_java  # noqa: PLC0415
    from harness.targets import find_target, image_build  # noqa: PLC0415
    from harness.targets.jars import jars_for  # noqa: PLC0415

    target, java, client = find_target(target_name), find_java(), engine.connect()
    progress = ConsoleProgress()
    jars = jars_for(target, on_progress=progress.jars, verify=True)
    progress.stage(f"build {target.name} ({target.version})")
    image = image_build.build(client, target, jars, java)
    stdout().line(f"{image.reference}  {image.id}")
    return EXIT_CLEAN


@command("harness report --out site", "harness report --results /data/results --out site")
@results_option
@cloup.option("--out", group=OUTPUT, type=FilePath(file_okay=False), required=True, help="Where the site goes.")
@verbosity_options
def report(results: Path, out: Path) -> int:
    """Write a static site over all runs: versions and anomalies, a trend, a page for each run, anomaly and night."""
    from harness.report.site import write_site  # noqa: PLC0415  (slow imports, only where needed)

    with interruptible(lambda: f"the site in {out} is not complete: run this again"):
        site = write_site(results, out, ConsoleProgress().stage)
    for line in site.left_out:
        stderr().line(f"left out: {line}")
    stdout().line(f"{out / 'index.html'}: {site.runs} runs")
    return EXIT_CLEAN


@command("harness serve", "harness serve --results /data/results --port 0")
@results_option
@cloup.option("--port", group=SERVER, type=Count(0, 65_535), default=8642, show_default=True, help="0: a free one.")
@verbosity_options
def serve(results: Path, port: int) -> int:
    """Show the same site on 127.0.0.1 until Ctrl-C; it follows runs in progress."""
    from harness.report.serve import serving  # noqa: PLC0415  (slow imports, only where needed)

    if not results.is_dir():
        raise UsageError(f"{results} is no folder; give one with --results")
    server = serving(results, port)
    stdout().line(f"http://{server.host}:{server.port}/   (Ctrl-C ends it)")
    try:
        server.serve_forever()
    finally:
        server.server_close()
    return EXIT_CLEAN


images.add_command(build)
for one in (
    run,
    check,
    compare,
    audit,
    repair,
    nightly,
    explore,
    soak,
    conform,
    report,
    serve,
    doctor,
    clean,
    gate,
    guard,
    images,
    *LISTS,
):
    cli.add_command(one)


def main() -> NoReturn:
    """Run the command line and exit with the code that says how it ended."""
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What the locale has no characters for is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    _log_to_stderr(debug=debug)
    try:
        code = cli.main(arguments, prog_name="harness", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())  # noqa: TID251  (the help is our own)
        code = EXIT_USAGE
    except click.ClickException as error:
        code = _fail(error.format_message(), EXIT_USAGE, debug=debug)
    except HarnessError as error:
        code = _fail(str(error), error.exit_code, debug=debug)
    except (KeyboardInterrupt, click.Abort):
        code = _fail("interrupted; there is no result", EXIT_FAILED, debug=debug)
    except Exception as error:  # noqa: BLE001  (the last resort: one sentence instead of a traceback)
        code = _fail(f"{type(error).__name__}: {error} (--debug shows where)", EXIT_FAILED, debug=debug)
    sys.exit(code if isinstance(code, int) else EXIT_CLEAN)


def _fail(message: str, code: int, *, debug: bool) -> int:
    if code == EXIT_USAGE:
        message = visible(message)  # one sentence, whatever was given
    if debug:
        stderr().message(traceback.format_exc())
    stderr().message(f"harness: {message}")
    return code


def _log_to_stderr(*, debug: bool) -> None:
    """Show the harness's own warnings as sentences; other people's, and tracebacks, only with --debug.

    Without any handler, py4j would print the tracebacks of connections that end with a JVM. Python's own warnings are
    logged, too: they quote what they are about.
    """
    logging.captureWarnings(capture=True)
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(LogFormatter("harness: %(message)s"))
    if not debug:
        handler.addFilter(lambda record: record.name == "harness" and not record.exc_info)
    logging.getLogger().addHandler(handler)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
