"""``harness serve``: the site of `site`, made at each request, with the stages of runs in progress.

Serves pages about runs, and no file: files outside the results folder have no address. The script of the index asks
for changes (``live.js``); an unchanged page is answered by its ETag alone.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

from flask import Flask, Response, abort, request
from werkzeug.serving import BaseWSGIServer, make_server

from harness.errors import UsageError
from harness.escape import visible
from harness.report.page import DRAWING_ERRORS, policy
from harness.report.site import INDEX, evidence_pages, index_page, overview_pages, problem_of
from harness.report.stored import read_contents, running_runs

HOST: Final = "127.0.0.1"
_NAMES: Final = frozenset({HOST, "localhost"})
"""Names of this host: a request by another name comes from a foreign page in the user's browser."""
UPDATE_S = 3


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
