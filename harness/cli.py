"""The command line. Progress goes to stderr, results to stdout, and every error is one clear sentence."""

from __future__ import annotations

import json
import logging
import signal
import sys
import traceback
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource
from rich.table import Table

from harness import catalog, leftovers
from harness.audit.cli import audit
from harness.conformance.cli import conform
from harness.console import JSON, ConsoleProgress, show, stdout
from harness.errors import EXIT_CLEAN, EXIT_FAILED, EXIT_USAGE, HarnessError, UsageError
from harness.explore.cli import explore
from harness.nightly.cli import nightly
from harness.options import format_option, results_option
from harness.spark.options import PARAMETERS, spark_options
from harness.verdict import EXIT_CODES

if TYPE_CHECKING:
    from types import FrameType

    from harness.runtimes.nodes import Access
    from harness.spark.options import SparkOptions


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def cli(*, debug: bool) -> None:
    """Do the replicas of a compacted topic still agree after a broker was away?

    Exit codes: 0 clean, 1 anomaly, 2 unknown, 254 wrong before the first broker starts, 255 failed.
    """


@cli.command()
@click.option("--target", metavar="NAME", help="What to test: see `harness targets`.  [required]")
@click.option("--anomaly", metavar="NAME", help="What to look for, or `all`: see `harness anomalies`.  [required]")
@click.option(
    "--schedule",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What to replay, as `harness explore --out` writes it; takes the place of --anomaly.",
)
@click.option(
    "--nemesis",
    default="kill",
    show_default=True,
    metavar="NAME",
    help="How brokers are away, or what else breaks: see `harness nemeses`; none is the healthy control.",
)
@click.option("--client", default="librdkafka", show_default=True, metavar="NAME", help="librdkafka or java.")
@click.option(
    "--runtime",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="local (processes), docker, ssh, sim (models), or auto: docker where an engine and an image are at hand.",
)
@click.option("--nodes", metavar="HOST,…", help="Hosts for --runtime ssh, one a broker: [user@]host[:port].")
@click.option("--nodes-file", type=click.Path(path_type=Path), metavar="FILE", help="The same, one a line.")
@click.option("--ssh-user", metavar="NAME", help="Where a host names none.  [default: yours]")
@click.option("--ssh-port", type=click.IntRange(1, 65_535), default=22, metavar="PORT", help="Where a host names none.")
@click.option("--ssh-key", metavar="FILE", help="A private key.  [default: the agent's, and the usual ones]")
@click.option("--ssh-known-hosts", metavar="FILE", help="Host keys to trust.  [default: yours]")
@click.option("--ssh-host-key", "ssh_pins", multiple=True, metavar="SHA256:…", help="A host key to trust; repeatable.")
@click.option("--image", metavar="REFERENCE", help="The image to use with docker.  [default: the target's]")
@click.option(
    "--command-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A Java client's properties for SASL and TLS: brokers ask for that login, and every client uses it.",
)
@click.option("--timers", default="fast", show_default=True, metavar="NAME", help="fast, 10m, or default (days).")
@click.option("--brokers", type=int, default=3, show_default=True, metavar="N", help="How many brokers, 3 to 7.")
@click.option("--replication-factor", type=int, default=3, show_default=True, metavar="N", help="Replicas a partition.")
@click.option("--partitions", type=int, default=1, show_default=True, metavar="N", help="Partitions a topic.")
@click.option("--absent", type=int, default=1, show_default=True, metavar="N", help="Brokers that go away together.")
@results_option
@click.option("--seed", type=int, help="Fixes every choice the harness makes.  [default: random]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="SCOPE.NAME=VALUE",
    help="topic.NAME=VALUE or broker.NAME=VALUE; repeatable.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Bound on the whole run, in seconds; then `unknown`.",
)
@click.option(
    "--port-base",
    type=click.IntRange(1024, 65_532),
    metavar="PORT",
    help="First of the loopback ports, one a broker and one more.  [default: free ones]",
)
@click.option(
    "--resume",
    "run_dir",
    type=click.Path(path_type=Path),
    metavar="RUN_DIR",
    help="Go on with a run with long timers that was cut off in its window; takes the place of --target and --anomaly.",
)
@click.option("--aftermath", is_flag=True, help="Then show how long a stuck LSO lasts, and what ends it.")
@click.option("--keep", is_flag=True, help="Leave the cluster up and say how to reach and remove it.")
@spark_options
@format_option
@click.pass_context
def run(context: click.Context, /, output: str, settings: tuple[str, ...], run_dir: Path | None, **options: Any) -> int:
    """Boot a cluster, take a broker away, bring it back, and judge every broker's history."""
    from harness.explore.schedule import read_schedule  # noqa: PLC0415  (slow imports, only where needed)
    from harness.resume import ResumeOptions, resume  # noqa: PLC0415  (slow imports, only where needed)
    from harness.run import RunOptions, parse_settings  # noqa: PLC0415
    from harness.run import run as go  # noqa: PLC0415

    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    progress = ConsoleProgress()
    try:
        if run_dir is None:
            if {"schedule", "anomaly"} <= given:
                raise UsageError("give --anomaly or --schedule: a schedule says what it leads to")
            wanted = ("target",) if "schedule" in given else ("target", "anomaly")
            missing = [f"--{name}" for name in wanted if name not in given]
            if missing:
                raise UsageError(f"give {' and '.join(missing)}: see `harness targets` and `harness anomalies`")
            topic_settings, broker_settings = parse_settings(settings)
            access = _access(options)
            if access is not None and "brokers" not in given:
                options["brokers"] = len(access.nodes)
            options["anomaly"] = options["anomaly"] or ""
            options["schedule"] = read_schedule(options["schedule"]) if options["schedule"] else None
            options |= {"access": access, "topic_settings": topic_settings, "broker_settings": broker_settings}
            chosen = RunOptions(**_of(RunOptions, options))
            result = go(chosen, progress)
        else:
            allowed = {field.name for field in fields(ResumeOptions)} | PARAMETERS
            refused = [p.opts[0] for p in context.command.params if p.name in given - allowed - {"output", "run_dir"}]
            if refused:
                raise UsageError(f"--resume takes everything else from the run folder; leave out {', '.join(refused)}")
            result = resume(ResumeOptions(run_dir, **_of(ResumeOptions, options)), progress)
    finally:
        progress.close()
    show(result, output)
    return EXIT_CODES[result.verdict["verdict"]]


