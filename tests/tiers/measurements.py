"""The committed record of a full run: seconds and features of every test, and the commit at which all tests passed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Measurements:
    """What runs have shown, by node id of a test and by key of a shared fixture.

    ``tests``: seconds of each test, without shared fixtures. ``shared``: seconds to set up each fixture of a scope
    above function. ``features``: what each of both exercises. ``passed``: the last commit at which every test passed.
    ``failed``: the tests that did not pass in the last run of all tests, because they failed, were skipped, or were not
    reached, nor since then at its ``commit``.
    """

    tests: Mapping[str, float] = field(default_factory=dict)
    shared: Mapping[str, float] = field(default_factory=dict)
    features: Mapping[str, frozenset[str]] = field(default_factory=dict)
    passed: str | None = None
    commit: str | None = None
    failed: frozenset[str] = frozenset()

    def carried(self, commit: str, failed: frozenset[str]) -> Measurements:
        """Return these as what was seen at a commit, where all tests but the ``failed`` ones count as passed."""
        return replace(self, commit=commit, failed=failed, passed=self.passed if failed else commit)

    def repeated(self, right: frozenset[str], commit: str | None) -> Measurements:
        """Return these after some tests were run again at a commit, and those in ``right`` passed.

        Where none is left that failed in the run of all tests at that commit, every test has passed there.
        """
        if commit is None or commit != self.commit or not self.failed:
            return self
        return self.carried(commit, self.failed - right)

    def updated(self, newer: Measurements) -> Measurements:
        """Return these with the newer ones in place of older ones of the same key."""
        measured = {*newer.tests, *newer.shared}
        kept = {key: features for key, features in self.features.items() if key not in measured}
        return Measurements(
            {**self.tests, **newer.tests},
            {**self.shared, **newer.shared},
            {**kept, **newer.features},
            newer.passed or self.passed,
            newer.commit or self.commit,
            newer.failed if newer.commit else self.failed,
        )


def read(path: Path) -> Measurements:
    """Read a record; a missing file is an empty record. Raises ValueError if the file is no record."""
    if not path.exists():
        return Measurements()
    content: dict[str, Any] = json.loads(path.read_text())
    try:
        return Measurements(
            tests={f"{file}::{test}": s for file, tests in content["tests_s"].items() for test, s in tests.items()},
            shared=content["shared_fixtures_s"],
            features={key: frozenset(features) for key, features in content["features"].items()},
            passed=content["passed"],
            commit=content.get("commit"),
            failed=frozenset(content.get("failed", ())),
        )
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: not a record of test durations: {error!r}") from error


def write(path: Path, measurements: Measurements) -> None:
    """Write a record: sorted, one test a line, so that a diff shows what changed."""
    by_file: dict[str, dict[str, float]] = {}
    for test, seconds in sorted(measurements.tests.items()):
        file, _, name = test.partition("::")
        by_file.setdefault(file, {})[name] = _rounded(seconds)
    content = {
        "passed": measurements.passed,
        "commit": measurements.commit,
        "failed": sorted(measurements.failed),
        "shared_fixtures_s": {key: _rounded(seconds) for key, seconds in sorted(measurements.shared.items())},
        "features": {key: sorted(features) for key, features in sorted(measurements.features.items()) if features},
        "tests_s": by_file,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def _rounded(seconds: float) -> float:
    """Round to what matters to a selection: less differs from run to run."""
    return round(seconds, 2 if seconds < 1 else 1)
