"""``harness report``: a static site over many runs, which needs no server and no network.

Its script only filters and sorts tables that are complete without it.
"""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from markdown_it import MarkdownIt
from markupsafe import Markup

from harness.errors import HarnessError, UsageError
from harness.escape import visible
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN
from harness.report.differences import difference, previous_runs
from harness.report.logs import side_by_side
from harness.report.page import OUTCOME_SIGNS, SIGNS, environment, page
from harness.report.pictures.picture import picture
from harness.report.pictures.story import read_story
from harness.report.pictures.timeline import timeline
from harness.report.soak_pages import write_site_pages
from harness.report.stored.nights import stored_nights
from harness.report.stored.runs import StoredRun, stored_runs
from harness.report.stored.soaks import stored_soaks
from harness.run_folder.store import REPORT
from harness.schedules.catalog import ALL_SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from harness.report.stored.nights import Night
    from harness.report.stored.runs import RunningRun
    from harness.report.stored.soaks import StoredSoak

RUNS_FOLDER, ANOMALIES_FOLDER, ANALYSES_FOLDER = "runs", "anomalies", "analyses"
DIFFERENCES_FOLDER, NIGHTS_FOLDER, SOAKS_FOLDER = "differences", "nights", "soaks"
MARK: Final = ".compaction-harness-site"
"""Marks a folder to which a site was written, and may be written again."""
_MARKDOWN: Final = MarkdownIt("js-default")
ROW_IN, BESIDE_IN = 0.35, 0.9
TREND_MARKS: Final = {ANOMALY: ("x", "#d55e00"), CLEAN: ("o", "#009e73"), UNKNOWN: ("^", "#e69f00")}
"""Form and colour; the form alone distinguishes them, too."""
ANOMALIES: Final = tuple(dict.fromkeys(str(scenario.anomaly) for scenario in ALL_SCENARIOS))
DRAWING_ERRORS: Final = (HarnessError, OSError, LookupError, TypeError, ValueError, ArithmeticError)
"""Errors of drawing a run folder that is damaged or of another release."""


@dataclass(frozen=True)
class Site:
    """The result: ``runs`` pages of runs, and the runs that were ``left_out``, with the reason."""

    runs: int
    left_out: list[str]


def write_site(results: Path, out: Path, progress: Callable[[str], None]) -> Site:
    """Write the site over all runs of a results folder.

    Raises `UsageError` for a folder without any run or soak, or where ``out`` is another folder than a site.
    """
    runs, left_out = stored_runs(results)
    soaks, damaged_soaks = stored_soaks(results)
    if not runs and not soaks:
        why = f": {left_out[0]}" if left_out else ""
        raise UsageError(f"--results {results} has no run with a verdict{why}; `harness run` writes some there")
    _make_room(out)
    progress(f"{len(runs)} runs")
    without_page = _write_runs(runs, out)
    left_out += [f"{name} has no page: {why}" for name, why in without_page.items()]
    progress("pages")
    linked = {run.name for run in runs} - without_page.keys()
    for anomaly in ANOMALIES:
        _write(out, ANOMALIES_FOLDER, anomaly, anomaly_page(runs, anomaly))
    analyses = read_analyses(results)
    for name, (title, text) in analyses.items():
        _write(out, ANALYSES_FOLDER, name, environment().get_template("analysis.html").render(title=title, text=text))
    previous = previous_runs(runs)
    for run in runs:
        if run.name in previous:
            _write(out, DIFFERENCES_FOLDER, run.name, difference_page(previous[run.name], run, linked))
    nights, damaged = stored_nights(results)
    left_out += damaged
    for night in nights:
        _write(out, NIGHTS_FOLDER, night.name, night_page(night, linked))
    left_out += damaged_soaks
    for soak in soaks:
        problems = write_site_pages(soak, out / SOAKS_FOLDER)
        left_out += [f"{name} has no page: {why}" for name, why in problems.items()]
    titles = {name: title for name, (title, _) in analyses.items()}
    index = index_page(runs, left_out, nights=nights, soaks=soaks, without_page=without_page.keys(), analyses=titles)
    (out / "index.html").write_text(index)
    return Site(len(runs), left_out)


