"""``harness report``: a static site over many runs, which needs no server and no network.

Its script only filters and sorts tables that are complete without it. ``harness serve`` makes the same site at each
request, with the stages of runs in progress. It serves pages about runs, and no file. The script of the index asks for
changes (``live.js``); an unchanged page is answered by its ETag alone.
"""

import logging
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from flask import Flask, Response, abort, request
from werkzeug.serving import BaseWSGIServer, make_server

from harness.errors import UsageError, raised_as
from harness.escape import visible
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN
from harness.report.audits import audit_page
from harness.report.differences import difference, previous_runs
from harness.report.logs import side_by_side
from harness.report.page import DRAWING_ERRORS, page, states_of
from harness.report.pictures.picture import picture
from harness.report.pictures.story import read_story
from harness.report.pictures.timeline import timeline, with_states
from harness.report.rendering import policy, render
from harness.report.soak_pages import round_page, soak_page
from harness.report.stored import Contents, RunningRun, StoredRun, read_contents, running_runs
from harness.run_folder.store import AUDITS, VERDICT
from harness.schedules.catalog import all_scenarios
from harness.schedules.scenario import Kind

Pages: TypeAlias = "dict[str, Callable[[], str]]"
"""Functions that return pages, by the address in the site."""

HOST: Final = "127.0.0.1"
_NAMES: Final = frozenset({HOST, "localhost"})
"""Names of this host: a request by another name comes from a foreign page in the user's browser."""
UPDATE_S = 3
INDEX: Final = "index.html"
FOLDERS: Final = ("runs", "anomalies", "analyses", "differences", "nights", "soaks", AUDITS)
MARK: Final = ".compaction-harness-site"
"""Marks a folder to which a site was written, and may be written again."""
ROW_IN, EXTRA_IN = 0.35, 0.9
TREND_MARKS: Final = {ANOMALY: ("x", "#d55e00"), CLEAN: ("o", "#009e73"), UNKNOWN: ("^", "#e69f00")}
"""Form and colour; the form alone distinguishes them, too."""
ANOMALIES: Final = tuple(dict.fromkeys(str(scenario.anomaly) for scenario in all_scenarios()))


def write_site(results: Path, out: Path, progress: Callable[[str], None]) -> Contents:
    """Write the site over all runs of a results folder; return its contents.

    Raises `UsageError` for a folder without any run, soak or audit, or where ``out`` is another folder than a site.
    """
    contents = read_contents(results)
    if not (contents.runs or contents.soaks or contents.audits):
        why = f": {contents.left_out[0]}" if contents.left_out else ""
        raise UsageError(f"--results {results} has no run with a verdict{why}; `harness run` writes some there")
    _make_room(out)
    problems: list[str] = []

    def write(pages: Pages) -> set[str]:
        written = set()
        for address, draw in pages.items():
            try:
                text = draw()
            except DRAWING_ERRORS as error:
                problems.append(problem_of(address, error))
                continue
            (out / address).parent.mkdir(parents=True, exist_ok=True)
            (out / address).write_text(text)
            written.add(address)
        return written

    progress(f"{len(contents.runs)} runs")
    drawn = write(evidence_pages(contents))
    progress("pages")
    write(overview_pages(contents, drawn))
    complete = replace(contents, left_out=[*contents.left_out, *problems])
    write({INDEX: partial(index_page, complete, drawn)})
    return complete


def problem_of(address: str, error: Exception) -> str:
    """Return why a page could not be drawn, for the index."""
    name = address.partition("/")[2].removesuffix(".html")
    return f"{name} has no page: {type(error).__name__}: {error}"


def evidence_pages(contents: Contents) -> Pages:
    """Return the pages of runs, rounds and audits, which raise an error of `DRAWING_ERRORS` for damaged evidence.

    A stored ``report.html`` is not used: a folder from elsewhere may have a script in it.
    """
    pages: Pages = {}
    for run in contents.runs:
        address = f"runs/{run.name}.html"
        pages[address] = partial(page, run.folder, run.manifest, run.verdict, site=_up(address))
    for soak in contents.soaks:
        for name in soak.with_evidence:
            pages[f"soaks/{soak.name}/{name}.html"] = partial(round_page, soak, name, INDEX)
    for audit in contents.audits:
        file, index = f"{AUDITS}/{audit.name}/{VERDICT}", f"../{INDEX}"
        pages[f"{AUDITS}/{audit.name}.html"] = partial(audit_page, audit.verdict, file, index=index)
    return pages


def overview_pages(contents: Contents, drawn: Collection[str]) -> Pages:
    """Return all other pages except the index; ``drawn``: the addresses of `evidence_pages` that can be linked."""
    runs, previous = contents.runs, previous_runs(contents.runs)
    pages: Pages = {f"anomalies/{name}.html": partial(_anomaly_page, runs, name) for name in ANOMALIES}
    for name, (title, text) in contents.analyses.items():
        pages[f"analyses/{name}.html"] = partial(render, "analysis.html", title=title, text=text)
    for run in runs:
        if before := previous.get(run.name):
            pages[f"differences/{run.name}.html"] = partial(_difference_page, before, run, drawn)
    for night in contents.nights:
        pages[f"nights/{night.name}.html"] = partial(render, "night.html", night=night, drawn=drawn)
    for soak in contents.soaks:
        rounds = {name for name in soak.with_evidence if f"soaks/{soak.name}/{name}.html" in drawn}
        address = f"soaks/{soak.name}/{INDEX}"
        pages[address] = partial(soak_page, soak, rounds, "{}.html", _up(address) + INDEX)
    return pages


