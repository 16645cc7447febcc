"""The nights in a results folder: the summary that `harness nightly` wrote of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.judge.protected import UNPROTECTED
from harness.report.stored.runs import paths_below
from harness.targets import title_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SUMMARIES: Final = ("nightly/*/summary.json", "night/summary.json")
"""Of nights next to their runs, and of a published night."""
_ROW: Final = ("scenario", "client", "nemesis", "runtime")
AS_EXPECTED: Final = "as expected"


@dataclass(frozen=True)
class Night:
    """One night. ``columns``: versions. ``rows``: the fields of `_ROW` and protection, and a cell a column, or None.

    ``unexpected``: the cells that are not as expected.
    """

    name: str
    summary: Mapping[str, Any]
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Mapping[str, Any] | None, ...]], ...]
    unexpected: tuple[Mapping[str, Any], ...]


def stored_nights(results: Path) -> tuple[list[Night], list[str]]:
    """Return all nights that have a summary, newest first, and those that cannot be read, with the reason."""
    nights, left_out = [], []
    top = results.resolve()
    for path in [path for pattern in _SUMMARIES for path in paths_below(results, pattern)]:
        if path.resolve().is_relative_to(top):
            try:
                nights.append(_night(path.parent.name, json.loads(path.read_text())))
            except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
                left_out.append(f"{path.parent.relative_to(results)} cannot be read: {type(error).__name__}: {error}")
    return sorted(nights, key=lambda night: str(night.summary["began_at"]), reverse=True), left_out


def _night(name: str, summary: Mapping[str, Any]) -> Night:
    _ = [summary[field] for field in ("began_at", "command", "commit", "cells_as_expected", "strays")]
    titles: dict[str, str] = {}
    by_row: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
    for one in summary["cells"]:
        _raise_if_incomplete(one)
        cell = one["cell"]
        titles[cell["target"]] = title_of(cell["target"], one["version"])
        # Summaries of earlier releases have no protection.
        row = (*(cell[field] for field in _ROW), cell.get("protection", UNPROTECTED))
        by_row.setdefault(row, {})[cell["target"]] = one
    rows = ((row, tuple(cells.get(target) for target in titles)) for row, cells in by_row.items())
    unexpected = tuple(one for one in summary["cells"] if one["status"] != AS_EXPECTED)
    return Night(name, summary, tuple(titles.values()), tuple(rows), unexpected)


def _raise_if_incomplete(one: Mapping[str, Any]) -> None:
    """Raise KeyError or TypeError where a field of a cell is missing that a page shows."""
    _ = one["expected"], one["why"], [list(one[name]) for name in ("runs", "flaky", "verdicts")]