def index_page(
    runs: Sequence[StoredRun],
    left_out: Sequence[str],
    *,
    running: Sequence[RunningRun] = (),
    update_s: int = 0,
    without_page: Collection[str] = (),
    nights: Sequence[Night] = (),
    soaks: Sequence[StoredSoak] = (),
    analyses: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the page of all runs, oldest first in ``runs``.

    ``running``: runs without a verdict yet. ``update_s``: how often a served page asks for changes. ``without_page``:
    names of runs. ``analyses``: titles by name.
    """
    return environment().get_template("index.html").render(
        signs=SIGNS, table=_matrix(runs), trend=_trend(runs), runs=list(reversed(runs)), left_out=left_out,
        running=running, update_s=update_s, linked={run.name for run in runs}.difference(without_page), nights=nights,
        analyses=analyses, previous=previous_runs(runs), soaks=soaks,
    )  # fmt: skip


def difference_page(before: StoredRun, after: StoredRun, linked: Collection[str]) -> str:
    """Return the page that compares two runs; ``linked``: names of the runs that have a page."""
    return environment().get_template("difference.html").render(
        one=difference(before, after), linked=linked, up="../" * (after.name.count("/") + 1)
    )  # fmt: skip


def night_page(night: Night, linked: Collection[str]) -> str:
    """Return the page of a night; ``linked``: names of the runs that have a page."""
    return environment().get_template("night.html").render(night=night, signs=SIGNS, linked=linked)


def anomaly_page(runs: Sequence[StoredRun], anomaly: str) -> str:
    """Return the page that explains an anomaly, with a picture of the newest run that had the anomaly."""
    return environment().get_template("anomaly.html").render(
        signs=SIGNS, outcomes=OUTCOME_SIGNS, scenarios=ALL_SCENARIOS, anomaly=anomaly, table=_matrix(runs, anomaly),
        picture=_picture(runs, anomaly),
    )  # fmt: skip


def read_analyses(results: Path) -> dict[str, tuple[str, Markup]]:
    """Return the written analyses next to the runs (``<date>-<words>.md``) as titles and markup, newest first.

    HTML in them is shown as text.
    """
    analyses = {}
    for path in sorted(results.glob("[0-9]*.md"), reverse=True):
        text = visible(path.read_text().expandtabs(), line_break="\n")
        title = next((line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")), path.stem)
        analyses[path.stem] = title, Markup(_MARKDOWN.render(text))  # noqa: S704  (its preset lets no HTML through)
    return analyses


def run_page(run: StoredRun) -> str:
    """Return a run's stored page, else a new one. Raises what `page` raises."""
    stored = run.folder.path / REPORT
    return (
        stored.read_text()
        if stored.is_file() and not stored.is_symlink()
        else page(run.folder, run.manifest, run.verdict)
    )


def _make_room(out: Path) -> None:
    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        raise UsageError(f"{out} holds something else than a report; choose another place with --out")
    for folder in (RUNS_FOLDER, ANOMALIES_FOLDER, ANALYSES_FOLDER, DIFFERENCES_FOLDER, NIGHTS_FOLDER, SOAKS_FOLDER):
        shutil.rmtree(out / folder, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).touch()


def _write(out: Path, folder: str, name: str, text: str) -> None:
    place = out / folder / f"{name}.html"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def _write_runs(runs: Sequence[StoredRun], out: Path) -> dict[str, str]:
    """Write each run's page; return the names of those that could not be drawn, with the reason."""
    problems = {}
    for run in runs:
        try:
            _write(out, RUNS_FOLDER, run.name, run_page(run))
        except DRAWING_ERRORS as error:
            problems[run.name] = f"{type(error).__name__}: {error}"
    return problems


@dataclass(frozen=True)
class Matrix:
    """``columns``: versions. ``rows``: anomaly and payload, and verdicts counted a column."""

    columns: Sequence[str]
    rows: Sequence[tuple[tuple[str, str], Sequence[Mapping[str, int]]]]


def _matrix(runs: Sequence[StoredRun], anomaly: str | None = None) -> Matrix:
    """Count the verdicts of scenarios whose broker was away, of one anomaly or of all."""
    counts: dict[tuple[str, str], dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for run in runs:
        if run.manifest.get("takes_away", True):
            for scenario in run.verdict.scenarios:
                counts[str(scenario.anomaly), str(scenario.payload)][run.column][scenario.verdict] += 1
    rows = [
        (str(scenario.anomaly), scenario.payload)
        for scenario in ALL_SCENARIOS
        if anomaly in {None, str(scenario.anomaly)}
    ]
    columns = sorted({run.column for run in runs})
    return Matrix(columns, [(row, [counts[row][column] for column in columns]) for row in rows])


def _picture(runs: Sequence[StoredRun], anomaly: str) -> dict[str, Any] | None:
    """Return the best illustration of an anomaly: the newest run that had the anomaly, on one topic."""
    for run in reversed(runs):
        for finding in run.verdict.findings:
            if finding.anomaly == anomaly and not finding.candidates:
                try:
                    story = read_story(run.folder)
                    tables = side_by_side(run.folder, run.manifest, run.verdict.findings, story)
                except DRAWING_ERRORS:
                    break
                table = next(one for one in tables if one.place == finding.place)
                return {"run": run, "table": table, "timeline": timeline(story, *finding.place), "finding": finding}
    return None


def _trend(runs: Sequence[StoredRun]) -> str:
    """Return a picture of all runs over time, a row a version and a mark a run; "" where no run id has a time."""
    marks = tuple((run.began_at, run.column, run.verdict.verdict) for run in runs if run.began_at is not None)
    return _draw_trend(marks) if marks else ""


@lru_cache(maxsize=1)
def _draw_trend(marks: tuple[tuple[datetime, str, str], ...]) -> str:
    """Draw marks of a time, a column and a verdict; the server asks for the same picture again and again."""
    columns = sorted({column for _, column, _ in marks})
    with picture(BESIDE_IN + ROW_IN * len(columns)) as drawing:
        axes = drawing.figure.subplots()
        for verdict, (mark, colour) in TREND_MARKS.items():
            points = [(at, columns.index(column)) for at, column, one in marks if one == verdict]
            if points:
                times, rows = zip(*points, strict=True)
                axes.plot(times, rows, mark, color=colour, label=verdict, markersize=5, alpha=0.7)
        axes.set_yticks(range(len(columns)), map(visible, columns), parse_math=False)
        axes.set_ylim(len(columns) - 0.5, -0.5)
        axes.tick_params(axis="x", labelrotation=20)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return drawing.svg
