"""Detection power: small errors in Kafka's own classes, and which of the harness' commands notices them.

    python bench/kafka_mutants.py drawn                                   the ids of a draw, and where they change Kafka
    python bench/kafka_mutants.py executed --results DIR                  which mutants each detector executes at all
    python bench/kafka_mutants.py run --results DIR [--detector none]     every mutant of the draw that was not run yet
    python bench/kafka_mutants.py run --results DIR ID                    the same for one mutant
    python bench/kafka_mutants.py run --results DIR --detector soak ID    a soak of five minutes with one mutant
    python bench/kafka_mutants.py table
    KAFKA_MUTANTS_TARGET=kafka-4.3 python bench/kafka_mutants.py run --results DIR --detector unit-tests
    KAFKA_MUTANTS_TARGET=kafka-3.9 python bench/kafka_mutants.py run --results DIR --detector passes

``kafka_mutants_java/Mutate.java`` applies operators (negated condition, off by one, skipped call, wrong operand, stale
value) to the methods of ``kafka_mutants_java/methods.toml``. Mutants are drawn at random with a fixed seed, in turn
from each area; nobody chooses them. The first draw has 42 points, the others have 21 each. Nobody runs
a draw before the checks were added that earlier draws called for.

``executed`` runs each detector once with stock classes that have a probe at each point of all draws. A mutant whose
point was not executed then cannot differ from stock Kafka, and is not run with that detector. Each mutated class has
the same probe.

``unit-tests`` are the tests that Kafka has for the mutated class (``kafka_unit_tests.py``). They are run on 4.3.1:
Maven Central has no compiled tests of 4.4.0.

``KAFKA_MUTANTS_TARGET`` names another version. It has a mutant if class, method, number and change are equal there. Its
results are in ``results/kafka-mutants-VERSION.jsonl``.

Results are lines of ``results/kafka-mutants.jsonl``, one for each mutant and detector, so that the bench can be ended
and resumed; ``--seconds`` ends it after a run. A mutant is noticed if the outcome differs from stock Kafka's: without a
fault ``clean``, and with a fault exactly the planted anomalies on the absent broker. ``named``: by a finding that stock
Kafka does not have. Run folders of noticed mutants without such a finding are kept in ``DIR/kept``.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
from dependable import ABSENT, HEALTHY, PAYLOADS
from kafka_unit_tests import run_tests, stock, tests_of

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.protect.gate.build import parts
from harness.schedules.catalog import ALL, scenarios_for
from harness.soak.causes import read_expected
from harness.soak.judge.round_verdict import NO_ANOMALIES
from harness.targets import find_target
from harness.targets.jars import jars_for

HERE = Path(__file__).resolve().parent
DRAWN_FROM = "kafka-4.4"
TARGET = os.environ.get("KAFKA_MUTANTS_TARGET", DRAWN_FROM)
AUDIT = "audit"
"""An audit of the copies of disks that a run without a fault leaves, without the history of its clients."""
PASSES = "passes"
"""Kafka's cleaner without a broker (``cleaner_passes.py``), on so many random logs."""
PASSES_CASES = 600
RUNS = (HEALTHY, "kill", "pause", "partition", "join", "catch-up")
DETECTORS = (PASSES, *RUNS, AUDIT)
SOAK = "soak"
UNIT_TESTS = "unit-tests"
TESTED = "kafka-4.3"
"""The newest version whose compiled tests are on Maven Central."""
SOAK_MINUTES = 5
KNOWN = HERE.parent / "harness" / "nightly" / "known.toml"
DRAWS = {1: (0, 42), 2: (42, 63), 3: (63, 84), 4: (84, 105), 5: (105, 126), 6: (126, 147), 7: (147, 168), 8: (168, 189)}
SEED = 46
TIME_LIMIT_S = 300


def log_of(target: str, name: str = "kafka-mutants") -> Path:
    """Return the log of a version."""
    version = "" if target == DRAWN_FROM else f"-{target.removeprefix('kafka-')}"
    return HERE.parent / "results" / f"{name}{version}.jsonl"


LOG, EXECUTED_LOG = log_of(TARGET), log_of(TARGET, "kafka-mutants-executed")
SET_ASIDE = HERE / "kafka_mutants_java" / "equivalent.toml"
REJECTED = 3
_PROBE = re.compile(rb"MUTATION POINT (\d+) EXECUTED")


class Point(NamedTuple):
    """A mutation of Kafka: its id, the line of Kafka's source, the change and the area."""

    mutant: str
    line: int
    change: str
    area: str


