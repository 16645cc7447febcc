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
    "Seconds between two looks at the replicas. delete.retention.ms has to be three times as long, and 4 s.",
    default=2.0,
)
@PROTECTION.flag("--dry-run", "Say what would be changed, and change nothing.")
@PROTECTION.option(
    "--pause-warning", Number(1, MOST_WARNING_S, "S"), "Warn of a topic that is paused for longer.", default=3600.0
)
@WATCHING.option("--listen", Text(metavar="HOST"), "The address of /metrics and /health.", default="127.0.0.1")
@WATCHING.option("--port", PORT, "Its port; 0: a free one.", default=9464)
@WATCHING.option(
    "--observe-every",
    Number(1, MOST_S, "S"),
    "Seconds between two looks at the sizes of paused topics' logs.",
    default=60.0,
)
@common.OUTPUT.option("--events", FILE, "Append one JSON object an event.")
@common.verbose_option
@common.quiet_option
@click.pass_context
def guard(context: click.Context, /, bootstrap: str | None, config: Path | None, **parameters: Any) -> int:
    """Pause compaction of a topic, from outside, while an assigned replica is not caught up.

    Sets min.cleanable.dirty.ratio=1 and max.compaction.lag.ms to its maximum, and restores the previous values. A
    longer delete.retention.ms does not help: it does not apply to tombstones and markers that a cleaner has already
    seen.

    Exit codes: 0 ended by a signal with everything put back, 2 something is still paused, 254 arguments that cannot be
    used, 255 failed.
    """
    if (subcommand := context.invoked_subcommand) is not None:
        if early := common.options_given():
            raise UsageError(f"options of `harness guard` come after `{subcommand}`: {min(early)}")
        return EXIT_CLEAN
    from harness.protect.guard import run  # noqa: PLC0415
    from harness.protect.guard.service import GuardOptions  # noqa: PLC0415
    from harness.protect.guard.status import ACT, DRY_RUN  # noqa: PLC0415

    if bootstrap is None:
        raise UsageError("Missing option '--bootstrap-server'.")
    mode = DRY_RUN if parameters["dry_run"] else ACT
    options = GuardOptions(
        parameters["topics"], parameters["interval"], mode, parameters["pause_warning"], run.writer()
    )
    listen = parameters["listen"], parameters["port"]
    with run.event_log(print_progress, parameters["events"]) as log:
        servers = common.addresses(bootstrap, config)
        return run.guard_until_signal(servers, options, log, listen, parameters["observe_every"])


@common.command(
    "harness guard status --bootstrap-server kafka-1:9092",
    "harness guard status --bootstrap-server kafka-1:9092 --format json",
    of=guard,
)
@common.bootstrap_option()
@common.config_option
def status(bootstrap: str, config: Path | None, output: str) -> int:
    """Show paused topics, their previous settings, and the owners of holds. Exit code 2 if a topic is paused."""
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
@PROTECTION.flag(
    "--exposed", "Also release topics with replicas that are still out of the ISR: those replicas may miss removals."
)
def release(bootstrap: str, config: Path | None, output: str, *, exposed: bool) -> int:
    """Restore the settings of a guard that is no longer running. Exit code 2 if a topic is still paused.

    Topics with replicas out of the ISR stay paused unless --exposed is given; so do topics that another command holds.
    """
    from harness.protect.guard import run  # noqa: PLC0415
    from harness.protect.guard.service import GuardOptions  # noqa: PLC0415

    options = GuardOptions(patterns=NO_TOPIC, writer=run.writer(), release_exposed=exposed)
    with run.event_log(print_progress) as log:
        code, state = run.release(common.addresses(bootstrap, config), options, log)
    _show(state, output)
    return code


def _show(state: PauseState, output: str) -> None:
    from harness.protect.guard.topics import changes_text  # noqa: PLC0415

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
        stdout().table(Table(("topic", "phase", "since", "found", "held by"), rows))
    stdout().line(f"{len(rows)} topics are paused")
