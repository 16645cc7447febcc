"""Failures are formatted without collecting garbage meanwhile.

Before Python 3.11.8 `ast.parse` fails with a SystemError where another one begins and ends inside it (gh-106905), and
pytest then ends with an INTERNALERROR. It parses the source of each failure. If that collects an object whose finalizer
raises, the traceback of this second exception is formatted, for which Python 3.11 parses a line.
"""

import gc
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make the report of a test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
