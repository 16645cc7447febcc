"""``harness explore`` and ``harness conform``: the model's interleavings, and the model compared with real brokers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cli.options import parameters as kinds
from harness.cli.options.common import OUTPUT, Group, command, envelope, leave_out, options_given
from harness.console import JSON, STYLES, ConsoleProgress, print_progress
from harness.judge.verdict import ANOMALY, CLEAN, EXIT_CODES, decide
from harness.schedules.operations import Operation
from harness.targets import SIMULATED, find_target, patched
from harness.terminal import Table, stdout, styled

if TYPE_CHECKING:
    from harness.model_checking.conform.conform import Outcome
    from harness.model_checking.explore.cases import AnyCase
    from harness.model_checking.explore.walk import WalkResult

MODEL, WALK, SCHEDULES = map(Group, ("Model", "Walk of every interleaving", "Schedules"))
COUNT = kinds.Count(0, 10_000)
# fmt: off
EXPLORE_OPTIONS = (
    MODEL.option("--target", kinds.Text(names=SIMULATED, metavar="NAME"),
                 "The simulated target: sim-kafka or sim-redpanda.", required=True),
    MODEL.option("--with", kinds.Text(metavar="PROPOSAL"),
                 "A proposal to add: coordinated, gate, isr-gate, isr-gate-markers, or a further rule of the gate; "
                 "repeatable.", name="with_", multiple=True),
    MODEL.option("--without", kinds.Text(metavar="RULE"), "A rule to leave out; repeatable.", multiple=True),
    MODEL.flag("--groups", "Consumer groups: what each broker would answer them as their coordinator."),
    WALK.flag("--faults", "Late metadata, lag in the ISR, unclean elections, lost tails, lost disks, moves; isr-gate "
              "implies it."),
    WALK.option("--most-states", kinds.Count(1, 10**9), "Of a case.", default=10_000_000),
    WALK.flag("--first", "Stop a case at its first anomaly.", name="first_only"),
    WALK.option("--processes", kinds.Count(1, 256), "Number of cases at once.", default=os.cpu_count() or 1,
                show_default=False),
    OUTPUT.option("--out", kinds.DIRECTORY,
                  "Write the schedules there, for --schedule of `harness run`, `soak` and `conform`."),
)
CONFORM_OPTIONS = (
    SCHEDULES.option("--target", kinds.Text(kinds.TARGET.check, kinds.TARGET.names, "NAME|PATH"),
                     "Version (`harness targets`), or path of a Kafka build.", required=True),
    SCHEDULES.option("--patch", kinds.PATCH, "Classes to put first on the brokers' class path."),
    SCHEDULES.option("--schedules", COUNT, "Number of random schedules.", default=20),
    SCHEDULES.option("--group-schedules", COUNT, "Number of random schedules of consumer groups.", default=20),
    SCHEDULES.option("--seed", kinds.SEED, "Seed of random schedules.", default=0),
    SCHEDULES.option("--transactions", kinds.Count(1, 2),
                     "Version of transactions; 2 needs Kafka 4.0 or later.", default=1),
    SCHEDULES.option("--schedule", kinds.FILE_TO_READ,
                     "Run only this schedule: of `harness explore --out`, or a soak's round with one partition."),
)
# fmt: on


@command(
    "harness explore --target sim-kafka",
    "harness explore --target sim-kafka --groups",
    "harness explore --target sim-kafka --out schedules",
    options=EXPLORE_OPTIONS,
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

    def progress(walked: WalkResult) -> None:
        print_progress(f"{walked.explored.states:>12,} states in {walked.took_s:.1f} s: {walked.case.title}")

    kinds.raise_unless_writable(folder=out)
    chosen = cases(target, with_=with_, without=without, groups=groups, faults=faults)
    limits = {name: parameters[name] for name in ("processes", "most_states", "first_only")}
    walked = walk(chosen, on_progress=progress, **limits)
    content, ways = summary(target, with_, walked), shortest(walked)
    if out is not None:
        write_schedules(out, " with ".join([target, *with_]), ways, of_groups=groups)
    code = EXIT_CODES[content["verdict"]]
    if output == JSON:
        stdout().json(envelope(**content))
    else:
        _show_walks(content, ways=ways, of_each_case=faults or bool(UNDER_FAULTS & set(with_)))
        stdout().line(f"(exit code {code})")
    return code


def _show_walks(
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


@command(
    "harness conform --target kafka-4.4 --transactions 2",
    "harness conform --target kafka-3.9 --schedules 5 --seed 7",
    "harness conform --target kafka-4.4 --schedule schedules/stuck-lso.json",
    options=CONFORM_OPTIONS,
)
def conform(*, target: str, patch: Path | None, schedule: Path | None, output: str, **numbers: int) -> int:
    """Compare the model with real brokers, replica by replica after every step.

    Runs the known schedules of each anomaly, then random schedules, on one cluster; the same for consumer groups and
    their coordinators.

    Exit codes: 0 both agree to the end, 1 they differ, 2 brokers could not run a schedule to its end, 254 usage or
    set-up error, 255 failed.
    """
    from harness.model_checking.conform.conform import conform as compare  # noqa: PLC0415
    from harness.model_checking.conform.conform import outcomes_json  # noqa: PLC0415  (slow imports, only where needed)

    if schedule:
        leave_out(options_given() & {"schedules", "group_schedules", "seed"}, "--schedule is the only schedule")
    name = find_target(patched(target, patch)).name
    with closing(ConsoleProgress()) as progress:
        outcomes, failure = compare(name, Path.cwd(), progress, schedule_file=schedule, **numbers)
    disagreeing = [outcome.schedule.case for outcome in outcomes if outcome.disagreements]
    verdict, _ = decide(disagreeing, [failure] if failure else [], "every step agrees")
    if output == JSON:
        stdout().json(envelope(**outcomes_json(verdict, name, outcomes, failure)))
    else:
        _show_outcomes(outcomes, failure, verdict)
    return EXIT_CODES[verdict]


def _show_outcomes(outcomes: Sequence[Outcome], failure: str | None, verdict: Any) -> None:
    from harness.model_checking.conform.picture import shown  # noqa: PLC0415  (slow imports, only where needed)

    out = stdout()
    for outcome in outcomes:
        style = STYLES[ANOMALY if outcome.disagreements else CLEAN]
        agreed = styled(f"{outcome.agreed} of {len(outcome.schedule.steps)} steps agree", style)
        out.line(f"{outcome.schedule.case}: ", agreed)
        if outcome.disagreements:
            for number, step in enumerate(outcome.schedule.operations[: outcome.agreed + 1], 1):
                out.line(f"  {number}. {step}")
        for other in outcome.disagreements:
            out.line(f"  broker {other.broker} after step {other.number}, {other.step}:")
            actual = ["the broker:", *shown(other.actual)] if other.actual else []
            for line in (*other.differences, "the model:", *shown(other.expected), *actual):
                out.line(f"    {line}")
    if failure:
        out.line(f"not completed: {failure}")
    steps = sum(outcome.agreed for outcome in outcomes)
    out.line(f"{len(outcomes)} schedules, {steps} steps agree (exit code {EXIT_CODES[verdict]})")
