"""``harness serve``: the site of `site`, made at each request, with the stages of runs that have not ended.

Serves pages about runs, and no file: files outside the results folder have no address. The script of the index asks
for changes (``live.js``); an unchanged page is answered by its ETag alone.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from typing import TYPE_CHECKING, Final, TypeVar

from flask import Flask, Response, abort, request
from werkzeug.serving import BaseWSGIServer, make_server

from harness.errors import UsageError
from harness.escape import visible
from harness.report.differences import previous_runs
from harness.report.page import environment
from harness.report.site import (
    ANOMALIES,
    ANOMALIES_FOLDER,
    DIFFERENCES_FOLDER,
    DRAWING_ERRORS,
    NIGHTS_FOLDER,
    RUNS_FOLDER,
    anomaly_page,
    difference_page,
    index_page,
    night_page,
    run_page,
)
from harness.report.stored.nights import stored_nights
from harness.report.stored.runs import running_runs, stored_runs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from harness.report.stored.runs import StoredRun

Page = TypeVar("Page")

HOST: Final = "127.0.0.1"
_NAMES: Final = frozenset({HOST, "localhost"})
"""Names of this host: a request by another name comes from a foreign page in the user's browser."""
UPDATE_S = 3
_SCRIPTS: Final = ("copy.js", "table.js", "live.js")


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
    scripts = " ".join(map(_hash_source, _SCRIPTS))
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; script-src {scripts}"

    @app.before_request
    def _is_of_this_host() -> None:
        if request.host.partition(":")[0] not in _NAMES:
            abort(403, "this is served to this host alone")

    @app.after_request
    def _keep_to_itself(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        response.headers["Cache-Control"] = "no-store"
        response.add_etag()
        response.make_conditional(request)
        return response

    _add_pages(app, results)
    return app


def _add_pages(app: Flask, results: Path) -> None:
    @app.get("/")
    @app.get("/index.html")
    def index() -> str:
        runs, left_out = stored_runs(results)
        nights, damaged = stored_nights(results)
        running = running_runs(results)
        names = {run.name for run in running}
        left_out = [line for line in [*left_out, *damaged] if line.partition(" ")[0] not in names]
        return index_page(runs, left_out, running=running, update_s=UPDATE_S, nights=nights)

    @app.get(f"/{ANOMALIES_FOLDER}/<name>.html")
    def anomaly(name: str) -> str:
        if name not in ANOMALIES:
            abort(404)
        return anomaly_page(stored_runs(results)[0], name)

    @app.get(f"/{RUNS_FOLDER}/<path:name>.html")
    def run(name: str) -> str:
        run_found = _get(_by_name(results), name)
        try:
            return run_page(run_found)
        except DRAWING_ERRORS as error:
            abort(500, visible(f"{name} has no page: {type(error).__name__}: {error}"))

    @app.get(f"/{DIFFERENCES_FOLDER}/<path:name>.html")
    def difference(name: str) -> str:
        runs = _by_name(results)
        before = _get(previous_runs(list(runs.values())), name)
        return difference_page(before, runs[name], runs)

    @app.get(f"/{NIGHTS_FOLDER}/<name>.html")
    def night(name: str) -> str:
        nights = {night.name: night for night in stored_nights(results)[0]}
        return night_page(_get(nights, name), _by_name(results))


def _by_name(results: Path) -> dict[str, StoredRun]:
    return {run.name: run for run in stored_runs(results)[0]}


def _get(pages: Mapping[str, Page], name: str) -> Page:
    if name not in pages:
        abort(404)
    return pages[name]


def _hash_source(script: str) -> str:
    """Return what a content security policy calls an inline script: no other script is run."""
    text = environment().get_template(script).render()
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
