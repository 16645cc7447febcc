"""The runs in a results folder, with what a site shows of them: those with a verdict, and those that go on."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import iglob
from typing import TYPE_CHECKING, Any, Final

from harness.host import leftovers
from harness.json_codec import from_json
from harness.judge.verdict import Verdict
from harness.report.headlines import headline
from harness.run_folder.store import HARNESS_LOG, LATEST, MANIFEST, RUNNING, TIME_FORMAT, VERDICT, RunFolder
from harness.targets import title_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RUNS = f"*/*/*/{MANIFEST}"
"""results/<target>/<anomaly>/<run id>/manifest.json"""
_TIME_CHARACTERS = 20
_STAGE: Final = re.compile(r"^(\S+ \S+) INFO harness (.+)$")
_NOT_STAGES: Final = ("Spark is up", "the checkers are planned", "the workers are rehearsed")


@dataclass(frozen=True)
class StoredRun:
    """One run that has a verdict. ``name``: its folder, relative to the results."""

    folder: RunFolder
    name: str
    manifest: dict[str, Any]
    verdict: Verdict

    @property
    def began_at(self) -> datetime | None:
        """When it began, by its id."""
        try:
            return datetime.strptime(self.folder.run_id[:_TIME_CHARACTERS], TIME_FORMAT).replace(tzinfo=UTC)
        except ValueError:
            return None

    @property
    def column(self) -> str:
        """The tested version, as a column's title."""
        target = self.manifest["target"]
        return title_of(target["name"], target["version"])


def stored_runs(results: Path) -> tuple[list[StoredRun], list[str]]:
    """Return all runs of a results folder, oldest first, and the folders that are left out, with the reason."""
    runs, left_out = [], []
    for path in run_folders(results):
        try:
            runs.append(stored_run(path, str(path.relative_to(results))))
        except ValueError as error:
            left_out.append(str(error))
    return sorted(runs, key=lambda run: (run.folder.run_id, run.name)), left_out


def stored_run(path: Path, name: str = "") -> StoredRun:
    """Return the run of a folder. ``name``: else the path. Raises ValueError where it has no verdict."""
    name = name or str(path)
    try:
        manifest, verdict = (json.loads((path / file).read_text()) for file in (MANIFEST, VERDICT))
        run = StoredRun(RunFolder(path), name, manifest, from_json(Verdict, verdict))
        _raise_if_incomplete(run)
    except FileNotFoundError as error:
        missing = error.filename.rpartition("/")[2]
        raise ValueError(f"{name} has no {missing}: it is going on, or was cut off") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name} cannot be read: {type(error).__name__}: {error}") from error
    return run


def _raise_if_incomplete(run: StoredRun) -> None:
    """Raise KeyError, TypeError or AttributeError where a field is missing that a site shows."""
    _ = run.column, *(run.manifest[name] for name in ("anomaly", "nemesis", "client"))
    _ = [headline(finding) for finding in run.verdict.findings]


def paths_below(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the paths that match, as `Path.glob` does, but bear folders that vanish meanwhile or cannot be read."""
    return (folder / name for name in iglob(pattern, root_dir=folder, include_hidden=True))  # noqa: PTH207


def run_folders(results: Path) -> Iterator[Path]:
    """Yield the folders of all runs that have a manifest, in no order; none outside the results folder."""
    top = results.resolve()
    for path in paths_below(results, _RUNS):
        if path.parent.name != LATEST and path.resolve().is_relative_to(top):
            yield path.parent


@dataclass(frozen=True)
class RunningRun:
    """A run whose process lives; ``stages``: its stages so far with their times, the last one is the current."""

    name: str
    manifest: dict[str, Any]
    stages: tuple[tuple[str, str], ...]


def running_runs(results: Path) -> list[RunningRun]:
    """Return the runs of a results folder that have not ended, oldest first."""
    running = []
    for path in run_folders(results):
        try:
            manifest = json.loads((path / MANIFEST).read_text())
            lives = manifest["status"] == RUNNING and leftovers.Owner(**manifest["owner"]).lives()
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if lives:
            running.append(RunningRun(str(path.relative_to(results)), manifest, _stages(path / HARNESS_LOG)))
    return sorted(running, key=lambda run: run.name.rpartition("/")[2])


def _stages(log: Path) -> tuple[tuple[str, str], ...]:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ()
    stages = [match.groups() for line in lines if (match := _STAGE.match(line))]
    return tuple((at, what) for at, what in stages if what not in _NOT_STAGES)
