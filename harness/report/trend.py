"""A picture of all runs over time: a row a version, a mark a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.escape import visible
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN
from harness.report.picture import picture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.report.runs import StoredRun

ROW_IN, BESIDE_IN = 0.35, 0.9
MARKS: Final = {ANOMALY: ("x", "#d55e00"), CLEAN: ("o", "#009e73"), UNKNOWN: ("^", "#e69f00")}
"""Form and colour; the form alone distinguishes them, too."""


def trend(runs: Sequence[StoredRun]) -> str:
    """Return an SVG element, "" where no run id has a time."""
    dated = [(run.began_at, run) for run in runs if run.began_at is not None]
    if not dated:
        return ""
    columns = sorted({run.column for _, run in dated})
    with picture(BESIDE_IN + ROW_IN * len(columns)) as drawing:
        axes = drawing.figure.subplots()
        for verdict, (mark, colour) in MARKS.items():
            points = [(at, columns.index(run.column)) for at, run in dated if run.verdict["verdict"] == verdict]
            if points:
                times, rows = zip(*points, strict=True)
                axes.plot(times, rows, mark, color=colour, label=verdict, markersize=5, alpha=0.7)
        axes.set_yticks(range(len(columns)), map(visible, columns), parse_math=False)
        axes.set_ylim(len(columns) - 0.5, -0.5)
        axes.tick_params(axis="x", labelrotation=20)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return drawing.svg
