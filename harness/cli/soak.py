"""The ``soak`` command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.options.common import command, format_option, given_on_command_line, results_option
from harness.cli.options.parameters import (
    LONGEST_TIME_S,
    MOST_SEED,
    RUNTIME,
    TARGET,
    Count,
    FilePath,
    Number,
    Text,
    file_to_read,
)
from harness.cli.options.spark import PARAMETERS, spark_options
from harness.console import JSON, STYLES, ConsoleProgress, print_progress
from harness.errors import EXIT_ANOMALY, UsageError
from harness.json_codec import to_json
from harness.judge.verdict import EXIT_CODES
from harness.runtimes import AUTO
from harness.soak.causes import NAMES
from harness.terminal import Table, stdout, styled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.judge.soak_verdict import RoundLine, SoakVerdict
    from harness.spark.options import SparkOptions

SOAKED, ROUNDS = map(cloup.OptionGroup, ("Soak", "Rounds"))
MOST_PARTITIONS, MOST_RATE_HZ, MOST_ROUNDS = 1000, 10_000, 1_000_000
GIVEN_ANEW = frozenset({"output", "soak_dir"})
_DRAWN = {"partitions": "--partitions", "rate_hz": "--rate", "play_s": "--play"}
"""Options of rounds that are drawn."""


@command(
    "harness soak --target kafka-4.4 --minutes 30 --seed 1 --expect known.toml",
    "harness soak --target sim-kafka --rounds 4 --seed 1",
    "harness soak --target sim-kafka --schedule results/sim-kafka/soak/ID/soak-1/round.json --rounds 1",
    "harness soak --target sim-kafka --schedule round.json --shrink stuck-lso",
    "harness soak --resume results/kafka-4.4/soak/ID",
)
@cloup.option("--target", group=SOAKED, type=TARGET, metavar="NAME", help="The version to soak: see `harness targets`.")
@cloup.option(
    "--minutes",
    group=SOAKED,
    type=Number(min=0, min_open=True, max=LONGEST_TIME_S / 60),
    default=30.0,
    show_default=True,
    metavar="M",
    help="For how long; the round that is played then is judged, too.",
)
@cloup.option(
    "--rounds", group=SOAKED, type=Count(1, MOST_ROUNDS), metavar="N", help="Maximum number of rounds.  [default: any]"
)
@cloup.option(
    "--seed", group=SOAKED, type=Count(0, MOST_SEED), default=1, show_default=True, help="Of the first round."
)
@cloup.option(
    "--runtime",
    group=SOAKED,
    type=RUNTIME,
    default=AUTO,
    show_default=True,
    metavar="NAME",
    help="local (processes), docker, sim (models), or auto, as `harness run` has it; local with --gate.",
)
@cloup.option(
    "--gate", group=SOAKED, is_flag=True, help="Start every broker with the gate: any finding fails the soak."
)
@cloup.option(
    "--expect", group=SOAKED, type=file_to_read(), metavar="FILE", help="Findings to tolerate by name; not with --gate."
)
@cloup.option(
    "--resume",
    "soak_dir",
    group=SOAKED,
    type=FilePath(exists=True, file_okay=False),
    metavar="DIR",
    help="Go on with a soak that was cut off; takes the place of all else.",
)
@cloup.option(
    "--schedule",
    group=ROUNDS,
    type=file_to_read("each round of a soak has a round.json"),
    metavar="FILE",
    help="A round to play again, with one seed after the other, instead of drawn rounds.",
)
@cloup.option(
    "--shrink",
    group=ROUNDS,
    type=Text(known=NAMES),
    metavar="NAME",
    help="Reduce the --schedule instead while it shows this finding on sim-kafka, for --minutes at most.",
)
@cloup.option(
    "--partitions",
    group=ROUNDS,
    type=Count(1, MOST_PARTITIONS),
    default=30,
    show_default=True,
    metavar="N",
    help="Of a round, in up to five topics.",
)
@cloup.option(
    "--rate",
    "rate_hz",
    group=ROUNDS,
    type=Number(min=1, max=MOST_RATE_HZ),
    default=300.0,
    show_default=True,
    metavar="N",
    help="Operations of clients a second.",
)
@cloup.option(
    "--play",
    "play_s",
    group=ROUNDS,
    type=Number(min=6, max=3600),
    default=30.0,
    show_default=True,
    metavar="S",
    help="For how many seconds operations and faults are drawn.",
)
@results_option
@spark_options
@format_option
@click.pass_context
def soak(context: click.Context, /, *, output: str, soak_dir: Path | None, **parameters: Any) -> int:
    """Random workloads under composed faults, round after round on one cluster, each judged by itself.

    Exits with 1 where anything was found that --expect does not tolerate; with 2 where a round is unknown, or where
    something was found that has no name; else with 0. Rounds with findings, or unknown ones, are kept whole; each can
    be played again by --schedule, and reduced by --shrink, which exits with 1 with the smallest round that it found.
    """
    from harness.soak.campaign import resume  # noqa: PLC0415  (slow imports, only where needed)
    from harness.soak.campaign import soak as go  # noqa: PLC0415

    progress, options_given = ConsoleProgress(), given_on_command_line(context)
    if parameters["shrink"] and soak_dir is None:
        return _shrink(parameters, progress, output)
    del parameters["shrink"]
    try:
        if soak_dir is None:
            result = go(_options(parameters, options_given), progress, _print_round)
        else:
            repeated = options_given - GIVEN_ANEW - PARAMETERS
            refused = [parameter.opts[0] for parameter in context.command.params if parameter.name in repeated]
            if refused:
                raise UsageError(f"--resume takes all else from the soak's folder; leave out {', '.join(refused)}")
            result = resume(soak_dir, parameters["spark"], progress, _print_round)
    finally:
        progress.close()
    _show(result.result(), output)
    return EXIT_CODES[result.verdict]


def _shrink(parameters: Mapping[str, Any], progress: ConsoleProgress, output: str) -> int:
    """Shrink the schedule, print the result, and write it next to the schedule; exits with 1."""
    from harness.soak.campaign import shrink_file  # noqa: PLC0415

    if parameters["schedule"] is None or parameters["target"] is None:
        raise UsageError("--shrink NAME reduces a --schedule: give that, and --target sim-kafka")
    shrunk = shrink_file(
        parameters["target"], parameters["schedule"], parameters["shrink"], parameters["minutes"], progress
    )
    if output == JSON:
        stdout().json(shrunk)
        return EXIT_ANOMALY
    out = stdout()
    for step in shrunk["words"]:
        out.line(step)
    out.line(f"{shrunk['finding']}: {len(shrunk['words'])} steps, shown with {shrunk['shown']} of {shrunk['of']} seeds")
    out.line(shrunk["schedule"], " (`harness run --schedule` replays it, too)" * bool(shrunk["run_schedule"]))
    return EXIT_ANOMALY


def _options(parameters: Mapping[str, Any], options_given: frozenset[str]) -> Any:
    from harness.soak.campaign import SoakOptions  # noqa: PLC0415
    from harness.soak.draw.plan import Shape  # noqa: PLC0415
    from harness.soak.judge.expectations import read_expected  # noqa: PLC0415
    from harness.soak.play.round import read_round  # noqa: PLC0415

    if parameters["target"] is None:
        raise UsageError("give --target: see `harness targets`")
    if parameters["gate"] and parameters["expect"]:
        raise UsageError("leave out --expect: with --gate, any finding fails the soak")
    if parameters["schedule"] and (drawn := [option for name, option in _DRAWN.items() if name in options_given]):
        raise UsageError(f"--schedule has the whole round: leave out {', '.join(drawn)}")
    spark: SparkOptions = parameters["spark"]
    return SoakOptions(
        target=parameters["target"],
        minutes=parameters["minutes"],
        seed=parameters["seed"],
        results=parameters["results"],
        spark=spark,
        rounds=parameters["rounds"],
        runtime=parameters["runtime"],
        gate=parameters["gate"],
        shape=Shape(partitions=parameters["partitions"], rate_hz=parameters["rate_hz"], play_s=parameters["play_s"]),
        expected=read_expected(parameters["expect"]) if parameters["expect"] else {},
        schedule=read_round(parameters["schedule"]) if parameters["schedule"] else None,
    )


def _print_round(line: RoundLine) -> None:
    counts = ", ".join(f"{count} {name}" for name, count in line.findings.items()) or "nothing"
    more = f", {line.unexplained} unexplained" if line.unexplained else ""
    print_progress(f"{line.name} (seed {line.seed}): {line.verdict}: found {counts}{more}")


def _show(result: SoakVerdict, output: str) -> None:
    out = stdout()
    if output == JSON:
        out.json(to_json(result))
        return
    rows = [
        (
            line.name,
            str(line.seed),
            styled(line.verdict, STYLES[line.verdict]),
            str(line.operations),
            str(len(line.faults)),
            ", ".join(f"{count} {name}" for name, count in line.findings.items()),
            str(line.unexplained),
        )
        for line in result.rounds
    ]
    out.table(Table(("round", "seed", "verdict", "operations", "faults", "found", "unexplained"), rows))
    if result.audit:
        names = ("diverged", "found", "called clean", "right accusations", "wrong accusations", "harmful copies")
        out.line("audit beside: ", ", ".join(f"{result.audit[name]} {name}" for name in names))
    if result.groups:
        out.line("offsets of groups: ", ", ".join(f"{count} {name}" for name, count in result.groups.items()))
    if counts := result.gates:
        out.line(
            f"gates: held {counts['held']} of {counts['exposed']} exposed outages, of {counts['partitions']} partitions"
        )
    if shown := result.shown:
        out.line(f"{shown.finding}: found in {shown.in_} of {shown.of} rounds")
    for name, why in result.not_drawn.items():
        out.line("not drawn: ", name, f" ({why})")
    out.line(styled(result.verdict.upper(), STYLES[result.verdict]), f"  {result.reason}")
    out.line(f"{result.folder}/")
