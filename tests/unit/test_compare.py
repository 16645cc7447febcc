"""``harness compare``: what differs between two stored runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from click.testing import CliRunner
from test_site import stored

from harness.cli.main import cli
from harness.errors import EXIT_CLEAN, UsageError
from harness.judge.verdict import ANOMALY, CLEAN

if TYPE_CHECKING:
    from pathlib import Path

SERVED = "broker 2 will never deliver t-0 past offset 0 to read_committed consumers"


def test_runs_of_any_kind_are_compared(tmp_path: Path) -> None:
    before = stored(tmp_path, 1, CLEAN, jars={"kafka:4.4.0": "beef"})
    after = stored(tmp_path, 2, ANOMALY, "4.3.1", nemesis="pause", jars={"kafka:4.3.1": "cafe"})
    ran = CliRunner().invoke(cli, ["compare", str(before), str(after), "--format", "json"], catch_exceptions=False)
    assert ran.exit_code == EXIT_CLEAN
    content = json.loads(ran.stdout)
    assert content["verdicts"] == [{"name": "stuck-lso", "before": "clean", "after": "anomaly", "differs": True}]
    assert content["findings"] == [
        {"name": "stuck-lso on broker 2, t-0", "before": None, "after": SERVED, "differs": True}
    ]
    assert [(one["name"], one["before"], one["after"]) for one in content["settings"]] == [
        ("target.name", "kafka-4.4", "kafka-4.3"),
        ("target.version", "4.4.0", "4.3.1"),
        ("nemesis", "kill", "pause"),
    ]


def test_what_is_in_neither_run_is_said_in_a_line(tmp_path: Path) -> None:
    paths = [str(stored(tmp_path, day, CLEAN)) for day in (1, 2)]
    ran = CliRunner().invoke(cli, ["compare", *paths], catch_exceptions=False)
    assert "stuck-lso  clean   clean" in ran.stdout
    assert "findings: none in either run" in ran.stdout
    assert "settings: none differ" in ran.stdout


def test_a_run_without_a_verdict_is_rejected(tmp_path: Path) -> None:
    before, after = (stored(tmp_path, day, CLEAN) for day in (1, 2))
    (after / "verdict.json").unlink()
    ran = CliRunner().invoke(cli, ["compare", str(before), str(after)], standalone_mode=False)
    assert isinstance(ran.exception, UsageError)
    assert f"{after} has no verdict.json: it is in progress, or was interrupted" in str(ran.exception)
