"""Work through a plan, one run after another, each in its own process, until every cell has a verdict or time is up."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Final, TypeAlias

import psutil

from harness.errors import EXIT_CLEAN, EXIT_USAGE
from harness.json_codec import from_json
from harness.judge.finding import Finding
from harness.judge.verdict import EXIT_CODES, ScenarioVerdict, SoakVerdict, Verdict
from harness.nightly.ledger import Attempt, Ledger, ScenarioResult
from harness.nightly.matrix import SOAK, Matrix, Outage
from harness.run_folder.store import COMPLETE, GATES, MANIFEST, UNPROTECTED
from harness.targets import find_target

ATTEMPTS: Final = 2
"""A failed run is repeated once."""
SOAK_ENDS_S: Final = 180.0
"""A soak ends with the round that is played when its minutes are over, and with the verdict on it."""
_LATE_S = 600.0
"""A run that has not ended so long after its time is ended: it hangs."""
_END_TIMEOUT_S = 60.0
_LINES_SHOWN = 3

RunOutage: TypeAlias = "Callable[[int, int, float | None], Attempt]"
"""Runs the outage of an index, as its attempt of that number, within so many seconds."""


def work(
    ledger: Ledger,
    run_outage: RunOutage,
    say: Callable[[str], None],
    *,
    budget_s: float | None = None,
    now_s: Callable[[], float],
) -> None:
    """Run every outage that has neither a completed attempt nor two attempts; ``say`` prints a line of progress.

    ``budget_s``: no run begins that may not end in time, by the longest so far, and no soak, by its minutes; a run
    that takes longer anyway is ended. ``now_s``: seconds, like `time.monotonic`.
    """
    ends_s = None if budget_s is None else now_s() + budget_s
    attempts = ledger.attempts()
    outages = ledger.plan.matrix.outages
    for index, outage in enumerate(outages):
        former = [attempt for attempt in attempts if attempt.outage == index]
        while len(former) < ATTEMPTS and not any(attempt.failure is None or is_refused(attempt) for attempt in former):
            rest_s = None if ends_s is None else ends_s - now_s()
            if outage.soak is None:
                longest_s = max((run.took_s for run in attempts if outages[run.outage].soak is None), default=0.0)
            else:
                longest_s = outage.soak.minutes * 60 + SOAK_ENDS_S
            if rest_s is not None and rest_s <= longest_s:
                return
            say(f"[{index + 1}/{len(outages)}] {outage}{', again' if former else ''}")
            attempt = run_outage(index, len(former) + 1, rest_s)
            ledger.end(attempt)
            verdicts = ", ".join(f"{result.scenario} {result.verdict}" for result in attempt.scenario_results)
            say(f"        {attempt.took_s:.1f} s{f'  {verdicts}' if verdicts else ''}")
            if attempt.failure:
                say(f"        failed: {attempt.failure}")
            former.append(attempt)
            attempts.append(attempt)


def command_of(outage: Outage, matrix: Matrix, results: Path, time_limit_s: float | None) -> list[str]:
    """Return the arguments of ``harness`` that run an outage."""
    if outage.soak is not None:
        tolerated = outage.soak.expect or str(resources.files(__package__) / "known.toml")
        return [
            "soak", "--target", outage.target, "--minutes", f"{outage.soak.minutes:g}", "--seed", str(outage.soak.seed),
            *(["--gate"] if outage.protection == GATES else ["--expect", tolerated]), "--results", str(results),
        ]  # fmt: skip
    limit = [] if time_limit_s is None else ["--time-limit", f"{time_limit_s:.0f}"]
    return [
        "run", "--target", outage.target, "--anomaly", outage.anomalies, "--client", outage.client,
        "--nemesis", outage.nemesis, "--runtime", outage.runtime, "--timers", matrix.timers,
        *([] if outage.protection == UNPROTECTED else [f"--{outage.protection}"]),
        *(part for setting in matrix.settings for part in ("--set", setting)), *limit, "--results", str(results),
    ]  # fmt: skip


def run_process(ledger: Ledger, results: Path, index: int, number: int, time_limit_s: float | None) -> Attempt:
    """Run an outage by ``harness run`` or ``harness soak``, in a separate process, and return the attempt.

    The output of the process goes to the ledger's folder. The process is ended where this function is interrupted, and
    `_LATE_S` after its time limit.
    """
    outage = ledger.plan.matrix.outages[index]
    command = command_of(outage, ledger.plan.matrix, results, time_limit_s)
    started_s = time.monotonic()
    with (
        ledger.log_path(index, number).open("w+", errors="backslashreplace") as log,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.cli.main", *command, "--format", "json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            ledger.begin(index, number, psutil.Process(process.pid))
            stdout, _ = process.communicate(timeout=None if time_limit_s is None else time_limit_s + _LATE_S)
        except BaseException as error:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_END_TIMEOUT_S)
            process.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            stdout = ""
        log.seek(0)
        last_lines = log.read().splitlines()[-_LINES_SHOWN:]
    code = process.returncode
    ended = Attempt(index, number, code, round(time.monotonic() - started_s, 1), failure=None)
    if code not in EXIT_CODES.values() or not stdout:
        errors = [line.removeprefix("harness: ") for line in last_lines if line.startswith("harness: ")]
        return replace(ended, failure="; ".join(errors or last_lines) or f"it ended with exit code {code}")
    if outage.soak is not None:
        return with_soak_result(ended, from_json(SoakVerdict, json.loads(stdout)), outage)
    return with_scenario_results(ended, from_json(Verdict, json.loads(stdout)), outage, results)


def with_scenario_results(ended: Attempt, verdict: Verdict, outage: Outage, results: Path) -> Attempt:
    """Return an attempt with the results of the outage's scenarios, from its ``verdict.json`` and its manifest."""
    run_dir = results / outage.target / outage.anomalies / verdict.run_id
    manifest = json.loads((run_dir / MANIFEST).read_text())
    return replace(
        ended,
        failure=None if manifest["status"] == COMPLETE else manifest["failure"] or manifest["status"],
        run_dir=str(run_dir.relative_to(results)),
        version=verdict.target["version"],
        scenario_results=tuple(_scenario_result(scenario, verdict.findings) for scenario in verdict.scenarios),
        strays=tuple(str(it) for it in verdict.findings if not any(s.has(it.place) for s in verdict.scenarios)),
    )


