"""The ``guard`` commands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import cloup

from harness.cli.options.cluster import addresses, bootstrap_option, config_option
from harness.cli.options.common import (
    OUTPUT,
    command,
    envelope,
    format_option,
    given_on_command_line,
    verbosity_options,
)
from harness.cli.options.parameters import TOPIC, Count, FilePath, Number, Text
from harness.console import JSON, print_progress
from harness.errors import EXIT_CLEAN, UsageError
from harness.terminal import Table, stdout

if TYPE_CHECKING:
    from pathlib import Path

    from harness.protect.guard.journal import PauseState

LEAST_S, MOST_S = 0.2, 3600.0
MOST_WARNING_S = 366 * 86_400.0
PORT = 9464

PROTECTION, WATCHING = map(cloup.OptionGroup, ("Protection", "Watching"))


topic_option = cloup.option(
    "--topic",
    "topics",
    group=PROTECTION,
    multiple=True,
    type=TOPIC,
    metavar="NAME",
    help="A topic or a pattern such as 'orders-*'; repeatable. Internal topics match only patterns that begin with "
    "__.  [default: every compacted topic, internal ones included]",
)

EXAMPLES = (
    "harness guard --bootstrap-server kafka-1:9092,kafka-2:9092 --dry-run",
    "harness guard --bootstrap-server kafka-1:9092 --topic 'orders-*' --topic __consumer_offsets",
    "harness guard --bootstrap-server kafka-1:9092 --observe-only --listen 0.0.0.0 --port 9464",
)


@cloup.group(
    invoke_without_command=True,
    epilog="\n".join(["\b", "Examples:", *(f"  $ {example}" for example in EXAMPLES)]),
)
@bootstrap_option(required=False)
@config_option
@topic_option
@cloup.option(
    "--interval",
    "interval_s",
    group=PROTECTION,
    type=Number(min=LEAST_S, max=MOST_S),
    default=2.0,
    show_default=True,
    metavar="S",
    help="Seconds between two looks at the replicas. delete.retention.ms has to be three times as long, and 4 s.",
)
@cloup.option(
    "--dry-run", "is_dry", is_flag=True, group=PROTECTION, help="Say what would be changed, and change nothing."
)
@cloup.option(
    "--observe-only", "only_observes", is_flag=True, group=PROTECTION, help="Metrics and warnings; change nothing."
)
@cloup.option(
    "--pause-warning",
    "pause_warning_s",
    group=PROTECTION,
    type=Number(min=1, max=MOST_WARNING_S),
    default=3600.0,
    show_default=True,
    metavar="S",
    help="Warn of a topic that is paused for longer.",
)
@cloup.option(
    "--listen",
    group=WATCHING,
    type=Text(),
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="The address of /metrics and /health.",
)
@cloup.option(
    "--port",
    group=WATCHING,
    type=Count(0, 65_535),
    default=PORT,
    show_default=True,
    help="Its port; 0: a free one.",
)
@cloup.option(
    "--observe-every",
    "observe_every_s",
    group=WATCHING,
    type=Number(min=1, max=MOST_S),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds between two looks at transactions, last stable offsets and sizes of logs.",
)
@cloup.option(
    "--events",
    group=OUTPUT,
    type=FilePath(dir_okay=False),
    metavar="FILE",
    help="Append one JSON object an event.",
)
@verbosity_options
@click.pass_context
def guard(  # noqa: PLR0917
    context: click.Context,
    bootstrap: str | None,
    config: Path | None,
    topics: tuple[str, ...],
    interval_s: float,
    is_dry: bool,  # noqa: FBT001
    only_observes: bool,  # noqa: FBT001
    pause_warning_s: float,
    listen: str,
    port: int,
    observe_every_s: float,
    events: Path | None,
) -> int:
    """Pause compaction of a topic, from outside, while an assigned replica is not caught up.

    Sets min.cleanable.dirty.ratio=1 and max.compaction.lag.ms to its maximum, and restores the previous values. A
    longer delete.retention.ms does not help: it does not apply to tombstones and markers that a cleaner has already
    seen.

    Exit codes: 0 ended by a signal with everything put back, 2 something is still paused, 254 arguments that cannot be
    used, 255 failed.
    """
    if context.invoked_subcommand is not None:
        if options_given := given_on_command_line(context):
            raise UsageError(
                f"options of `harness guard` come after `{context.invoked_subcommand}`: {min(options_given)}"
            )
        return EXIT_CLEAN
    from harness.protect.guard.events import EventLog  # noqa: PLC0415
    from harness.protect.guard.run import GuardRequest, guard_until_signal, writer  # noqa: PLC0415
    from harness.protect.guard.service import ACT, DRY_RUN, OBSERVE, Options  # noqa: PLC0415

    if bootstrap is None:
        raise UsageError("Missing option '--bootstrap-server'.")
    if is_dry and only_observes:
        raise UsageError("--dry-run and --observe-only exclude each other: give one")
    mode = DRY_RUN if is_dry else OBSERVE if only_observes else ACT
    options = Options(topics, interval_s, mode, pause_warning_s, writer())
    log = EventLog(print_progress, events)
    try:
        request = GuardRequest(tuple(addresses(bootstrap, config)), options, (listen, port), observe_every_s)
        return guard_until_signal(request, log)
    finally:
        log.close()


@command(
    "harness guard status --bootstrap-server kafka-1:9092",
    "harness guard status --bootstrap-server kafka-1:9092 --format json",
)
@bootstrap_option(required=True)
@config_option
@format_option
def status(bootstrap: str, config: Path | None, output: str) -> int:
    """Show paused topics, their previous settings, and the owners of holds. Exit code 2 if a topic is paused."""
    from harness.protect.guard.run import EXIT_STILL_PAUSED, read_state  # noqa: PLC0415

    state = read_state(addresses(bootstrap, config))
    _show(state, output)
    return EXIT_STILL_PAUSED if state.pauses else EXIT_CLEAN


@command(
    "harness guard release --bootstrap-server kafka-1:9092",
    "harness guard release --bootstrap-server kafka-1:9092 --exposed",
)
@bootstrap_option(required=True)
@config_option
@cloup.option(
    "--exposed",
    is_flag=True,
    group=PROTECTION,
    help="Also release topics with replicas that are still out of the ISR: those replicas may miss removals.",
)
@format_option
def release(bootstrap: str, config: Path | None, output: str, *, exposed: bool) -> int:
    """Put back what a guard found that is no longer running. Exit code 2 where something is still paused.

    Topics with replicas out of the ISR stay paused unless --exposed is given; so do topics that another command holds.
    """
    from harness.protect.guard.events import EventLog  # noqa: PLC0415
    from harness.protect.guard.run import GuardRequest, writer  # noqa: PLC0415
    from harness.protect.guard.run import release as put_back  # noqa: PLC0415
    from harness.protect.guard.service import Options  # noqa: PLC0415

    options = Options(patterns=NOTHING, writer=writer(), release_exposed=exposed)
    code, state = put_back(GuardRequest(tuple(addresses(bootstrap, config)), options), EventLog(print_progress))
    _show(state, output)
    return code


NOTHING = ("",)
"""No topic has this name: releasing pauses nothing that is not paused already."""


def _show(state: PauseState, output: str) -> None:
    if output == JSON:
        pauses = [
            {"topic": p.topic, "phase": p.phase, "since_ms": p.since_ms, "found": dict(p.found)}
            for p in state.pauses.values()
        ]
        stdout().json(envelope(paused=pauses, holds={topic: sorted(by) for topic, by in state.holds.items()}))
        return
    rows = [
        (
            pause.topic,
            pause.phase,
            datetime.fromtimestamp(pause.since_ms / 1000, UTC).isoformat(timespec="seconds"),
            ", ".join(f"{name}={'(inherited)' if value is None else value}" for name, value in pause.found.items()),
            ", ".join(sorted(state.holds.get(pause.topic, ()))),
        )
        for pause in state.pauses.values()
    ]
    if rows:
        stdout().table(Table(("topic", "phase", "since", "found", "held by"), rows))
    stdout().line(f"{len(rows)} topics are paused")


for subcommand in (status, release):
    guard.add_command(subcommand)