def mutate(*arguments: str | Path, target: str = TARGET) -> tuple[int, str]:
    """Run ``Mutate.java`` with the classes of Kafka; return its exit code and its output."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as methods:
        for area, classes in tomllib.loads((HERE / "kafka_mutants_java" / "methods.toml").read_text()).items():
            methods.writelines(f"{area} {name} {method}\n" for name in classes for method in classes[name].split())
        methods.flush()
        jars = [*parts(lambda *_: None).paths, *jars_for(find_target(target)).paths]
        command, *others = arguments
        classpath, is_another = os.pathsep.join(map(str, jars)), str(target != DRAWN_FROM).lower()
        done = subprocess.run(
            ["java", f"-Danother.version={is_another}", "-cp", classpath, HERE / "kafka_mutants_java" / "Mutate.java",
             command, methods.name, *others], stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    if done.returncode not in {0, REJECTED}:
        sys.exit(f"Mutate.java failed with exit code {done.returncode}")
    return done.returncode, done.stdout


@cache
def points(target: str) -> dict[str, Point]:
    """Return every mutation point of a version by id."""
    rows = (line.split("\t") for line in mutate("list", target=target)[1].splitlines())
    return {mutant: Point(mutant, int(line), change, area) for mutant, line, change, area in rows}


def in_turn() -> Iterator[Point]:
    """Yield every point in random order, in turn from each area."""
    areas: dict[str, list[Point]] = {}
    for point in points(DRAWN_FROM).values():
        areas.setdefault(point.area, []).append(point)
    for area, of_area in areas.items():
        random.Random(f"{SEED} {area}").shuffle(of_area)  # noqa: S311  (a draw that can be repeated)
    while any(areas.values()):
        yield from [of_area.pop() for of_area in areas.values() if of_area]


def draw(*numbers: int) -> list[Point]:
    """Return the mutants of draws."""
    every = list(islice(in_turn(), max(end for _, end in DRAWS.values())))
    drawn, there = [point for number in numbers for point in every[slice(*DRAWS[number])]], points(TARGET)
    return [point for point in drawn if point.mutant in there and there[point.mutant].change == point.change]


def add_probe(folder: Path) -> None:
    """Compile the class of the probe into a folder of patched classes."""
    subprocess.run(["javac", "--release", "11", "-d", folder, HERE / "kafka_mutants_java" / "Reached.java"], check=True)


@cache
def commit() -> str:
    """Return the checkout's commit, with a mark where other files than results were changed since."""
    git = ["git", "-C", str(HERE.parent)]
    head, changed = (
        subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout.strip()
        for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", ".", ":!results", ":!docs"])
    )
    return f"{head}-dirty" if changed else head


def set_aside() -> dict[str, str]:
    """Return the reasons by id of mutants that change nothing that is stored or served."""
    return tomllib.loads(SET_ASIDE.read_text())


def read(log: Path) -> list[dict[str, Any]]:
    """Return the lines of a log."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def append(log: Path, line: dict[str, Any]) -> None:
    """Append a line to a log."""
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")


def run_folder(results: Path) -> Path:
    """Return the folder of this process' last run: several may share ``results``."""
    return results / f"run-{os.getpid()}"


def one_run(patch: Path, detector: str, results: Path) -> tuple[dict[str, Any], set[int]]:
    """Run a detector on patched classes; return the outcome, and the numbers of the points that were executed."""
    shutil.rmtree(run_folder(results), ignore_errors=True)
    arguments = ["--target", TARGET, "--patch", str(patch), "--anomaly", ALL, "--nemesis", detector, "--seed", "1",
                 "--runtime", "local", "--time-limit", str(TIME_LIMIT_S)]  # fmt: skip
    outcome = command("run", *arguments, "--results", str(run_folder(results)))
    logs = run_folder(results).rglob("server.log")
    executed = {int(number) for log in logs for number in _PROBE.findall(log.read_bytes())}
    return outcome, executed


def command(*arguments: str) -> dict[str, Any]:
    """Run a command of the harness; return its exit code, seconds and verdict."""
    started_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", *arguments, "--format", "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    took_s = round(time.monotonic() - started_s, 1)
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        verdict = {}
    return {"exit_code": done.returncode, "took_s": took_s, "verdict": verdict, "errors": done.stderr[-600:]}


