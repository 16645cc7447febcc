"""``harness explore``: every interleaving of small simulated clusters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.options import common
from harness.cli.options.parameters import DIRECTORY, Count, Text
from harness.console import JSON, STYLES, print_progress
from harness.judge.verdict import EXIT_CODES
from harness.schedules.operations import Operation
from harness.targets import SIMULATED
from harness.terminal import Table, stdout, styled

if TYPE_CHECKING:
    from harness.model_checking.explore.cases import AnyCase
    from harness.model_checking.explore.walk import WalkResult

MODEL, WALK = map(common.Group, ("Model", "Walk of every interleaving"))


@common.command(
    "harness explore --target sim-kafka",
    "harness explore --target sim-kafka --groups",
    "harness explore --target sim-kafka --out schedules",
)
@MODEL.option(
    "--target", Text(names=SIMULATED, metavar="NAME"), "The simulated target: sim-kafka or sim-redpanda.", required=True
)
@MODEL.option(
    "--with",
    Text(metavar="PROPOSAL"),
    "A proposal to add: coordinated, gate, isr-gate, isr-gate-markers, or a further rule of the gate; repeatable.",
    name="with_",
    multiple=True,
)
@MODEL.option("--without", Text(metavar="RULE"), "A rule to leave out; repeatable.", multiple=True)
@MODEL.flag("--groups", "Consumer groups: what each broker would answer them as their coordinator.")
@WALK.flag(
    "--faults", "Late metadata, lag in the ISR, unclean elections, lost tails, lost disks, moves; isr-gate implies it."
)
@WALK.option("--most-states", Count(1, 10**9), "Of a case.", default=10_000_000)
@WALK.flag("--first", "Stop a case at its first anomaly.", name="first_only")
@WALK.option("--processes", Count(1, 256), "Number of cases at once.", default=os.cpu_count() or 1, show_default=False)
@common.OUTPUT.option(
    "--out", DIRECTORY, "Write the schedules there, for --schedule of `harness run`, `soak` and `conform`."
)
def explore(target: str, with_: tuple[str, ...], out: Path | None, output: str, **parameters: Any) -> int:
    """Explore every interleaving of small simulated clusters: of the steps of clients, faults, cleaners and time.

    Prints each case with the size of its state graph and the shortest way to each anomaly in it. Exits
    with 1 where there is an anomaly, with 0 where there is none and every state was seen, else with 2.

    With --groups, logs are logs of __consumer_offsets, and anomalies are the effects on groups: they freeze,
    skip records, or have deleted offsets back.

    With --faults, clusters of three and four brokers with late metadata, replicas that lag inside the ISR, unclean
    elections, lost tails and disks, and moves of replicas. Proposals: isr-gate, which has the rules of the gate in the
    broker; isr-gate-markers, where only tombstones and markers wait; coordinated; and rules that the gate does not
    have. Prints the shortest way in each case.
    """
    from harness.model_checking.explore.cases import UNDER_FAULTS, cases  # noqa: PLC0415  (slow imports)
    from harness.model_checking.explore.walk import shortest, summary, walk, write_schedules  # noqa: PLC0415

    without, groups, faults = parameters["without"], parameters["groups"], parameters["faults"]
    chosen = cases(target, with_=with_, without=without, groups=groups, faults=faults)
    limits = {name: parameters[name] for name in ("processes", "most_states", "first_only")}
    walked = walk(chosen, on_progress=_print_progress, **limits)
    content, ways = summary(target, with_, walked), shortest(walked)
    if out is not None:
        schedules = ((name, case.title, steps, groups) for name, (case, steps) in ways.items())
        write_schedules(out, " with ".join([target, *with_]), schedules)
    code = EXIT_CODES[content["verdict"]]
    if output == JSON:
        stdout().json(common.envelope(**content))
    else:
        _show(content, ways=ways, of_each_case=faults or bool(UNDER_FAULTS & set(with_)))
        stdout().line(f"(exit code {code})")
    return code


def _print_progress(walked: WalkResult) -> None:
    print_progress(f"{walked.explored.states:>12,} states in {walked.took_s:.1f} s: {walked.case.title}")


def _show(
    content: dict[str, Any], ways: Mapping[str, tuple[AnyCase, tuple[Operation, ...]]], *, of_each_case: bool
) -> None:
    out = stdout()
    counted = ("states", "transitions", "depth")
    cases = [
        (case["case"], *(f"{case[name]:,}" for name in counted), styled(case["verdict"], STYLES[case["verdict"]]))
        for case in content["cases"]
    ]
    out.table(Table(("case", *counted, "verdict"), cases))
    if of_each_case:
        shown = [(name, f" ({c['case']})", steps) for c in content["cases"] for name, steps in c["ways"].items()]
    else:
        shown = [(name, "", list(map(str, steps))) for name, (_, steps) in ways.items()]
    for name, title, steps in shown:
        out.line(styled(name, STYLES["anomaly"]), f"{title} in {len(steps)} steps: {'; '.join(steps)}")
