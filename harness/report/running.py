"""Runs that have not ended: the current stage of each, by its own log."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.host import leftovers
from harness.report.runs import run_folders
from harness.run_folder.store import HARNESS_LOG, MANIFEST, RUNNING

if TYPE_CHECKING:
    from pathlib import Path

_STAGE: Final = re.compile(r"^(\S+ \S+) INFO harness (.+)$")
_NOT_STAGES: Final = ("Spark is up", "the checkers are planned", "the workers are rehearsed")


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