def in_isolation(patch: Path) -> dict[str, Any]:
    """Run the cleaner's passes on patched classes; a difference names itself."""
    started_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, HERE / "cleaner_passes.py", "--target", TARGET, "--patch", patch, "--cases", str(PASSES_CASES),
         "--most", "1"], capture_output=True, text=True, check=False,
    )  # fmt: skip
    differences = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    if done.returncode and not differences:
        sys.exit(f"cleaner_passes.py failed: {done.stderr[-600:]}")
    outcome = {"exit_code": done.returncode, "verdict": {"verdict": "anomaly" if differences else "clean"}}
    return {
        "took_s": round(time.monotonic() - started_s, 1),
        "executed": [int(number) for number in _PROBE.findall(done.stdout.encode())],
        **judgement(
            outcome,
            noticed=bool(differences),
            named={"difference"} if differences else (),
            reasons=[line.partition(": ")[2][:400] for line in differences],
        ),
    }


def soaked(patch: Path, results: Path) -> dict[str, Any]:
    """Soak patched classes; return the row of the soak."""
    shutil.rmtree(run_folder(results), ignore_errors=True)
    arguments = ["--target", TARGET, "--patch", str(patch), "--minutes", str(SOAK_MINUTES), "--runtime", "local"]
    outcome = command("soak", *arguments, "--expect", str(KNOWN), "--results", str(run_folder(results)))
    verdict = outcome["verdict"]
    return {
        "took_s": outcome["took_s"],
        "executed": any(_PROBE.search(log.read_bytes()) for log in run_folder(results).rglob("server.log")),
        **judgement(
            outcome,
            noticed=outcome["exit_code"] != EXIT_CLEAN,
            named=set(verdict.get("findings", {})) - read_expected(KNOWN).keys() - NO_ANOMALIES,
            reasons=[verdict["reason"][:400]] if verdict else [],
        ),
    }


def unit_tested(mutant: str, patch: Path) -> dict[str, Any]:
    """Run Kafka's tests of the mutated class; return the tests that fail, but not on stock classes."""
    started_s = time.monotonic()
    tests = tests_of(mutant.partition(".")[0], find_target(TARGET).version)
    if not tests:
        sys.exit(f"Maven Central has no compiled tests of {mutant} for {TARGET}")
    done, of_stock = run_tests(TARGET, tests, patch), stock(TARGET, tests)
    failed = sorted(done.failed - of_stock.failed)
    noticed = bool(failed) or not done.ended or done.tests < of_stock.tests
    text = f"{len(failed)} fail" if done.ended else "no end"
    outcome = {"exit_code": int(noticed), "verdict": {"verdict": text if noticed else "pass"}}
    return {
        "took_s": round(time.monotonic() - started_s, 1),
        "executed": bool(_PROBE.search(done.printed)),
        **judgement(outcome, noticed=noticed, named=(), reasons=failed[:4]),
    }


