"""The hooks of test tiers: options, selection after collection, measuring, and the list of what is left out."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import pytest

from tiers import features
from tiers.changes import Change, Dependencies, UnknownChangesError, changed_since, dependencies, head_if_clean
from tiers.fixtures import is_shared, key_of, shared_fixtures, source_files
from tiers.measurements import Measurements, read, write
from tiers.meter import Meter
from tiers.selection import Candidate, Selection, select
from tiers.summary import summary

if TYPE_CHECKING:
    from collections.abc import Generator
    from collections.abc import Set as AbstractSet

NAME: Final = "tiers"
COMMIT, FULL = "commit", "full"
RECORD: Final = "tests/durations.json"
REAL: Final = "tests/real/"
TIERS: Final = "tests/tiers/"
SMALLER: Final = ("ignore", "ignore_glob", "quality_runs", "quality_kind", "mutants")
"""Options with which a run is not one of all tests, although it deselects none."""
BUDGET_S: Final = 730.0
"""By recorded seconds: 15 minutes without collection, and without what differs from machine to machine."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption(
        "--tier",
        choices=(COMMIT, FULL),
        help="commit: what a commit needs, within a budget, the default unless tests are named; full: every test",
    )
    group.addoption("--budget-s", type=float, default=BUDGET_S, help="recorded seconds that the commit tier may take")
    group.addoption("--changed-since", metavar="COMMIT", help="instead of the last commit at which every test passed")
    group.addoption("--record-durations", action="store_true", help=f"write what this run measures to {RECORD}")


def pytest_configure(config: pytest.Config) -> None:
    budget_s = config.getoption("--budget-s")
    if not (isfinite(budget_s) and budget_s >= 0):
        raise pytest.UsageError(f"--budget-s {budget_s}: not a number of seconds")
    try:
        config.pluginmanager.register(Tiers(config), NAME)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture(scope="session")
def changed_modules(request: pytest.FixtureRequest) -> frozenset[str]:
    """Return the dotted names of the modules that changed since all tests passed."""
    tiers: Tiers = request.config.pluginmanager.getplugin(NAME)
    return tiers.change.modules()