def with_soak_result(ended: Attempt, soak: SoakVerdict, outage: Outage) -> Attempt:
    """Return an attempt with the result of its soak, from what `harness soak` printed."""
    is_passed = EXIT_CODES[soak.verdict] == EXIT_CLEAN
    bad = next((line for line in soak.rounds if line.verdict == soak.verdict and not is_passed), None)
    witness = f"{bad.name} (seed {bad.seed}): {bad.reason}" if bad else ""
    return replace(
        ended,
        run_dir=f"{outage.target}/{SOAK}/{soak.folder.rpartition('/')[2]}",
        version=find_target(outage.target).version,
        scenario_results=(ScenarioResult(SOAK, soak.verdict, soak.reason, tuple(soak.findings), witness),),
    )


def is_refused(attempt: Attempt) -> bool:
    """Return whether the run was rejected before its first broker started, as an image or a right was missing."""
    return attempt.exit_code == EXIT_USAGE


def _scenario_result(scenario: ScenarioVerdict, findings: Sequence[Finding]) -> ScenarioResult:
    here = [finding for finding in findings if scenario.has(finding.place)]
    names = dict.fromkeys(name for finding in here for name in finding.names)
    witness = str(here[0]) if here else ""
    return ScenarioResult(scenario.scenario, scenario.verdict, scenario.reason, tuple(names), witness)