def judgement(
    outcome: dict[str, Any],
    *,
    noticed: bool,
    named: Iterable[str],
    reasons: list[str],
    missing: Sequence[str] = (),
    violated: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what the log has about the outcome of any detector."""
    verdict = outcome["verdict"]
    return {
        "exit_code": outcome["exit_code"],
        "verdict": verdict.get("verdict", "failed"),
        "noticed": noticed,
        "named": sorted(named),
        "missing": list(missing),
        "violated": list(violated),
        "reasons": reasons,
        "errors": "" if verdict else outcome["errors"],
    }


def judged(outcome: dict[str, Any], detector: str) -> dict[str, Any]:
    """Return how an outcome differs from stock Kafka's."""
    verdict, code = outcome["verdict"], outcome["exit_code"]
    findings, scenarios = verdict.get("findings", []), verdict.get("scenarios", [])
    of_fault = detector not in {HEALTHY, AUDIT}
    names = [planted_by(finding, scenarios) if of_fault else None for finding in findings]
    others = [finding for finding, name in zip(findings, names, strict=True) if name is None]
    expected = {s.name for s in scenarios_for(ALL, find_target(TARGET).group_protocols)} if of_fault else set()
    missing = sorted(expected - set(filter(None, names)))
    violated = [row["guarantee"] for row in verdict.get("guarantees", []) if row["holds"] is False]
    return judgement(
        outcome,
        noticed=bool(others or missing) or code != (EXIT_ANOMALY if of_fault else EXIT_CLEAN),
        named={finding["anomaly"] for finding in others},
        reasons=sorted({row["reason"][:400] for row in scenarios if row["verdict"] == "unknown"})[:4],
        missing=missing,
        violated=violated,
    )


def planted_by(finding: dict[str, Any], scenarios: list[dict[str, Any]]) -> str | None:
    """Return the scenario that looks for a finding; None for any other finding."""
    for row in scenarios:
        is_here = finding["topic"] == row["topic"] and finding["partition"] in row["partitions"]
        if is_here and finding["anomaly"] == PAYLOADS[row["scenario"]] and finding["broker"] == ABSENT:
            return None if finding["candidates"] else str(row["scenario"])
    return None


def audited(results: Path) -> dict[str, Any]:
    """Audit the copies of disks that a run has left, without its history of clients."""
    copies = sorted(run_folder(results).rglob("brokers/*/after-rejoin"))
    brokers = [word for copy in copies for word in ("--broker", f"{copy.parent.name}={copy}")]
    return command("audit", "disk", *brokers, "--topic", "*")


@click.group()
def main() -> None:
    """Measure the harness' power of detection."""


@main.command("drawn")
@click.option("--draw", "number", type=click.Choice(list(DRAWS)), default=1)
def show_drawn(number: int) -> None:
    """Print the mutants of a draw."""
    for point in draw(number):
        print(f"{point.mutant}  ({point.area}, line {point.line}: {point.change})")


@main.command()
@click.argument("mutant")
def show(mutant: str) -> None:
    """Print a mutant and its results."""
    print(*points(TARGET)[mutant])
    for line in read(LOG):
        if line["mutant"] == mutant:
            print(json.dumps(line, indent=1))


@main.command()
@click.option("--results", type=click.Path(path_type=Path), required=True)
@click.option("--detector", "detectors", multiple=True, default=(PASSES, *RUNS))
def executed(results: Path, detectors: tuple[str, ...]) -> None:
    """Run each detector on stock classes with probes, and log which mutants of all draws it executes."""
    drawn = [point.mutant for point in draw(*DRAWS)]
    patch = results / "probes"
    shutil.rmtree(patch, ignore_errors=True)
    add_probe_for(drawn, patch)
    for detector in detectors:
        if detector == PASSES:
            row = outcome = in_isolation(patch)
            numbers = set(outcome["executed"])
        else:
            outcome, numbers = one_run(patch, detector, results)
            row = judged(outcome, detector)
        ids = [drawn[number] for number in sorted(numbers)]
        append(EXECUTED_LOG, {"detector": detector, **row, "executed": ids, "commit": commit()})
        executed_of = f"{len(ids)} of {len(drawn)} executed"
        print(f"{detector}: {row['verdict']}, {executed_of}, {outcome['took_s']} s", flush=True)
        if detector == HEALTHY:
            row = judged(audited(results), AUDIT)
            append(EXECUTED_LOG, {"detector": AUDIT, "executed": ids, "commit": commit(), **row})


def add_probe_for(mutants: Sequence[str], patch: Path) -> None:
    """Write stock classes with probes at these points."""
    add_probe(patch)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(mutants))
        file.flush()
        mutate("probe", file.name, patch)


@main.command()
@click.argument("mutants", nargs=-1)
@click.option("--draw", "number", type=click.Choice(list(DRAWS)), default=1)
@click.option("--detector", "detectors", multiple=True, default=DETECTORS)
@click.option("--results", type=click.Path(path_type=Path), required=True)
@click.option("--seconds", type=float, default=float("inf"), help="Start no further run after this time.")
def run(mutants: tuple[str, ...], number: int, detectors: tuple[str, ...], results: Path, seconds: float) -> None:
    """Run mutants of a draw with each detector that executes them; those given by id once more."""
    ends_s = time.monotonic() + seconds
    done = set() if mutants else {(line["mutant"], line["detector"]) for line in read(LOG)}
    reached = {line["detector"]: set(line["executed"]) for line in read(EXECUTED_LOG)}
    aside = set_aside().keys() | {line["mutant"] for line in read(LOG) if line["verdict"] == "rejected"}
    with_audit = AUDIT in detectors
    for detector in (name for name in detectors if name != AUDIT):
        for mutant in mutants or [point.mutant for point in draw(number) if point.mutant not in aside]:
            if (mutant, detector) in done or mutant not in reached.get(detector, {mutant}):
                continue
            if time.monotonic() > ends_s:
                return
            one_mutant(mutant, detector, results, with_audit=with_audit)


@main.command()
@click.option("--results", type=click.Path(path_type=Path), required=True)
@click.option("--seed", default=SEED, show_default=True)
@click.option("--count", default=8, show_default=True)
def sample(results: Path, seed: int, count: int) -> None:
    """Run some of the mutants that a run without a fault noticed before; exit with 1 if it does not notice them now."""
    last = {line["mutant"]: line["noticed"] for line in read(LOG) if line["detector"] == HEALTHY}
    noticed = sorted(mutant for mutant, is_noticed in last.items() if is_noticed)
    chosen = random.Random(seed).sample(noticed, min(count, len(noticed)))  # noqa: S311
    missed = [mutant for mutant in chosen if not one_mutant(mutant, HEALTHY, results, with_audit=False, log=None)]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} noticed; missed: {missed}")
    sys.exit(1 if missed or not chosen else 0)


