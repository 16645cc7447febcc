"""``harness gate`` and ``harness guard``: both keep cleaners from removing records that a replica still lacks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import is_zipfile

import click
import cloup

from harness.cli.options import common
from harness.cli.options import parameters as kinds
from harness.console import JSON, ConsoleProgress, print_progress
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, UsageError
from harness.host.java import find_java
from harness.targets import find_target
from harness.terminal import Table, stdout

if TYPE_CHECKING:
    from harness.protect.guard.journal import PauseState

MOST_S, MOST_WARNING_S = 3600.0, 366 * 86_400.0
BROKER, PROTECTION, WATCHING = map(common.Group, ("Broker", "Protection", "Watching"))
NO_TOPIC = ("",)
"""A pattern that no topic has: `release` pauses no further topic."""
# fmt: off
JAR = common.OUTPUT.option("--output", kinds.FilePath(dir_okay=False, metavar="JAR"),
                           "Write the jar to this file.  [default: in the cache]", name="jar")
VERIFY_OPTIONS = (
    cloup.Argument(["jar"], type=kinds.FILE_TO_READ, metavar="JAR"),
    BROKER.option("--target", kinds.TARGET, "A version: see `harness targets`.", name="name"),
    BROKER.option("--libs", kinds.EXISTING_DIRECTORY, "The libs folder of a Kafka installation."),
    BROKER.option("--options", kinds.Text(metavar="NAME=VALUE,…"), "Options of the agent, to check them too."),
)
GUARD_OPTIONS = (
    common.CLUSTER.option("--bootstrap-server", common.SERVERS, "Bootstrap brokers.  [required]", name="bootstrap"),
    common.CONFIG,
    common.topic_option(PROTECTION),
    PROTECTION.option("--interval", kinds.Number(0.2, MOST_S, "S"),
                      "Polling interval in seconds. Needs a delete.retention.ms of at least 3 intervals and 4 s.",
                      default=2.0),
    PROTECTION.flag("--dry-run", "Execute one round that changes nothing, report what a guard would do, and exit."),
    PROTECTION.option("--pause-warning", kinds.Number(1, MOST_WARNING_S, "S"),
                      "Warn about a topic that is paused for longer than S seconds.", default=3600.0),
    WATCHING.option("--listen", kinds.Text(metavar="HOST"), "Address of /metrics and /health.", default="127.0.0.1"),
    WATCHING.option("--port", kinds.PORT, "Port of /metrics and /health; 0 chooses a free port.", default=9464),
    WATCHING.option("--observe-every", kinds.Number(1, MOST_S, "S"),
                    "Polling interval for the log sizes of paused topics, in seconds.", default=60.0),
    common.OUTPUT.option("--events", kinds.FILE, "Append each event to this file, as a JSON object."),
    *common.VERBOSITY,
)
# fmt: on


@cloup.group()
def gate() -> None:
    """Build the Java agent that delays compaction while a replica is out of the ISR."""


@common.command("harness gate build", "harness gate build --output compaction-gate.jar", options=[JAR], of=gate)
def build(jar: Path | None, output: str) -> int:
    """Compile the agent, and print its path and SHA-256.

    Start each broker with -javaagent:JAR or -javaagent:JAR=NAME=VALUE,… Options: topics=PATTERN:PATTERN,
    except=PATTERN:PATTERN, max-image-age-ms=N, give-up-after-ms=N, max-unsynced-ms=N, hold=all or hold=markers.
    """
    from harness.protect.gate.build import build_agent, export  # noqa: PLC0415  (only where needed)

    agent = build_agent(find_java(), ConsoleProgress().jars)
    if jar is not None:
        export(agent, jar)
    path = str(jar or agent.jar)
    if output == JSON:
        stdout().json(common.envelope(jar=path, sha256=agent.sha256))
    else:
        stdout().line(f"{path}  {agent.sha256}")
    return EXIT_CLEAN


@common.command(
    "harness gate verify compaction-gate.jar --target kafka-4.4",
    "harness gate verify compaction-gate.jar --libs /opt/kafka/libs",
    options=VERIFY_OPTIONS,
    of=gate,
)
def verify(jar: Path, name: str | None, libs: Path | None, options: str | None, output: str) -> int:
    """Check the agent against the classes of a version, without a broker.

    Exit codes: 0 it fits, 1 it does not fit, 254 usage or set-up error, 255 failed.
    """
    from harness.protect.gate.build import libraries, verify_agent  # noqa: PLC0415
    from harness.targets.jars import jars_for  # noqa: PLC0415

    if name and libs:
        raise UsageError("leave out --target or --libs: each names the classes to check")
    if not (name or libs):
        raise UsageError("give --target or --libs: the classes to check")
    if not is_zipfile(jar):
        raise UsageError(f"{jar} is not a jar: `harness gate build` writes one")
    progress = ConsoleProgress()
    classpath = libraries(libs) if libs else jars_for(find_target(name or ""), on_progress=progress.jars).classpath
    tried = verify_agent(find_java(), jar, classpath, options or "")
    if output == JSON:
        hooks = [{"method": method, "hook": hook} for method, hook in tried.hooks]
        stdout().json(common.envelope(fits=tried.fits, hooks=hooks, reason=tried.reason))
    elif tried.fits:
        stdout().table(Table(("method", "calls"), tried.hooks))
        stdout().line(f"{jar} fits {name or libs}")
    else:
        stdout().line(f"{jar} does not fit {name or libs}: {tried.reason}")
    return EXIT_CLEAN if tried.fits else EXIT_ANOMALY


@cloup.group(
    invoke_without_command=True,
    params=common.in_groups(GUARD_OPTIONS),
    epilog=common.examples(
        "harness guard --bootstrap-server kafka-1:9092,kafka-2:9092 --dry-run",
        "harness guard --bootstrap-server kafka-1:9092 --topic 'orders-*' --topic __consumer_offsets",
    ),
)
@click.pass_context
def guard(context: click.Context, /, bootstrap: str | None, config: Path | None, **parameters: Any) -> int:
    """Pause compaction of a topic while one of its replicas is out of the ISR.

    Sets min.cleanable.dirty.ratio=1 and max.compaction.lag.ms to its maximum, and restores the previous values. A
    longer delete.retention.ms does not help: it does not apply to tombstones and markers that a cleaner has already
    seen.

    Exit codes: 0 ended by a signal, and no topic is paused; 2 a topic is still paused; 254 usage or set-up error;
    255 failed. With --dry-run: 0 a guard would change nothing, 2 it would.
    """
    if (subcommand := context.invoked_subcommand) is not None:
        common.leave_out(common.options_given(), f"options of `harness guard` come after `{subcommand}`")
        return EXIT_CLEAN
    from harness.protect.guard import run  # noqa: PLC0415
    from harness.protect.guard.service import GuardOptions  # noqa: PLC0415

    if bootstrap is None:
        raise UsageError("Missing option '--bootstrap-server'.")
    options = GuardOptions(parameters["topics"], parameters["interval"], parameters["pause_warning"])
    listen = parameters["listen"], parameters["port"]
    log, servers = run.event_log(print_progress, parameters["events"]), common.addresses(bootstrap, config)
    if parameters["dry_run"]:
        code, text = run.dry_run(servers, options, log)
        stdout().line(text)
        return code
    return run.guard_until_signal(servers, options, log, listen, parameters["observe_every"])


@common.command(
    "harness guard status --bootstrap-server kafka-1:9092",
    "harness guard status --bootstrap-server kafka-1:9092 --format json",
    options=(common.BOOTSTRAP, common.CONFIG, common.CLUSTER_NAME),
    of=guard,
)
def status(bootstrap: str, config: Path | None, output: str) -> int:
    """Show paused topics and their previous settings.

    Exit codes: 0 no topic is paused, 2 a topic is paused, 254 usage or set-up error, 255 failed.
    """
    from harness.protect.guard.run import EXIT_STILL_PAUSED, read_state  # noqa: PLC0415

    state = read_state(common.addresses(bootstrap, config))
    _show(state, output)
    return EXIT_STILL_PAUSED if state.pauses else EXIT_CLEAN


@common.command(
    "harness guard release --bootstrap-server kafka-1:9092",
    "harness guard release --bootstrap-server kafka-1:9092 --exposed",
    options=(
        common.BOOTSTRAP,
        common.CONFIG,
        PROTECTION.flag("--exposed", "Also release topics with replicas out of the ISR, which may then miss removals."),
    ),
    of=guard,
)
def release(bootstrap: str, config: Path | None, output: str, *, exposed: bool) -> int:
    """Restore settings that a stopped guard left paused.

    Topics with replicas out of the ISR stay paused unless --exposed is given. Topics that another command has paused
    stay paused too.

    Exit codes: 0 no topic is paused, 2 a topic is still paused, 254 usage or set-up error, 255 failed.
    """
    from harness.protect.guard import run  # noqa: PLC0415
    from harness.protect.guard.service import GuardOptions  # noqa: PLC0415

    options = GuardOptions(patterns=NO_TOPIC, release_exposed=exposed)
    code, state = run.release(common.addresses(bootstrap, config), options, run.event_log(print_progress))
    _show(state, output)
    return code


def _show(state: PauseState, output: str) -> None:
    from harness.protect.guard.cluster import changes_text  # noqa: PLC0415

    if output == JSON:
        pauses = [
            {"topic": p.topic, "phase": p.phase, "since_ms": p.since_ms, "found": dict(p.previous)}
            for p in state.pauses.values()
        ]
        stdout().json(common.envelope(paused=pauses, holds={topic: sorted(by) for topic, by in state.holds.items()}))
        return
    rows = []
    for pause in state.pauses.values():
        since = datetime.fromtimestamp(pause.since_ms / 1000, UTC).isoformat(timespec="seconds")
        holders = ", ".join(sorted(state.holds.get(pause.topic, ())))
        rows.append((pause.topic, pause.phase, since, changes_text(pause.previous), holders))
    if rows:
        stdout().table(Table(("topic", "phase", "since", "previous settings", "paused by"), rows))
    stdout().line(f"{len(rows)} topics are paused")
