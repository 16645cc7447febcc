"""A failure is reported although an object is collected meanwhile whose finalizer raises."""

from pathlib import Path

import failure_reports
import pytest

FAILING = """
import gc

class Raising:
    again = True

    def __init__(self):
        self.me = self

    def __del__(self):
        if Raising.again:
            Raising()
        raise ValueError("in a finalizer")

def test_failing():
    Raising()
    gc.set_threshold(10, 1, 1)
    assert "one" == "another"

def test_passing():
    Raising.again = False
    gc.set_threshold(700, 10, 10)
"""


def test_a_finalizer_that_raises_ends_no_report(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(failure_reports.__file__).parent))
    pytester.makepyfile(FAILING)
    result = pytester.runpytest_subprocess("-p", "failure_reports")
    result.assert_outcomes(failed=1, passed=1, warnings=result.parseoutcomes()["warnings"])
    result.stdout.fnmatch_lines(["E*AssertionError: assert 'one' == 'another'"])