def one_mutant(mutant: str, detector: str, results: Path, *, with_audit: bool, log: Path | None = LOG) -> bool:
    """Run a detector on a mutant, and audit what the run leaves; log both. Return whether the run noticed it."""
    patch = results / f"mutant-{os.getpid()}"
    shutil.rmtree(patch, ignore_errors=True)
    add_probe(patch)
    code, _ = mutate("mutate", mutant, patch)
    line: dict[str, Any] = {"mutant": mutant, "detector": detector, "commit": commit()}
    if code == REJECTED:
        append(LOG, {**line, "verdict": "rejected", "noticed": False, "named": []})
        print(f"{mutant} {detector}: the JVM's verifier rejects the class", flush=True)
        return False
    if detector == PASSES:
        outcome = in_isolation(patch)
        line |= {**outcome, "executed": bool(outcome["executed"])}
    elif detector == SOAK:
        line |= soaked(patch, results)
    elif detector == UNIT_TESTS:
        line |= unit_tested(mutant, patch)
    else:
        outcome, numbers = one_run(patch, detector, results)
        line |= {"took_s": outcome["took_s"], "executed": bool(numbers), **judged(outcome, detector)}
    if log is not None:
        append(log, line)
    summary = f"{line['verdict']} {line['named']} {line['reasons'][:1]} {line['took_s']} s"
    print(f"{mutant} {detector}: {summary}", flush=True)
    if line["noticed"] and not line["named"] and detector not in {PASSES, UNIT_TESTS}:
        kept = results / "kept" / f"{mutant}-{detector}"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(run_folder(results), kept, symlinks=True)
    if with_audit and detector == HEALTHY and any(run_folder(results).rglob("brokers/*/after-rejoin")):
        outcome = audited(results)
        of_audit = {**line, "detector": AUDIT, "took_s": outcome["took_s"], **judged(outcome, AUDIT)}
        append(LOG, of_audit)
        print(f"{mutant} {AUDIT}: {of_audit['verdict']} {of_audit['named']} {of_audit['reasons'][:1]}", flush=True)
    return bool(line["noticed"])


@main.command()
@click.option("--draw", "number", type=click.Choice(list(DRAWS)), default=1)
def table(number: int) -> None:
    """Print the table of a draw in Markdown, and the sums."""
    reached = {line["detector"]: set(line["executed"]) for line in read(EXECUTED_LOG)}
    lines = {(line["mutant"], line["detector"]): line for line in (*read(log_of(TESTED)), *read(LOG))}
    aside = set_aside()
    ours = [name for name in (*DETECTORS, SOAK) if name in reached or any(detector == name for _, detector in lines)]
    names = [*ours, UNIT_TESTS]
    print(f"| Mutant | Change | {' | '.join(names)} |\n|{'---|' * (len(names) + 2)}")
    sums: Counter[str] = Counter()
    for point in draw(number):
        cells, of_mutant = [], [lines[point.mutant, name] for name in ours if (point.mutant, name) in lines]
        for name in names:
            line = lines.get((point.mutant, name))
            if line is None:
                cells.append("-" if point.mutant not in reached.get(name, {point.mutant}) else "not run")
            elif line["verdict"] == "rejected" or point.mutant in aside:
                cells.append("rejected" if line["verdict"] == "rejected" else "equivalent")
            else:
                cells.append(", ".join(line["named"]) or (line["verdict"] if line["noticed"] else "not noticed"))
        print(f"| `{point.mutant}` | {point.change} | {' | '.join(cells)} |")
        sums["drawn"] += 1
        if any(line["verdict"] == "rejected" for line in of_mutant):
            sums["rejected by the JVM"] += 1
        elif point.mutant in aside:
            sums["set aside"] += 1
        elif not any(point.mutant in ids for ids in reached.values()):
            sums["never executed"] += 1
        elif not of_mutant:
            sums["not run"] += 1
        else:
            sums["run"] += 1
            sums["noticed"] += any(line["noticed"] for line in of_mutant)
            sums["named"] += any(line["named"] for line in of_mutant)
    print("\n" + ", ".join(f"{name}: {count}" for name, count in sums.items()))
    for mutant, reason in aside.items():
        print(f"- `{mutant}`: {reason}")


if __name__ == "__main__":
    main()
