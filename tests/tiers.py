"""Which tests run where none is named on the command line, and which run side by side.

``python -m pytest`` runs the commit tier: every test in ``tests/unit``, and of the other folders the tests marked
``commit``; where that marker has texts, the cases whose parameters have one of them in their id. ``--full`` runs every
test. ``--part K/N`` runs the Kth of N parts of either: every Nth test file in alphabetical order. Tests that are named,
by path, ``-k``, ``-m`` or ``--lf``, run whether they are marked or not.

Where no test is named, two processes run the tests. One has all of ``tests/real``, so that at most one test at a time
starts brokers and changes this machine's network. Files of the other folders go to whichever process is free.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

PROCESSES: Final = 2
UNIT: Final = "tests/unit/"
REAL: Final = "tests/real/"
CHOICES: Final = ("keyword", "markexpr", "lf", "failedfirst")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--full", action="store_true", help="run every test, not the commit tier alone")
    group.addoption("--part", metavar="K/N", default="1/1", help="run the Kth of N parts: every Nth test file")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "commit(*texts): the commit tier runs this test, or its cases with such an id")
    if not hasattr(config, "workerinput") and names_tests(config):
        config.option.full = True  # the worker processes get the same options
    part_of(config)


def names_tests(config: pytest.Config) -> bool:
    is_named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    return is_named or any(config.getoption(option, None) for option in CHOICES)


def part_of(config: pytest.Config) -> slice:
    """Return which of the sorted test files run. Raises `pytest.UsageError` where ``--part`` is not one of N parts."""
    text = config.getoption("--part")
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    number, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= count:
        raise pytest.UsageError(f"--part {text}: give K/N, with K from 1 to N")
    return slice(number - 1, None, count)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier and of the part, those on real brokers first."""
    files = set(sorted({file_of(item.nodeid) for item in items})[part_of(config)])
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        is_in_tier = config.option.full or item.nodeid.startswith(UNIT) or is_marked(item)
        (kept if is_in_tier and file_of(item.nodeid) in files else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = sorted(kept, key=lambda item: not item.nodeid.startswith(REAL))


def is_marked(item: pytest.Item) -> bool:
    """Return whether a test is marked ``commit``, as a whole or by a text in the id of its parameters."""
    case = getattr(item, "callspec", None)
    return any(
        not marker.args or (case is not None and any(text in case.id for text in marker.args))
        for marker in item.iter_markers("commit")
    )


def file_of(test: str) -> str:
    return test.partition("::")[0]


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    return 0 if names_tests(config) else PROCESSES


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneRealTestAtATime:
    return OneRealTestAtATime(config, log)


class OneRealTestAtATime(LoadScopeScheduling):  # type: ignore[misc]
    """Give all of ``tests/real`` to one process, and other files to whichever process is free."""

    def _split_scope(self, nodeid: str) -> Any:
        return REAL if nodeid.startswith(REAL) else file_of(nodeid)