def index_page(
    contents: Contents, drawn: Collection[str], running: Sequence[RunningRun] = (), update_s: int = 0
) -> str:
    """Return the page of all runs. ``update_s``: how often a served page asks for changes."""
    return render(
        "index.html",
        contents=contents,
        table=_matrix(contents.runs),
        trend=_trend(tuple((run.began_at, run.column, run.verdict.verdict) for run in contents.runs if run.began_at)),
        running=running,
        update_s=update_s,
        drawn=drawn,
        previous=previous_runs(contents.runs),
    )


def _difference_page(before: StoredRun, after: StoredRun, drawn: Collection[str]) -> str:
    up, compared = _up(f"differences/{after.name}"), difference(before, after)
    return render("difference.html", compared=compared, before=before, after=after, drawn=drawn, up=up)


def _anomaly_page(runs: Sequence[StoredRun], anomaly: str) -> str:
    table, shown = _matrix(runs, anomaly), _picture(runs, anomaly)
    return render("anomaly.html", scenarios=all_scenarios(), anomaly=anomaly, table=table, picture=shown)


def _up(address: str) -> str:
    return "../" * address.count("/")


def _make_room(out: Path) -> None:
    with raised_as(UsageError, f"--out {out} cannot be written", OSError):
        if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
            raise UsageError(f"{out} has files that are not part of a report; choose another folder with --out")
        for folder in FOLDERS:
            shutil.rmtree(out / folder, ignore_errors=True)
        out.mkdir(parents=True, exist_ok=True)
        (out / MARK).touch()


def _matrix(runs: Sequence[StoredRun], anomaly: str | None = None) -> dict[str, Any]:
    """Count verdicts of scenarios with an absent broker: ``rows`` by anomaly and payload, ``columns`` by version."""
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for run in runs:
        if run.manifest.get("takes_away", True):
            for scenario in run.verdict.scenarios:
                counts[str(scenario.anomaly), str(scenario.payload), run.column][scenario.verdict] += 1
    rows = [(str(s.anomaly), s.payload) for s in all_scenarios() if s.kind is not Kind.SERVED]
    columns = sorted({run.column for run in runs})
    counted = [(row, [counts[*row, column] for column in columns]) for row in rows if anomaly in {None, row[0]}]
    return {"columns": columns, "rows": counted}


def _picture(runs: Sequence[StoredRun], anomaly: str) -> dict[str, Any] | None:
    """Return the best illustration of an anomaly: the newest run that had the anomaly, on one topic."""
    for run in reversed(runs):
        findings = run.verdict.findings
        finding = next((each for each in findings if each.anomaly == anomaly and not each.candidates), None)
        if finding is not None:
            with suppress(*DRAWING_ERRORS):
                story = read_story(run.folder)
                tables = {table.place: table for table in side_by_side(run.folder, run.manifest, findings, story)}
                states = states_of([finding], run.manifest["absent_brokers"])
                drawn = with_states(timeline(story, *finding.place), states)
                shown = {"run": run, "timeline": drawn, "finding": finding, "states": states}
                return {**shown, "table": tables[finding.place]}
    return None


@lru_cache(maxsize=1)  # the server asks for the same picture again and again
def _trend(marks: tuple[tuple[datetime, str, str], ...]) -> str:
    """Draw all runs over time, a row a version; ``marks``: a time, a column and a verdict of each. "" without any."""
    if not marks:
        return ""
    columns = sorted({column for _, column, _ in marks})
    with picture(EXTRA_IN + ROW_IN * len(columns)) as drawing:
        axes = drawing.figure.subplots()
        for verdict, (mark, colour) in TREND_MARKS.items():
            if points := [(at, columns.index(column)) for at, column, each in marks if each == verdict]:
                style: dict[str, Any] = {"color": colour, "label": verdict, "markersize": 5, "alpha": 0.7}
                axes.plot(*zip(*points, strict=True), mark, **style)
        axes.set_yticks(range(len(columns)), map(visible, columns), parse_math=False)
        axes.set_ylim(len(columns) - 0.5, -0.5)
        axes.tick_params(axis="x", labelrotation=20)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return drawing.svg


def serving(results: Path, port: int) -> BaseWSGIServer:
    """Return a server on the loopback address; 0 for a free port. Raises `UsageError` where the port is taken."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    try:
        return make_server(HOST, port, app_of(results), threaded=True)
    except (OSError, SystemExit) as error:
        raise UsageError(f"port {port} of {HOST} is not free; choose another with --port") from error


def app_of(results: Path) -> Flask:
    """Return the application for a results folder."""
    app = Flask(__name__, static_folder=None)

    @app.before_request
    def _reject_other_hosts() -> None:
        if request.host.partition(":")[0] not in _NAMES:
            abort(403, "this is served to this host alone")

    @app.after_request
    def _forbid_other_sources(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy()
        response.headers["Cache-Control"] = "no-store"
        response.add_etag()
        response.make_conditional(request)
        return response

    @app.get("/")
    @app.get("/<path:address>")
    def answer(address: str = INDEX) -> str:
        contents = read_contents(results)
        pages = evidence_pages(contents)
        if address == INDEX:
            running = running_runs(results)
            names = {run.name for run in running}
            left_out = [line for line in contents.left_out if line.partition(" ")[0] not in names]
            return index_page(replace(contents, left_out=left_out), pages, running, UPDATE_S)
        pages |= overview_pages(contents, pages.keys())
        if address not in pages:
            abort(404)
        try:
            return pages[address]()
        except DRAWING_ERRORS as error:
            abort(500, visible(problem_of(address, error)))

    return app
