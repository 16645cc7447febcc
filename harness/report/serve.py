"""``harness serve``: the site of `site`, made at each request, with the stages of runs that have not ended.

Serves pages about runs, and no file: files outside the results folder have no address.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flask import Flask, Response, abort, request
from werkzeug.serving import BaseWSGIServer, make_server

from harness.errors import UsageError
from harness.escape import visible
from harness.report.runs import running_runs, stored_runs
from harness.report.site import (
    ANOMALIES,
    ANOMALIES_FOLDER,
    DRAWING_ERRORS,
    RUNS_FOLDER,
    anomaly_page,
    index_page,
    run_page,
)

if TYPE_CHECKING:
    from pathlib import Path

HOST: Final = "127.0.0.1"
_NAMES: Final = frozenset({HOST, "localhost"})
"""Names of this host: a request by another name comes from a foreign page in the user's browser."""
RELOAD_S = 3


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
    def _is_of_this_host() -> None:
        if request.host.partition(":")[0] not in _NAMES:
            abort(403, "this is served to this host alone")

    @app.after_request
    def _keep_to_itself(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        response.headers["Cache-Control"] = "no-store"
        return response

    @app.get("/")
    @app.get("/index.html")
    def index() -> str:
        runs, left_out = stored_runs(results)
        running = running_runs(results)
        names = {run.name for run in running}
        return index_page(
            runs, [line for line in left_out if line.partition(" ")[0] not in names], running=running, reload_s=RELOAD_S
        )

    @app.get(f"/{ANOMALIES_FOLDER}/<name>.html")
    def anomaly(name: str) -> str:
        if name not in ANOMALIES:
            abort(404)
        return anomaly_page(stored_runs(results)[0], name)

    @app.get(f"/{RUNS_FOLDER}/<path:name>.html")
    def run(name: str) -> str:
        run_found = next((one for one in stored_runs(results)[0] if one.name == name), None)
        if run_found is None:
            abort(404)
        try:
            return run_page(run_found)
        except DRAWING_ERRORS as error:
            abort(500, visible(f"{name} has no page: {type(error).__name__}: {error}"))

    return app