def _of(kind: type[Any], options: dict[str, Any]) -> dict[str, Any]:
    """Return those of the options that a dataclass has a field for."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in options.items() if name in names}


def _access(options: dict[str, Any]) -> Access | None:
    """Return how the given hosts are logged in to; None where none are given. Raises `UsageError`."""
    if options["nodes"] is None and options["nodes_file"] is None:
        return None
    from harness.runtimes.nodes import Access, parse_nodes, read_hosts_file  # noqa: PLC0415

    texts = read_hosts_file(options["nodes_file"]) if options["nodes_file"] else options["nodes"].split(",")
    return Access(
        parse_nodes(texts, user=options["ssh_user"], port=options["ssh_port"]),
        key=options["ssh_key"],
        known_hosts=options["ssh_known_hosts"],
        pins=options["ssh_pins"],
    )


@cli.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@spark_options
@format_option
def check(run_dir: Path, output: str, spark: SparkOptions) -> int:
    """Judge a stored run again, from its folder alone."""
    from harness.checking import check_folder  # noqa: PLC0415

    progress = ConsoleProgress()
    result = check_folder(run_dir, progress, spark)
    show(result, output)
    return EXIT_CODES[result.verdict["verdict"]]


@cli.command()
@click.option(
    "--fetch",
    "targets",
    multiple=True,
    metavar="TARGET",
    help="Warm the cache with this target's jars; repeatable.",
)
@format_option
def doctor(targets: tuple[str, ...], output: str) -> int:
    """Say what this machine lacks, and how to get it."""
    from harness.doctor import diagnose  # noqa: PLC0415
    from harness.java import find_java  # noqa: PLC0415
    from harness.spark.archive import make_archive  # noqa: PLC0415
    from harness.targets import find_target  # noqa: PLC0415
    from harness.targets.jars import jars_for  # noqa: PLC0415

    progress = ConsoleProgress()
    for target in [find_target(name) for name in targets]:
        jars = jars_for(target, on_progress=progress.jars, verify=True)
        progress.stage(f"{target.name} ({target.version}): {len(jars.digests)} jars in {jars.directory}")
    if targets:
        progress.stage(f"Spark's classes: {make_archive(find_java())}")
    found = diagnose()
    if output == JSON:
        click.echo(json.dumps([vars(one) for one in found], indent=2))
    else:
        table = Table("", "what", "found", "to do", box=None)
        for one in found:
            table.add_row("[green]ok[/green]" if one.ok else "[red]lacks[/red]", one.name, one.found, one.remedy)
        stdout().print(table)
    return EXIT_CLEAN if all(one.ok for one in found) else EXIT_USAGE


@cli.command()
@click.argument("run_ids", nargs=-1, metavar="[RUN_ID]...")
def clean(run_ids: tuple[str, ...]) -> int:
    """Remove what ended runs left on this machine; a named run also when it was kept.

    Runs whose owner lives are spared.
    """
    found = leftovers.find_leftovers()
    unknown = set(run_ids) - {leftover.run_id for leftover in found}
    if unknown:
        raise UsageError(f"nothing is left of {', '.join(sorted(unknown))}")
    for leftover in found:
        if spared := _why_spared(leftover, run_ids):
            click.echo(f"spared {leftover.run_id}: {spared}")
    doomed = [one for one in found if one.run_id in run_ids or (not run_ids and leftovers.is_abandoned(one))]
    removed, failed = _remove(doomed)
    removed += [f"the network of {run_id}" for run_id in leftovers.remove_orphaned_networks()]
    removed += [f"the containers of {run_id}" for run_id in leftovers.remove_orphaned_containers()]
    for what in removed:
        click.echo(f"removed {what}")
    if failed:
        raise HarnessError("; ".join(failed))
    if not removed:
        click.echo("nothing to remove")
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


@cli.command()
def targets() -> int:
    """List what can be tested."""
    from harness.targets import KAFKA, SIMULATED, TARGETS, Target  # noqa: PLC0415
    from harness.targets.jars import is_cached  # noqa: PLC0415

    def held(target: Target) -> str:
        if target.system != KAFKA:
            return "none" if target.system in SIMULATED else "an image"
        return "cached" if is_cached(target) else "to be fetched"

    table = Table("target", "version", "jars", "note", box=None)
    for target in TARGETS.values():
        table.add_row(target.name, target.version, held(target), target.note)
    stdout().print(table)
    return EXIT_CLEAN


@cli.group()
def images() -> None:
    """Container images for `--runtime docker`."""


@images.command()
@click.argument("target_name", metavar="TARGET")
def build(target_name: str) -> int:
    """Make an image with the contract of apache/kafka from the brokers' jars and this host's Java; pulls nothing."""
    from harness.java import find_java  # noqa: PLC0415
    from harness.runtimes import engine  # noqa: PLC0415
    from harness.targets import find_target, image_build  # noqa: PLC0415
    from harness.targets.jars import jars_for  # noqa: PLC0415

    target, java, client = find_target(target_name), find_java(), engine.connect()
    progress = ConsoleProgress()
    jars = jars_for(target, on_progress=progress.jars, verify=True)
    progress.stage(f"build {target.name} ({target.version})")
    image = image_build.build(client, target, jars, java)
    click.echo(f"{image.reference}  {image.id}")
    return EXIT_CLEAN


@cli.command()
def nemeses() -> int:
    """List how a broker can be away."""
    from nemesis import NEMESES  # noqa: PLC0415

    table = Table("nemesis", "what it does", box=None)
    for nemesis in NEMESES.values():
        table.add_row(nemesis.name, nemesis.summary)
    stdout().print(table)
    return EXIT_CLEAN


@cli.command()
def anomalies() -> int:
    """List what can be looked for."""
    table = Table("anomaly", "payload", "what happens", box=None)
    for scenario in catalog.SCENARIOS:
        table.add_row(scenario.anomaly, scenario.payload, scenario.summary)
    stdout().print(table)
    return EXIT_CLEAN


@cli.command()
@results_option
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Where the site goes.")
def report(results: Path, out: Path) -> int:
    """Write a static site over all runs: versions and anomalies, a trend, a page a run and an anomaly."""
    from harness.report.site import write_site  # noqa: PLC0415  (slow imports, only where needed)

    site = write_site(results, out, ConsoleProgress().stage)
    for line in site.left_out:
        click.echo(f"left out: {line}", err=True)
    click.echo(f"{out / 'index.html'}: {site.runs} runs")
    return EXIT_CLEAN


@cli.command()
@results_option
@click.option("--port", type=click.IntRange(0, 65_535), default=8642, show_default=True, help="0: a free one.")
def serve(results: Path, port: int) -> int:
    """Show the same site on 127.0.0.1 while runs go on, until Ctrl-C."""
    from harness.report.serve import serving  # noqa: PLC0415  (slow imports, only where needed)

    if not results.is_dir():
        raise UsageError(f"{results} is no folder; give one with --results")
    server = serving(results, port)
    click.echo(f"http://{server.host}:{server.port}/   (Ctrl-C ends it)")
    try:
        server.serve_forever()
    finally:
        server.server_close()
    return EXIT_CLEAN


cli.add_command(audit)
cli.add_command(nightly)
cli.add_command(explore)
cli.add_command(conform)


def main() -> NoReturn:
    """Run the command line and exit with the code that says how it ended."""
    signal.signal(signal.SIGTERM, _interrupt)
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    _log_to_stderr(debug=debug)
    try:
        code = cli.main(arguments, prog_name="harness", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = EXIT_USAGE
    except click.ClickException as error:
        code = _fail(error.format_message(), EXIT_USAGE, debug=debug)
    except HarnessError as error:
        code = _fail(str(error), error.exit_code, debug=debug)
    except (KeyboardInterrupt, click.Abort):
        code = _fail("interrupted; what was collected is kept", EXIT_FAILED, debug=debug)
    except Exception as error:  # noqa: BLE001  (the last resort: one sentence instead of a traceback)
        code = _fail(f"{type(error).__name__}: {error} (--debug shows where)", EXIT_FAILED, debug=debug)
    sys.exit(code if isinstance(code, int) else EXIT_CLEAN)


def _fail(message: str, code: int, *, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    click.echo(f"harness: {message}", err=True)
    return code


def _log_to_stderr(*, debug: bool) -> None:
    """Show the harness's own warnings as sentences; other people's, and tracebacks, only with --debug.

    Without any handler, py4j would print the tracebacks of connections that end with a JVM.
    """
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("harness: %(message)s"))
    if not debug:
        handler.addFilter(lambda record: record.name == "harness" and not record.exc_info)
    logging.getLogger().addHandler(handler)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
