"""A small night on real brokers: killed in the middle, gone on with, and with a wrong expectation that must fail."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from sandbox import STAGE_S, Ran, Sandbox, wait_until

from harness.errors import EXIT_ANOMALY

CELLS = {nemesis: f"kafka-3.9 stuck-lso librdkafka {nemesis} local" for nemesis in ("kill", "none")}
WRONG = """
[[expect]]
anomalies = ["stuck-lso"]
nemeses = ["none"]
verdict = "anomaly"
why = "wrong on purpose"
"""


@pytest.fixture(scope="module")
def night(make_sandbox: Callable[[str], Sandbox]) -> tuple[Ran, Path, Sandbox]:
    """Kill the night in its second run, and resume it."""
    sandbox = make_sandbox("night")
    (sandbox.root / "wrong.toml").write_text(WRONG)
    matrix = 'targets = ["kafka-3.9"]\nanomalies = ["stuck-lso"]\nnemeses = ["kill", "none"]\n'
    (sandbox.root / "matrix.toml").write_text(matrix)
    first = sandbox.start("nightly", "matrix.toml", "--expectations", "wrong.toml")

    def attempts() -> list[str]:
        files = sandbox.results.glob("nightly/*/attempts.jsonl")
        return [line for path in files for line in path.read_text().splitlines()]

    wait_until(lambda: len(attempts()) == 3, 2 * STAGE_S, "the second run to begin")
    first.kill()
    (folder,) = sandbox.results.glob("nightly/*")
    ran = sandbox.start("nightly", "--resume", str(folder), "--junit", "j.xml", "--markdown", "s.md").end()
    return ran, folder, sandbox


def test_what_is_not_as_expected_fails_and_is_named(night: tuple[Ran, Path, Sandbox]) -> None:
    ran, folder, _ = night
    assert ran.code == EXIT_ANOMALY, ran.output
    assert f"FIXED UPSTREAM {CELLS['none']}: expected anomaly: every replica had it and removed it" in ran.stdout
    assert CELLS["kill"] not in ran.stdout
    assert str(folder) in ran.stdout


def test_a_night_that_was_killed_goes_on_where_it_was(night: tuple[Ran, Path, Sandbox]) -> None:
    _, folder, sandbox = night
    lines = [json.loads(line) for line in (folder / "attempts.jsonl").read_text().splitlines()]
    expected = [("began", 0), ("ended", 0), ("began", 1), ("began", 1), ("ended", 1)]
    assert [(line["event"], line["outage"]) for line in lines] == expected
    sandbox.wait_until_nothing_is_left()


def test_summaries_say_the_same(night: tuple[Ran, Path, Sandbox]) -> None:
    _, folder, sandbox = night
    content = json.loads((folder / "summary.json").read_text())
    statuses = {cell["cell"]["nemesis"]: cell["status"] for cell in content["cells"]}
    assert statuses == {"kill": "as expected", "none": "fixed upstream"}
    (right, _) = content["cells"]
    assert re.search(r"read_committed is frozen at \d+, high watermark", right["witness"])
    for run in right["runs"]:
        assert json.loads((sandbox.results / run / "verdict.json").read_text())["verdict"] == "anomaly"
    cases = ET.parse(sandbox.root / "j.xml").getroot().iter("testcase")  # noqa: S314  (our own)
    children = {case.get("name"): [child.tag for child in case] for case in cases}
    assert children == {CELLS["kill"]: [], CELLS["none"]: ["failure"]}
    assert "## Compaction: 1 of 2 cells as expected" in (sandbox.root / "s.md").read_text()


def test_a_finished_night_runs_nothing_again(night: tuple[Ran, Path, Sandbox]) -> None:
    _, folder, sandbox = night
    before = (folder / "attempts.jsonl").read_text()
    assert sandbox.call("nightly", "--resume", str(folder)).code == EXIT_ANOMALY
    assert (folder / "attempts.jsonl").read_text() == before
