"""The ``guard`` commands."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.options import common
from harness.cli.options.parameters import FILE, PORT, Number, Text
from harness.console import JSON, print_progress
from harness.errors import EXIT_CLEAN, UsageError
from harness.terminal import Table, stdout

if TYPE_CHECKING:
    from harness.protect.guard.journal import PauseState

MOST_S, MOST_WARNING_S = 3600.0, 366 * 86_400.0
PROTECTION, WATCHING = map(common.Group, ("Protection", "Watching"))
NO_TOPIC = ("",)
"""A pattern that no topic has: `release` pauses no further topic."""


@cloup.group(
    invoke_without_command=True,
    epilog=common.examples(
        "harness guard --bootstrap-server kafka-1:9092,kafka-2:9092 --dry-run",
        "harness guard --bootstrap-server kafka-1:9092 --topic 'orders-*' --topic __consumer_offsets",
    ),
)
@common.bootstrap_option(required=False)
@common.config_option
@common.topic_option(PROTECTION)
@PROTECTION.option(
    "--interval",
    Number(0.2, MOST_S, "S"),
    "Polling interval in seconds. Needs a delete.retention.ms of at least 3 intervals and 4 s.",
    default=2.0,
)
@PROTECTION.flag("--dry-run", "Execute one round that changes nothing, report what a guard would do, and exit.")
@PROTECTION.option(
    "--pause-warning",
    Number(1, MOST_WARNING_S, "S"),
    "Warn about a topic that is paused for longer than S seconds.",
    default=3600.0,
)
@WATCHING.option("--listen", Text(metavar="HOST"), "Address of /metrics and /health.", default="127.0.0.1")
@WATCHING.option("--port", PORT, "Port of /metrics and /health; 0 chooses a free port.", default=9464)
@WATCHING.option(
    "--observe-every",
    Number(1, MOST_S, "S"),
    "Polling interval for the log sizes of paused topics, in seconds.",
    default=60.0,
)
@common.OUTPUT.option("--events", FILE, "Append each event to this file, as a JSON object.")
@common.verbose_option
@common.quiet_option
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
        if early := common.options_given():
            raise UsageError(f"options of `harness guard` come after `{subcommand}`: {min(early)}")
        return EXIT_CLEAN
    from harness.protect.guard import run  # noqa: PLC0415
    from harness.protect.guard.service import GuardOptions  # noqa: PLC0415

    if bootstrap is None:
        raise UsageError("Missing option '--bootstrap-server'.")
    options = GuardOptions(parameters["topics"], parameters["interval"], parameters["pause_warning"])
    listen = parameters["listen"], parameters["port"]
    with run.event_log(print_progress, parameters["events"]) as log:
        servers = common.addresses(bootstrap, config)
        if parameters["dry_run"]:
            code, text = run.dry_run(servers, options, log)
            stdout().line(text)
            return code
        return run.guard_until_signal(servers, options, log, listen, parameters["observe_every"])


@common.command(
    "harness guard status --bootstrap-server kafka-1:9092",
    "harness guard status --bootstrap-server kafka-1:9092 --format json",
    of=guard,
)
@common.bootstrap_option()
@common.config_option
@common.cluster_option
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
    of=guard,
)
@common.bootstrap_option()
@common.config_option
@PROTECTION.flag("--exposed", "Also release topics with replicas out of the ISR, which may then miss removals.")
def release(bootstrap: str, config: Path | None, output: str, *, exposed: bool) -> int:
    """Restore settings that a stopped guard left paused.

    Topics with replicas out of the ISR stay paused unless --exposed is given. Topics that another command has paused
    stay paused too.

    Exit codes: 0 no topic is paused, 2 a topic is still paused, 254 usage or set-up error, 255 failed.
    """
    from harness.protect.guard import run  # noqa: PLC0415
    from harness.protect.guard.service import GuardOptions  # noqa: PLC0415

    options = GuardOptions(patterns=NO_TOPIC, release_exposed=exposed)
    with run.event_log(print_progress) as log:
        code, state = run.release(common.addresses(bootstrap, config), options, log)
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
    rows = [
        (
            pause.topic,
            pause.phase,
            datetime.fromtimestamp(pause.since_ms / 1000, UTC).isoformat(timespec="seconds"),
            changes_text(pause.previous),
            ", ".join(sorted(state.holds.get(pause.topic, ()))),
        )
        for pause in state.pauses.values()
    ]
    if rows:
        stdout().table(Table(("topic", "phase", "since", "previous settings", "paused by"), rows))
    stdout().line(f"{len(rows)} topics are paused")
