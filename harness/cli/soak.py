"""The ``soak`` command."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.options import parameters as kinds
from harness.cli.options.common import RESULTS, SPARK_PARAMETERS, Group, command, leave_out, options_given
from harness.console import JSON, STYLES, ConsoleProgress, print_progress
from harness.errors import EXIT_ANOMALY, UsageError
from harness.json_codec import to_json
from harness.judge.verdict import EXIT_CODES, RoundLine, SoakVerdict
from harness.runtimes import AUTO
from harness.targets import patched
from harness.targets.settings import parse_setting, parse_settings
from harness.terminal import Table, stdout, styled

if TYPE_CHECKING:
    import click

    from harness.soak.campaign import SoakOptions

SOAKED, ROUNDS = map(Group, ("Soak", "Rounds"))


def _names_of_findings(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    """Return the names for the shell's completion, which alone imports the causes of findings."""
    from harness.soak.causes import NAMES  # noqa: PLC0415

    return [name for name in NAMES if name.startswith(typed)]


# fmt: off
OPTIONS = (
    SOAKED.option("--target", kinds.TARGET, "The version to soak: see `harness targets`."),
    SOAKED.option("--patch", kinds.PATCH, "Classes to put first on the brokers' class path."),
    SOAKED.option("--minutes", kinds.Number(0, kinds.LONGEST_TIME_S / 60, "M", min_open=True),
                  "Duration; the last round is completed.", default=30.0),
    SOAKED.option("--rounds", kinds.Count(1, 1_000_000), "Maximum number of rounds.  [default: any]"),
    SOAKED.option("--seed", kinds.SEED, "Seed of the first round.", default=1),
    SOAKED.option("--runtime", kinds.RUNTIME, "local (processes), docker, sim (models) or auto; local with --gate.",
                  default=AUTO),
    SOAKED.flag("--gate", "Start every broker with the gate; any finding fails the soak."),
    SOAKED.option("--expect", kinds.FILE_TO_READ, "Findings to tolerate by name; not with --gate."),
    SOAKED.option("--resume", kinds.EXISTING_DIRECTORY, "Resume an interrupted soak, with its own options.",
                  name="soak_dir"),
    ROUNDS.option("--schedule", kinds.ROUND_OF_A_SOAK, "Play this round again, each time with the next seed."),
    ROUNDS.option("--shrink", kinds.Text(metavar="NAME"),
                  "Reduce --schedule on sim-kafka to the smallest round with this finding.",
                  shell_complete=_names_of_findings),
    ROUNDS.option("--partitions", kinds.Count(1, 1000), "Partitions of a round, in up to five topics.", default=30),
    ROUNDS.option("--rate", kinds.Number(1, 10_000), "Client operations per second.", name="rate_hz", default=300.0),
    ROUNDS.option("--play", kinds.Number(6, 3600, "S"), "Seconds of operations and faults in a round.", name="play_s",
                  default=30.0),
    SOAKED.option("--set", kinds.Text(parse_setting, metavar="broker.NAME=VALUE"), "Broker setting; repeatable.",
                  name="settings", multiple=True),
    RESULTS,
)
# fmt: on
OF_DRAWN_ROUNDS = ("partitions", "rate_hz", "play_s")
USED_BY_SHRINK = {"target", "schedule", "shrink", "minutes", "output"}


@command(
    "harness soak --target kafka-4.4 --minutes 30 --seed 1 --expect known.toml",
    "harness soak --target sim-kafka --rounds 4 --seed 1",
    "harness soak --target sim-kafka --schedule results/sim-kafka/soak/ID/soak-1/round.json --rounds 1",
    "harness soak --target sim-kafka --schedule round.json --shrink stuck-lso",
    "harness soak --resume results/kafka-4.4/soak/ID",
    options=OPTIONS,
    spark=True,
)
def soak(*, output: str, soak_dir: Path | None, **parameters: Any) -> int:
    """Search for unknown bugs: random workloads and faults, round after round.

    Rounds with findings, and unknown rounds, are kept. --schedule plays a round again; --shrink reduces it to the
    smallest round with the same finding, and exits with 1.

    Exit codes: 0 nothing was found but what --expect tolerates, 1 a finding, 2 an unknown round or a finding without a
    name, 254 usage or set-up error, 255 failed.
    """
    from harness.soak import campaign  # noqa: PLC0415  (slow imports, only where needed)

    progress = ConsoleProgress()
    if (shrink := parameters.pop("shrink")) and soak_dir is None:
        return _shrink(parameters, shrink, progress, output)
    with closing(progress):
        if soak_dir is None:
            result = campaign.soak(_options(parameters), progress, _print_round)
        else:
            others = options_given() - SPARK_PARAMETERS - {"output", "soak_dir"}
            leave_out(others, "--resume takes the options of the soak's folder")
            result = campaign.resume(soak_dir, parameters["spark"], progress, _print_round)
    _show(result.result(), output)
    return EXIT_CODES[result.verdict]


