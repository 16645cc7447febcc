"""``harness serve``: the site of `site`, made when it is asked for, with what runs that are going on are at.

Serves pages about runs, and no file: what lies outside the results folder has no address here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from flask import Flask, Response, abort, request
from werkzeug.serving import BaseWSGIServer, make_server

from harness.errors import UsageError
from harness.escape import visible
from harness.report.going import going_runs
from harness.report.runs import stored_runs
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
"""Of this host: another one would be a page of somebody else's that reads this one by way of the user's browser."""
RELOAD_S = 3


def serving(results: Path, port: int) -> BaseWSGIServer:
    """Return a server of this host's own address; 0 for a free port. Raises `UsageError` where the port is taken."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    try:
        return make_server(HOST, port, app_of(results), threaded=True)
    except (OSError, SystemExit) as error:
        raise UsageError(f"port {port} of {HOST} is not free; choose another with --port") from error


def app_of(results: Path) -> Flask:
    """Return what answers for a results folder."""
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
        going = going_runs(results)
        names = {run.name for run in going}
        return index_page(
            runs, [line for line in left_out if line.partition(" ")[0] not in names], going=going, reload_s=RELOAD_S
        )

    @app.get(f"/{ANOMALIES_FOLDER}/<name>.html")
    def anomaly(name: str) -> str:
        if name not in ANOMALIES:
            abort(404)
        return anomaly_page(stored_runs(results)[0], name)

    @app.get(f"/{RUNS_FOLDER}/<path:name>.html")
    def run(name: str) -> str:
        found = next((one for one in stored_runs(results)[0] if one.name == name), None)
        if found is None:
            abort(404)
        try:
            return run_page(found)
        except DRAWING_ERRORS as error:
            abort(500, visible(f"{name} has no page: {type(error).__name__}: {error}"))

    return app
