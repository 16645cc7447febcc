"""Output to a file instead of a terminal: no bars, no colours, nothing cut; and messages of interrupts."""

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from unittest.mock import Mock

import pytest
from in_process import exit_code
from rich.console import Console

from harness.console import ConsoleProgress
from harness.errors import EXIT_INTERRUPTED, EXIT_USAGE
from harness.terminal import Table, Terminal, stdout, styled

Capture = pytest.CaptureFixture[str]
LONG = "aborted-to-committed-" * 20
STEPS = 10


def test_a_table_is_not_cut_in_a_file_and_folded_elsewhere(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stdout().table(Table(("topic", "what"), [(LONG, styled(LONG, "bold red")), ("t", "")]))
    head, first, second = capsys.readouterr().out.splitlines()
    assert (head.split(), first, second) == (["topic", "what"], f" {LONG}  {LONG}", " t")
    file = StringIO()
    Terminal(Console(file=file, force_terminal=True, width=40, color_system=None)).table(Table(("topic",), [(LONG,)]))
    assert "".join(line.strip() for line in file.getvalue().splitlines()[1:]) == LONG


def test_jars_and_reading_in_a_file_are_one_line_each(capsys: Capture) -> None:
    progress = ConsoleProgress()
    # Ivy continues to write when every jar is present: each line is reported.
    for done in (*range(STEPS + 1), STEPS, STEPS):
        progress.jars(done, STEPS)
    progress.stage("read 6 replicas")
    for done in range(STEPS + 1):
        progress.reading(done / STEPS, done)
    progress.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [line.partition(" s  ")[2] for line in captured.err.splitlines()] == ["fetch jars", "read 6 replicas"]


def test_both_have_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    file = StringIO()
    shown = Terminal(Console(file=file, force_terminal=True, width=80))
    monkeypatch.setattr("harness.console.stderr", lambda: shown)
    progress = ConsoleProgress()
    for done in (0, STEPS):
        progress.jars(done, STEPS)
    for done in (0, STEPS):
        progress.reading(done / STEPS, done)
    for step, ended in (("read", 1), ("compare", 1), ("compare", 4)):
        progress.tasks(step, ended, 4)
    progress.close()
    assert not {text for text in ("fetch jars", "compare", "4 of 4 tasks", "100%") if text not in file.getvalue()}


def test_what_a_locale_has_no_characters_for_is_escaped() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "harness.cli.main", "run", "--target", "kafka-日本é"]
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == EXIT_USAGE
    assert b"kafka-\\u65e5\\u672c\xe9" in done.stderr


LIVE = ("audit", "live", "--topic", "t", "--bootstrap-server", "h:1")


@pytest.mark.parametrize(("place", "arguments", "words"), [
    ("audit.live.compare.audit_live", LIVE, "no data was stored (--save DIR stores it)"),
    ("audit.live.compare.audit_live", (*LIVE, "--save", "kept"), "the data that was read is in kept/"),
    ("audit.live.compare.audit_quickly", (*LIVE, "--quick"), "the command has no result"),
    ("audit.judge_copies.audit_disk", ("audit", "disk", "--broker", "1=."), "the command has no result"),
    ("report.site.write_site", ("report", "--out", "site"), "the site in site is not complete: run this again"),
    ("nightly.night.work", ("nightly", "--targets", "kafka-3.9", "--anomalies", "all"), "finished runs are in res"),
    ("play.check.check_folder", ("check", "run"), "the command has no result"),
])  # fmt: skip
def test_an_interrupt_says_what_is_true_of_its_command(  # noqa: PLR0917
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path, place: str, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    monkeypatch.setattr(f"harness.{place}", Mock(side_effect=KeyboardInterrupt))
    assert exit_code(monkeypatch, *arguments) == EXIT_INTERRUPTED
    (actual,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("harness: ")]
    assert actual.startswith(f"harness: interrupted; {words}")
