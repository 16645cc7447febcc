"""`harness` in this process, where a test can replace what a command uses."""

import signal
import sys

import pytest

from harness.cli import main as cli


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["harness", *arguments])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code
