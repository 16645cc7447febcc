"""The runs in a results folder, with what a site shows of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from harness.report.headlines import headline
from harness.run_folder.store import LATEST, MANIFEST, VERDICT, RunFolder
from harness.targets import title_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_RUNS = f"*/*/*/{MANIFEST}"
"""results/<target>/<anomaly>/<run id>/manifest.json"""
_TIME_OF_RUN = "%Y-%m-%dT%H-%M-%SZ"
_TIME_CHARACTERS = 20


@dataclass(frozen=True)
class StoredRun:
    """One run that has a verdict. ``name``: its folder, relative to the results."""

    folder: RunFolder
    name: str
    manifest: dict[str, Any]
    verdict: dict[str, Any]

    @property
    def began_at(self) -> datetime | None:
        """When it began, by its id."""
        try:
            return datetime.strptime(self.folder.run_id[:_TIME_CHARACTERS], _TIME_OF_RUN).replace(tzinfo=UTC)
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
        name = str(path.relative_to(results))
        try:
            manifest, verdict = (json.loads((path / file).read_text()) for file in (MANIFEST, VERDICT))
            run = StoredRun(RunFolder(path), name, manifest, verdict)
            _raise_if_incomplete(run)
            runs.append(run)
        except FileNotFoundError as error:
            left_out.append(f"{name} has no {error.filename.rpartition('/')[2]}: it is going on, or was cut off")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            left_out.append(f"{name} cannot be read: {type(error).__name__}: {error}")
    return sorted(runs, key=lambda run: (run.folder.run_id, run.name)), left_out


def _raise_if_incomplete(run: StoredRun) -> None:
    """Raise KeyError, TypeError or AttributeError where a field is missing that a site shows."""
    _ = run.column, *(run.manifest[name] for name in ("anomaly", "nemesis", "client"))
    _ = run.verdict["verdict"], run.verdict["reason"], [headline(finding) for finding in run.verdict["findings"]]
    for scenario in run.verdict["scenarios"]:
        _ = [scenario[name] for name in ("scenario", "anomaly", "payload", "verdict")]


def run_folders(results: Path) -> Iterator[Path]:
    """Yield the folders of all runs that have a manifest, in no order; none outside the results folder."""
    top = results.resolve()
    for path in results.glob(_RUNS):
        if path.parent.name != LATEST and path.resolve().is_relative_to(top):
            yield path.parent
