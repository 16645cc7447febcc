"""The command line. Progress goes to stderr, results to stdout, and every error is one clear sentence."""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
import traceback
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Table

from harness import catalog, leftovers
from harness.errors import EXIT_CLEAN, EXIT_FAILED, EXIT_USAGE, HarnessError, UsageError
from harness.verdict import ANOMALY, CLEAN, EXIT_CODES, UNKNOWN

if TYPE_CHECKING:
    from types import FrameType

    from harness.outcome import RunResult

TEXT, JSON = "text", "json"
STYLES = {ANOMALY: "bold red", CLEAN: "bold green", UNKNOWN: "bold yellow"}

format_option = click.option(
    "--format", "output", type=click.Choice([TEXT, JSON]), default=TEXT, help="What goes to stdout."
)


class ConsoleProgress:
    """Stages as lines on stderr, with the seconds since the start."""

    def __init__(self) -> None:
        """Start counting."""
        self._console = Console(stderr=True, highlight=False)
        self._started_s = time.monotonic()
        self._bar: Bar | None = None

    def stage(self, text: str) -> None:
        """Print the stage's line."""
        self.close()
        self._console.print(f"[dim]{time.monotonic() - self._started_s:6.1f} s[/dim]  {text}", soft_wrap=True)

    def jars(self, done: int, total: int) -> None:
        """Move the bar of fetching jars."""
        if self._bar is None:
            self._bar = Bar(
                TextColumn("fetch jars"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn(),
                console=self._console,
            )  # fmt: skip
            self._bar.start()
            self._bar.add_task("jars", total=total)
        self._bar.update(self._bar.task_ids[0], completed=done, total=total)
        if done >= total:
            self.close()

    def close(self) -> None:
        """End a bar that is still shown."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


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
    "--nemesis",
    default="kill",
    show_default=True,
    metavar="NAME",
    help="kill, pause, partition, join, catch-up, or none for the healthy control: see `harness nemeses`.",
)
@click.option("--client", default="librdkafka", show_default=True, metavar="NAME", help="librdkafka or java.")
@click.option("--timers", default="fast", show_default=True, metavar="NAME", help="fast, 10m, or default (days).")
@click.option("--brokers", type=int, default=3, show_default=True, metavar="N", help="How many brokers, 3 to 7.")
@click.option("--replication-factor", type=int, default=3, show_default=True, metavar="N", help="Replicas a partition.")
@click.option("--partitions", type=int, default=1, show_default=True, metavar="N", help="Partitions a topic.")
@click.option("--absent", type=int, default=1, show_default=True, metavar="N", help="Brokers that go away together.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Where run folders go.",
)
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
@format_option
@click.pass_context
def run(context: click.Context, /, output: str, settings: tuple[str, ...], run_dir: Path | None, **options: Any) -> int:
    """Boot a cluster, take a broker away, bring it back, and judge every broker's history."""
    from harness.resume import ResumeOptions, resume  # noqa: PLC0415  (slow imports, only where needed)
    from harness.run import RunOptions, parse_settings  # noqa: PLC0415
    from harness.run import run as go  # noqa: PLC0415

    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    progress = ConsoleProgress()
    try:
        if run_dir is None:
            missing = [f"--{name}" for name in ("target", "anomaly") if name not in given]
            if missing:
                raise UsageError(f"give {' and '.join(missing)}: see `harness targets` and `harness anomalies`")
            topic_settings, broker_settings = parse_settings(settings)
            chosen = RunOptions(**options, topic_settings=topic_settings, broker_settings=broker_settings)
            result = go(chosen, progress)
        else:
            allowed = {field.name for field in fields(ResumeOptions)}
            refused = [p.opts[0] for p in context.command.params if p.name in given - allowed - {"output", "run_dir"}]
            if refused:
                raise UsageError(f"--resume takes everything else from the run folder; leave out {', '.join(refused)}")
            result = resume(
                ResumeOptions(run_dir, **{n: value for n, value in options.items() if n in allowed}), progress
            )
    finally:
        progress.close()
    _show(result, output)
    return EXIT_CODES[result.verdict["verdict"]]


@cli.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@format_option
def check(run_dir: Path, output: str) -> int:
    """Judge a stored run again, from its folder alone."""
    from harness.checking import check_folder  # noqa: PLC0415

    progress = ConsoleProgress()
    result = check_folder(run_dir, progress)
    _show(result, output)
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
    from harness.spark_archive import make_archive  # noqa: PLC0415
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
        _stdout().print(table)
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
    removed = 0
    for leftover in found:
        owner = leftover.owner
        named = leftover.run_id in run_ids
        if owner is not None and not owner.kept and owner.lives():
            if named:
                raise UsageError(f"{leftover.run_id} is still going on (process {owner.pid}); end that first")
            click.echo(f"spared {leftover.run_id}: its run is going on (process {owner.pid})")
        elif named or (not run_ids and leftovers.is_abandoned(leftover)):
            ended = leftovers.remove(leftover.run_id, leftover.directory)
            click.echo(f"removed {leftover.run_id}: {ended} processes and {leftover.directory}")
            removed += 1
        elif not run_ids and owner is not None and (owner.kept or owner.resumable):
            why = "kept" if owner.kept else f"it can go on with `harness run --resume {owner.run_dir}`"
            click.echo(f"spared {leftover.run_id}: {why}; remove it with `harness clean {leftover.run_id}`")
    for run_id in leftovers.remove_orphaned_networks():
        click.echo(f"removed the network of {run_id}")
        removed += 1
    if not removed:
        click.echo("nothing to remove")
    return EXIT_CLEAN


@cli.command()
def targets() -> int:
    """List what can be tested."""
    from harness.targets import TARGETS  # noqa: PLC0415
    from harness.targets.jars import is_cached  # noqa: PLC0415

    table = Table("target", "version", "jars", "note", box=None)
    for target in TARGETS.values():
        table.add_row(target.name, target.version, "cached" if is_cached(target) else "to be fetched", target.note)
    _stdout().print(table)
    return EXIT_CLEAN


@cli.command()
def nemeses() -> int:
    """List how a broker can be away."""
    from nemesis import NEMESES  # noqa: PLC0415

    table = Table("nemesis", "what it does", box=None)
    for nemesis in NEMESES.values():
        table.add_row(nemesis.name, nemesis.summary)
    _stdout().print(table)
    return EXIT_CLEAN


@cli.command()
def anomalies() -> int:
    """List what can be looked for."""
    table = Table("anomaly", "payload", "what happens", box=None)
    for scenario in catalog.SCENARIOS:
        table.add_row(scenario.anomaly, scenario.payload, scenario.summary)
    _stdout().print(table)
    return EXIT_CLEAN


def _show(result: RunResult, output: str) -> None:
    said = result.verdict
    code = EXIT_CODES[said["verdict"]]
    if output == JSON:
        click.echo(json.dumps(said, indent=2))
    else:
        console = _stdout()
        for scenario in said["scenarios"]:
            if scenario["verdict"] != ANOMALY:
                _line(console, scenario["verdict"], f"{scenario['scenario']}: {scenario['reason']}")
        for finding in said["findings"]:
            where = f"broker {finding['broker']}, {finding['topic']}-{finding['partition']}, offset {finding['offset']}"
            names = f" (or {' or '.join(finding['candidates'])})" if finding["candidates"] else ""
            _line(
                console,
                ANOMALY,
                f"{finding['anomaly']}{names}: {where}: {finding['explanation']} [{finding['effect']}]",
            )
        _show_aftermath(console, said["aftermath"])
        console.print(f"{_relative(result.folder.path)}/   (exit code {code})", markup=False)
    for broker, address in result.kept.items():
        click.echo(f"kept: broker {broker} at {address}", err=True)
    if result.kept:
        click.echo(f"remove it with: harness clean {result.folder.run_id}", err=True)


def _show_aftermath(console: Console, steps: list[dict[str, Any]]) -> None:
    freed: set[tuple[str, int, int]] = set()
    for step in steps:
        told = [f"stuck: {', '.join(map(_stands, step['stuck']))}"] if step["stuck"] else []
        for replica in step["ended"]:
            name = (replica["topic"], replica["partition"], replica["broker"])
            told += [] if name in freed else [f"free: {_stands(replica)}, taken as {replica['outcome']}"]
            freed.add(name)
        console.print(f"{step['after_s']:6.1f} s  {step['summary']}", markup=False)
        for line in told or ["nothing is stuck"]:
            console.print(f"          {line}", markup=False)


def _stands(replica: dict[str, Any]) -> str:
    where = f"{replica['topic']}-{replica['partition']} on broker {replica['broker']}"
    return f"{where} at {replica['last_stable_offset']} of {replica['high_watermark']}"


def _line(console: Console, verdict: str, text: str) -> None:
    console.print(f"[{STYLES[verdict]}]{verdict.upper()}[/]", end=" ")
    console.print(text, markup=False)


def _stdout() -> Console:
    return Console(highlight=False, soft_wrap=True)


def _relative(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


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