def _shrink(parameters: Mapping[str, Any], name: str, progress: ConsoleProgress, output: str) -> int:
    """Shrink the schedule, print the result, and write it next to the schedule; exits with 1."""
    from harness.soak.campaign import shrink_file  # noqa: PLC0415

    target, schedule = parameters["target"], parameters["schedule"]
    needed = {"--schedule FILE": schedule, "--target sim-kafka": target}
    if missing := [name for name, value in needed.items() if value is None]:
        raise UsageError(f"--shrink NAME also needs {' and '.join(missing)}")
    leave_out(options_given() - USED_BY_SHRINK, "--shrink plays --schedule on simulated brokers with its own seeds")
    shrunk = shrink_file(target, schedule, name, parameters["minutes"], progress)
    if output == JSON:
        stdout().json(shrunk)
        return EXIT_ANOMALY
    out, steps = stdout(), shrunk["words"]
    for step in steps:
        out.line(step)
    out.line(f"{shrunk['finding']}: {len(steps)} steps, shown with {shrunk['shown']} of {shrunk['of']} seeds")
    out.line(shrunk["schedule"], " (`harness run --schedule` replays it, too)" * bool(shrunk["run_schedule"]))
    return EXIT_ANOMALY


def _options(parameters: Mapping[str, Any]) -> SoakOptions:
    from harness.soak.campaign import SoakOptions  # noqa: PLC0415
    from harness.soak.causes import read_expected  # noqa: PLC0415
    from harness.soak.draw.plan import Shape  # noqa: PLC0415
    from harness.soak.play.round import read_round  # noqa: PLC0415

    if parameters["target"] is None:
        raise UsageError("give --target: see `harness targets`")
    expect, schedule = parameters["expect"], parameters["schedule"]
    if parameters["gate"] and expect:
        raise UsageError("leave out --expect: with --gate, any finding fails the soak")
    if schedule:
        leave_out(options_given().intersection(OF_DRAWN_ROUNDS), "--schedule has the whole round")
    topic_settings, broker_settings = parse_settings(parameters["settings"])
    if topic_settings:
        raise UsageError(f"--set topic.{next(iter(topic_settings))}: rounds draw the settings of topics")
    names = ("minutes", "seed", "results", "spark", "rounds", "runtime", "gate")
    return SoakOptions(
        target=patched(parameters["target"], parameters["patch"]),
        **{name: parameters[name] for name in names},
        shape=Shape(**{name: parameters[name] for name in OF_DRAWN_ROUNDS}, broker_settings=broker_settings),
        expected=read_expected(expect) if expect else {},
        schedule=read_round(schedule) if schedule else None,
    )


def _print_round(line: RoundLine) -> None:
    more = f", {line.unexplained} unexplained" if line.unexplained else ""
    found = _counts(line.findings) or "nothing"
    print_progress(f"{line.name} (seed {line.seed}): {line.verdict}: found {found}{more}")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _show(result: SoakVerdict, output: str) -> None:
    out = stdout()
    if output == JSON:
        out.json(to_json(result))
        return
    rows = []
    for line in result.rounds:
        verdict, faults = styled(line.verdict, STYLES[line.verdict]), len(line.faults)
        rows.append((line.name, line.seed, verdict, line.operations, faults, _counts(line.findings), line.unexplained))
    out.table(Table(("round", "seed", "verdict", "operations", "faults", "found", "unexplained"), rows))
    if result.audit:
        names = ("diverged", "found", "called clean", "right accusations", "wrong accusations", "harmful copies")
        out.line("audit: ", _counts({name: result.audit[name] for name in names}))
    if result.groups:
        out.line("offsets of groups: ", _counts(result.groups))
    if result.gates:
        delayed = "compaction delayed in {held} of {exposed} exposed outages, of {partitions} partitions"
        out.line("gates: ", delayed.format_map(result.gates))
    if shown := result.shown:
        out.line(f"{shown.finding}: found in {shown.in_} of {shown.of} rounds")
    for name, why in result.not_drawn.items():
        out.line("not drawn: ", name, f" ({why})")
    out.line(styled(result.verdict.upper(), STYLES[result.verdict]), f"  {result.reason}")
    out.line(f"{result.folder}/")