class Tiers:
    """One test session's tier."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._record = config.rootpath / RECORD
        self._measured = read(self._record)
        self._meter = Meter()
        self._selection: Selection | None = None
        # Before the run: reports of this very run may be written into the checkout.
        self._head = head_if_clean(config.rootpath, record=RECORD) if self._is_recorded else None
        self._is_restricted = False
        self._note = self._recorded = ""
        self._fixture_keys: set[str] = set()
        self._collected: frozenset[str] = frozenset()
        self._failed: set[str] = set()
        self._passed: set[str] = set()

    @property
    def _is_recorded(self) -> bool:
        return bool(self._config.getoption("--record-durations"))

    @property
    def tier(self) -> str:
        """The tier that was asked for; tests that are named on the command line all run."""
        asked: str | None = self._config.getoption("--tier")
        is_named = self._config.args_source is not pytest.Config.ArgsSource.TESTPATHS
        is_chosen = any(self._config.getoption(option, None) for option in ("keyword", "markexpr", "lf"))
        return asked or (FULL if is_named or is_chosen else COMMIT)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests of the tier."""
        self._collected = frozenset(item.nodeid for item in items)
        if self.tier == FULL:
            return
        near = dependencies(self._config.rootpath, self.change)
        candidates = [self._candidate(item, near) for item in items]
        noted = frozenset(feature for test in candidates for feature in test.features)
        self._selection = select(
            candidates,
            self._measured.shared,
            frozenset(filter(features.is_required, noted)),
            self._config.getoption("--budget-s"),
            wanted=frozenset(filter(features.is_wanted, noted)),
        )
        left_out = frozenset(self._selection.left_out)
        self._config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]

    @cached_property
    def change(self) -> Change:
        """What changed since the last commit at which every test passed; nothing if that is unknown."""
        asked = self._config.getoption("--changed-since")
        commit = asked or self._measured.passed
        try:
            if commit is None:
                raise UnknownChangesError("no run of all tests has passed yet")  # noqa: TRY301
            change = changed_since(self._config.rootpath, commit, record=RECORD)
        except UnknownChangesError as error:
            if asked:
                raise pytest.UsageError(f"--changed-since {asked}: {error}") from error
            self._note = f"unknown what changed, taken for nothing: {error}"
            return Change(frozenset())
        self._note = f"files changed since {commit[:12]}: {len(change.files)}"
        return change

    def _candidate(self, item: pytest.Item, near: Dependencies) -> Candidate:
        name = item.nodeid
        shared = shared_fixtures(item)
        keys = {name, *shared}
        noted = frozenset[str]().union(*(self._measured.features.get(key, ()) for key in keys))
        if name.startswith(REAL):
            noted |= {f"{features.FILE}={name.partition('::')[0]}"}
        words = " ".join((name.partition("::")[2], *noted))
        return Candidate(
            name,
            self._measured.tests.get(name),
            shared,
            noted,
            near.distance(source_files(item, self._config.rootpath), words),
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure a test."""
        self._meter.begin(item.nodeid)
        try:
            return (yield)
        finally:
            self._meter.end()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Measure a shared fixture."""
        if not is_shared(fixturedef):
            return (yield)
        key = key_of(request._pyfuncitem, fixturedef)
        self._meter.begin(key)
        try:
            value = yield
            self._fixture_keys.add(key)
        finally:
            self._meter.end()
        return value

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember which tests passed; a skipped one did not."""
        if report.failed or report.skipped:
            self._failed.add(report.nodeid)
        elif report.when == "call":
            self._passed.add(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the record."""
        if not self._is_recorded:
            return
        right = self._passed - self._failed
        seconds, noted = self._meter.seconds, self._meter.noted
        newer = Measurements(
            tests={test: seconds[test] for test in right if test in seconds},
            shared={key: seconds[key] for key in self._fixture_keys},
            features={key: frozenset(noted[key]) for key in noted if key in self._fixture_keys | right},
        )
        ran_everything = self._ran_everything()
        is_everything = ran_everything and exitstatus == pytest.ExitCode.OK
        if ran_everything:
            # A run that was cut off goes on with the tests that it did not reach.
            newer = replace(newer, commit=self._head, failed=self._collected - right)
        if is_everything:
            newer = replace(newer, passed=self._head)
        # Another session may have written meanwhile.
        before = Measurements(passed=self._measured.passed) if is_everything else self._carried(right)
        after = before.updated(newer).repeated(frozenset(right), self._head)
        write(self._record, after)
        outcome = f"{len(after.failed)} tests have not passed at commit {after.commit}"
        if is_everything or (after.passed and after.passed == self._head):
            outcome = f"every test passed at commit {after.passed or '(none: uncommitted changes)'}"
        self._recorded = f"recorded {len(newer.tests)} tests in {RECORD}; {outcome}"

    def _carried(self, right: AbstractSet[str]) -> Measurements:
        """Return the record, carried to this commit where all tests that depend on what changed since have passed."""
        record = read(self._record)
        if record.commit is None or self._head in (None, record.commit) or self._is_restricted:
            return record
        root = self._config.rootpath
        try:
            change = changed_since(root, record.commit, record=RECORD)
        except UnknownChangesError:
            return record
        if not all(path.endswith(".py") for path in change.files):
            return record  # tests read pages and data in ways that imports do not show
        whole = {file for file in self._named if self._tests_of(file) <= right}
        files = {PurePosixPath(test.partition("::")[0]) for test in (*record.tests, *record.failed)}
        needed = {path for path in self._depending(change) if path.match("test_*.py")}
        # A fixture brings what it uses to every test below its conftest.py; this plugin only measures them.
        brought = replace(change, files=frozenset(path for path in change.files if not path.startswith(TIERS)))
        below = {path.parent for path in self._depending(brought) if path.name == "conftest.py"}
        needed |= {file for file in files if not below.isdisjoint(file.parents)}
        if not {str(path) for path in needed if (root / path).exists()} <= whole:
            return record
        failed = frozenset(test for test in record.failed if test.partition("::")[0] not in whole)
        return record.carried(self._head, failed)

    def _depending(self, change: Change) -> set[PurePosixPath]:
        return set(map(PurePosixPath, dependencies(self._config.rootpath, change).distances))

    def _tests_of(self, file: str) -> set[str]:
        return {test for test in self._collected if test.partition("::")[0] == file}

    @property
    def _named(self) -> frozenset[str]:
        """The files that the command line names without any of their tests."""
        return frozenset(
            Path(name).resolve().relative_to(self._config.rootpath).as_posix()
            for name in self._config.args
            if name.endswith(".py") and Path(name).resolve().is_relative_to(self._config.rootpath)
        )

    def pytest_deselected(self) -> None:
        """Remember that not every test runs."""
        self._is_restricted = True

    def _ran_everything(self) -> bool:
        is_named = self._config.args_source is not pytest.Config.ArgsSource.TESTPATHS
        is_smaller = any(self._config.getoption(option, None) for option in SMALLER)
        return not (is_named or is_smaller or self._is_restricted)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List what is left out, and say what was recorded."""
        if self._selection is not None:
            terminalreporter.section("tests left out by --tier commit")
            for line in summary(self._selection, record=RECORD, note=self._note):
                terminalreporter.line(line)
        if self._recorded:
            terminalreporter.line(self._recorded)
