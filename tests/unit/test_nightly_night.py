"""Working through a plan: retries, time budgets, nights that were cut off, and what each cell comes to."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import psutil
import pytest
from fakes.progress import NightOfRuns
from findings import soak_json

from harness import errors, json_codec, terminal
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, UNKNOWN, SoakVerdict
from harness.nightly import reports
from harness.nightly.ledger import ATTEMPTS, Attempt, Ledger, Plan, ScenarioResult
from harness.nightly.matrix import Expectation, expected, read_expectations, read_matrix
from harness.nightly.night import SOAK_ENDS_S, run_process, with_soak_result, work
from harness.nightly.reports import CellResult, Status, cell_text, exit_code, grid, results_of

STUCK = "stuck-lso"
TOLD = {"began_at": "2026-11-22T01:00:00+00:00", "commit": "c0ffee", "command": "harness nightly"}


def plan_of(**options: Any) -> Plan:
    matrix = read_matrix(None, {"targets": ["kafka-3.9"], "anomalies": [STUCK], **options}, lambda _: None)
    return Plan(matrix, expected(matrix.cells, read_expectations(None)), TOLD)


def anomalous(*names: str, scenario: str = STUCK) -> ScenarioResult:
    return ScenarioResult(scenario, ANOMALY, "it is stuck", names or (STUCK,), "the witness")


def ended(outage: int = 0, number: int = 1, *scenario_results: ScenarioResult, **more: Any) -> Attempt:
    fields: dict[str, Any] = {"run_dir": "a/run", "version": "3.9.2", "scenario_results": scenario_results, **more}
    return Attempt(outage, number, exit_code=1, took_s=20.0, failure=None, **fields)


def failed(outage: int = 0, number: int = 1, code: int = 255, why: str = "the cluster did not come up") -> Attempt:
    return Attempt(outage, number, code, 5.0, why)


def worked(ledger: Ledger, attempts: Sequence[Attempt], budget_s: float | None = None) -> NightOfRuns:
    """Work through the plan, where runs end as given, by outage and number."""
    night = NightOfRuns({(attempt.outage, attempt.number): attempt for attempt in attempts})
    work(ledger, night.run_one, night.lines.append, budget_s=budget_s, now_s=lambda: night.now)
    return night


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "nightly" / "n", plan_of(nemeses=["kill", "none"]))


@pytest.mark.parametrize("attempts", [
    [ended(0), ended(1)], [failed(0), ended(0, 2), failed(1), failed(1, 2)], [failed(0, code=254), ended(1)],
], ids=["once", "a failed run twice", "a refused run once"])  # fmt: skip
def test_outages_are_run_in_order(ledger: Ledger, attempts: list[Attempt]) -> None:
    assert worked(ledger, attempts).begun == [(attempt.outage, attempt.number) for attempt in attempts]
    assert ledger.attempts() == attempts


def test_a_night_goes_on_where_it_was_cut_off_but_begins_no_run_for_too_long(ledger: Ledger, tmp_path: Path) -> None:
    ledger.end(failed(0))
    with (ledger.path / ATTEMPTS).open("a") as file:
        file.write('{"event": "ended", "outage": 1, "num')
    assert worked(ledger, [ended(0, 2), ended(1)]).begun == [(0, 2), (1, 1)]
    ledger = Ledger.create(tmp_path / "n", plan_of(nemeses=["kill", "none"], repeats=2))
    progress = worked(ledger, [ended(index) for index in range(4)], budget_s=50.0)
    assert progress.begun == [(0, 1), (1, 1)]
    assert progress.limits == [50.0, 30.0]


def test_a_run_that_hangs_is_ended(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\ntrap '' TERM\nprintf 'harness: \\351' >&2\nexec sleep 60\n")
    hanging.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(hanging))
    for name in ("_LATE_S", "_END_TIMEOUT_S"):
        monkeypatch.setattr(f"harness.nightly.night.{name}", 0.5)
    attempt = run_process(ledger, tmp_path, 0, 1, 0.0)
    assert (attempt.exit_code, attempt.failure) == (-signal.SIGKILL, "\\xe9")


def test_a_night_that_goes_on_is_left_alone_and_read_later(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.UsageError, match=r"is still in progress \(process \d+\); end that first"):
        Ledger.reopen(ledger.path)
    monkeypatch.setattr("harness.host.leftovers.Owner.lives", lambda _: False)
    again = Ledger.reopen(ledger.path).plan
    assert (again.matrix, again.details) == (ledger.plan.matrix, ledger.plan.details)
    stored, read = ([(cell, e.verdict, e.why) for cell, e in p.expected.items()] for p in (ledger.plan, again))
    assert stored == read


@pytest.mark.parametrize(("content", "message"), [
    (None, "is not the folder of a night"),
    *((text, "is damaged") for text in ("{", "{}", '{"expected": 1}')),
    ('{"schema": 1}', r"plan\.json has schema 1, not 2: begin another night$"),
])  # fmt: skip
def test_what_is_no_night_is_refused(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    with pytest.raises(errors.UsageError, match=message):
        Ledger.reopen(tmp_path)


def test_a_run_that_was_left_is_ended(ledger: Ledger) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as run:
        process = psutil.Process(run.pid)
        ledger.begin(0, 1, process)
        plan = ledger.path / "plan.json"
        plan.write_text(re.sub(r'"started": "[^"]*"', '"started": "at another time"', plan.read_text()))
        Ledger.reopen(ledger.path)
        assert not process.is_running()


def result_of(verdict: str, *attempts: Attempt, repeats: int = 1) -> CellResult:
    """Return the result of a cell with an expected verdict; attempts are for the outages of its repeats."""
    plan = plan_of(repeats=repeats)
    (cell,) = plan.matrix.cells
    (result,) = results_of(replace(plan, expected={cell: Expectation({}, verdict, "so it is")}), attempts)
    return result


CLEAN_SAID = ScenarioResult(STUCK, CLEAN, "all is well")
UNKNOWN_SAID = ScenarioResult(STUCK, UNKNOWN, "the window did not open")
HOSTILE_SAID = replace(CLEAN_SAID, reason="<script>|`*[x](y)`\x00\x1b\u202e\ud800 end")
Night = tuple[Plan, list[CellResult], list[str]]


@pytest.mark.parametrize(("verdict", "attempts", "status", "why"), [
    (ANOMALY, [ended(0, 1, anomalous())], Status.AS_EXPECTED, "it is stuck"),
    (CLEAN, [ended(0, 1, CLEAN_SAID)], Status.AS_EXPECTED, "all is well"),
    (CLEAN, [ended(0, 1, anomalous())], Status.REGRESSED, "it is stuck"),
    (ANOMALY, [ended(0, 1, CLEAN_SAID)], Status.FIXED, "all is well"),
    (ANOMALY, [ended(0, 1, anomalous("unexplained-divergence"))], Status.OTHER_NAME,
     "unexplained-divergence: it is stuck"),
    (ANOMALY, [ended(0, 1, anomalous(STUCK, "aborted-to-committed"))], Status.OTHER_NAME,
     "stuck-lso, aborted-to-committed: it is stuck"),
    *((verdict, [ended(0, 1, UNKNOWN_SAID)], Status.UNKNOWN, UNKNOWN_SAID.reason) for verdict in (ANOMALY, CLEAN)),
    (CLEAN, [failed(), failed(0, 2)], Status.FAILED, "the cluster did not come up"),
    (CLEAN, [failed(code=254, why="no image")], Status.REFUSED, "no image"),
    (CLEAN, [], Status.NOT_RUN, "the time was used up before"),
    # A run that failed later on.
    (ANOMALY, [replace(ended(0, 1, anomalous()), failure="Spark is gone")], Status.AS_EXPECTED, "it is stuck"),
    (CLEAN, [replace(ended(0, 1, CLEAN_SAID), failure="Spark is gone")], Status.FAILED, "Spark is gone"),
])  # fmt: skip
def test_how_a_cell_stands(verdict: str, attempts: list[Attempt], status: Status, why: str) -> None:
    result = result_of(verdict, *attempts)
    assert (result.status, result.why, result.flaky) == (status, why, ())


def test_a_cell_is_as_loud_as_its_loudest_run_also_a_failed_one_and_what_failed_once_is_flaky() -> None:
    result = result_of(CLEAN, ended(0, 1, CLEAN_SAID), ended(1, 1, anomalous()), ended(2, 1, UNKNOWN_SAID), repeats=3)
    assert (result.status, result.witness) == (Status.REGRESSED, "the witness")
    assert (result.verdicts, result.repeats) == ((CLEAN, ANOMALY, UNKNOWN), 3)
    result = result_of(CLEAN, failed(), ended(0, 2, CLEAN_SAID))
    assert (result.status, result.flaky) == (Status.AS_EXPECTED, ("the cluster did not come up",))
    assert cell_text(result) == "clean (flaky)"
    stalls = replace(ended(0, 1, anomalous("stalled-replica"), run_dir="a/first"), failure="timed out")
    result = result_of(CLEAN, stalls, ended(0, 2, CLEAN_SAID))
    assert (result.status, result.witness, result.runs) == (Status.REGRESSED, "the witness", ("a/first", "a/run"))
    assert result_of(ANOMALY, stalls, ended(0, 2, anomalous())).status is Status.OTHER_NAME


def test_a_cell_has_its_share_of_the_seconds() -> None:
    plan = plan_of(anomalies=["all"])
    assert {result.took_s for result in results_of(plan, [ended()])} == {1.7}, "20 s of 12"


@pytest.mark.parametrize(("statuses", "strays", "code"), [
    ([Status.AS_EXPECTED], [], 0),
    ([], [], 2),
    ([Status.AS_EXPECTED], ["a finding in the control"], 1),
    ([Status.AS_EXPECTED, Status.REGRESSED], [], 1),
    ([Status.FIXED, Status.FAILED], [], 1),
    ([Status.OTHER_NAME], [], 1),
    ([Status.AS_EXPECTED, Status.UNKNOWN], [], 2),
    *(([status], [], 2) for status in (Status.FAILED, Status.REFUSED, Status.NOT_RUN)),
])  # fmt: skip
def test_exit_codes(statuses: list[Status], strays: list[str], code: int) -> None:
    any_result = result_of(CLEAN, ended(0, 1, CLEAN_SAID))
    assert exit_code([replace(any_result, status=status) for status in statuses], strays) == code


@pytest.fixture
def night() -> Night:
    plan = plan_of(nemeses=["kill", "none"], targets=["kafka-3.9", "kafka-4.4"], repeats=2)
    attempts = [
        ended(0, 1, anomalous()), ended(1, 1, HOSTILE_SAID), ended(2, 1, HOSTILE_SAID), failed(3),
        ended(3, 2, CLEAN_SAID), ended(4, 1, anomalous()),
        replace(ended(5, 1, CLEAN_SAID), strays=("stuck-lso: broker 1, control-0",)),
        ended(6, 1, anomalous()), failed(7), failed(7, 2),
    ]  # fmt: skip
    return plan, results_of(plan, attempts), reports.strays_of(attempts)


def test_the_grid_has_a_column_a_version(night: Night, capsys: pytest.CaptureFixture[str]) -> None:
    reports.show(terminal.stdout(), *night[1:])
    row = capsys.readouterr().out.splitlines()[1]
    assert re.split(r"  +", row.strip())[3:] == ["kill", "local", "none", "anomaly 2/2", "FIXED UPSTREAM 2/2"]
    shown = grid(night[1])
    assert shown.columns == ["kafka 3.9.2", "kafka 3.9.2"]
    rows = [(head[3], [cell_text(result) for result in row if result]) for head, row in shown.rows]
    assert rows == [("kill", ["anomaly 2/2", "FIXED UPSTREAM 2/2"]), ("none", ["clean 2/2", "FAILED 1/2 (flaky)"])]
    assert shown.rows[0][0] == (STUCK, "value", "librdkafka", "kill", "local", "none")


def test_the_summary_tells_every_cell(night: Night) -> None:
    result = json.loads(json.dumps(reports.summary(*night)))
    assert (result["exit_code"], result["cells_as_expected"], result["flaky"]) == (1, 2, 1)
    assert result["statuses"] == {"fixed upstream": 1, "failed": 1, "as expected": 2}
    assert [entry["cell"]["nemesis"] for entry in result["cells"]] == ["kill", "none", "kill", "none"]
    assert result["commit"] == "c0ffee"


def test_markdown_shows_what_is_reported_as_it_is(night: Night) -> None:
    text = reports.markdown(*night)
    assert "## Compaction: 2 of 4 cells as expected" in text
    assert "**FIXED UPSTREAM 2/2**" in text
    (line,) = [line for line in text.splitlines() if line.startswith("- **FIXED UPSTREAM**")]
    assert r"\<script\>\|\`\*\[x\](y)\`\\x00\\x1b" in line
    assert "expected anomaly (each replica's cleaner" in line
    parts = ("a finding", "control-0", "the cluster did not come up")
    assert [part in text for part in parts] == [False, True, True]


def test_junit_has_a_case_a_cell(night: Night, tmp_path: Path) -> None:
    reports.write_junit(tmp_path / "j.xml", *night[1:])
    suite = ET.parse(tmp_path / "j.xml").getroot()[0]  # noqa: S314  (our own)
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["5", "2", "1", "0"]
    cases = {(case.get("name"), child.tag): child for case in suite for child in case}
    fixed = cases["kafka-4.4 stuck-lso librdkafka kill local", "failure"]
    assert fixed.get("message") == "fixed upstream: expected anomaly"
    assert r"<script>|`*[x](y)`\x00\x1b" in (fixed.text or "")
    assert cases["kafka-4.4 stuck-lso librdkafka none local", "error"].get("type") == "failed"
    assert cases["no finding lies outside all cells", "failure"].get("type") == "stray"


SOAK_FILE = "targets = ['sim-kafka']\nanomalies = ['stuck-lso']\n[[matrix]]\n[[soak]]\nminutes = 5\n"
SOAKED = soak_json(
    {"seed": 4}, {"name": "soak-2", "seed": 5, "verdict": "anomaly", "reason": "it hangs"},
    folder="/somewhere/sim-kafka/soak/the-soak", findings={"hanging-transaction": 2},
)  # fmt: skip


@pytest.fixture
def with_soak(tmp_path: Path) -> Plan:
    (tmp_path / "m.toml").write_text(SOAK_FILE)
    matrix = read_matrix(tmp_path / "m.toml", {}, lambda _: None)
    return Plan(matrix, expected(matrix.cells, read_expectations(None)), TOLD)


def soak_ended(plan: Plan, **more: Any) -> Attempt:
    soak = json_codec.from_json(SoakVerdict, {**SOAKED, **more})
    return with_soak_result(Attempt(1, 1, 1, 330.0, None), soak, plan.matrix.outages[1])


def test_a_soak_that_finds_something_new_is_a_regression(with_soak: Plan) -> None:
    results = results_of(with_soak, [ended(0, 1, anomalous()), soak_ended(with_soak)])
    assert [result.status for result in results] == [Status.AS_EXPECTED, Status.REGRESSED]
    assert (results[1].witness, results[1].runs) == ("soak-2 (seed 5): it hangs", ("sim-kafka/soak/the-soak",))
    assert exit_code(results, []) == 1
    assert [row[0][:2] for row in grid(results).rows] == [(STUCK, "value"), ("soak", "drawn")]
    text = reports.markdown(with_soak, results, [])
    assert "**REGRESSED** sim-kafka soak drawn drawn sim: expected as-expected" in text


@pytest.mark.parametrize(("verdict", "status", "code", "text"), [
    (CLEAN, Status.AS_EXPECTED, 0, "clean"),
    (AS_EXPECTED, Status.AS_EXPECTED, 0, "as-expected"),
    (UNKNOWN, Status.UNKNOWN, 2, "UNKNOWN"),
])  # fmt: skip
def test_a_soak_is_a_cell(verdict: str, status: Status, code: int, text: str, with_soak: Plan) -> None:
    results = results_of(with_soak, [ended(0, 1, anomalous()), soak_ended(with_soak, verdict=verdict)])
    assert (results[1].status, cell_text(results[1])) == (status, text)
    assert exit_code(results, []) == code


@pytest.mark.parametrize(("spare_s", "begun"), [(0, [(0, 1)]), (1, [(0, 1), (1, 1)])])
def test_a_soak_begins_in_time(with_soak: Plan, tmp_path: Path, spare_s: int, begun: list[tuple[int, int]]) -> None:
    attempts = [ended(0), soak_ended(with_soak, verdict=CLEAN)]
    budget_s = 20.0 + 5 * 60 + SOAK_ENDS_S + spare_s
    assert worked(Ledger.create(tmp_path / "n", with_soak), attempts, budget_s=budget_s).begun == begun
