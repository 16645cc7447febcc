"""Answers of `harness serve`: pages about runs, for this host only, and no files."""

import base64
import hashlib
import json
import re
import socket
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from pages import write_night
from test_site import ID, stored
from test_site import RUN as RUN_NAME

from harness.errors import UsageError
from harness.host import leftovers
from harness.judge.verdict import ANOMALY, CLEAN
from harness.report.site import HOST, app_of, serving

OURS = f"http://{HOST}:8642"
RUN = f"runs/{RUN_NAME}.html"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    stored(tmp_path / "results", 1, ANOMALY)
    return tmp_path / "results"


@pytest.fixture
def client(results: Path) -> FlaskClient:
    return app_of(results).test_client()


def asked(client: FlaskClient, path: str, base: str = OURS) -> tuple[int, str]:
    answer = client.get(path, base_url=base)
    return answer.status_code, answer.get_data(as_text=True)


def test_pages(client: FlaskClient) -> None:
    for path in ("/", "/index.html", "/anomalies/stuck-lso.html", f"/{RUN}"):
        code, text = asked(client, path)
        assert (path, code, "stuck-lso" in text) == (path, 200, True)


@pytest.mark.parametrize(
    "path",
    ["/anomalies/none.html", "/runs/none.html", "/runs/../../../etc/passwd.html", "/runs/%2e%2e/%2e%2e/etc/passwd.html",
     "/runs/kafka-4.4/stuck-lso/latest.html", "/kafka-4.4/stuck-lso", "/etc/passwd", "/static/x",
     f"/runs/kafka-4.4/../{RUN_NAME}.html"],
)  # fmt: skip
def test_nothing_else_has_an_address(client: FlaskClient, path: str) -> None:
    assert asked(client, path)[0] == 404


def test_what_lies_elsewhere_is_not_served(client: FlaskClient, results: Path, tmp_path: Path) -> None:
    elsewhere = stored(tmp_path / "elsewhere", 2, CLEAN)
    (results / "kafka-4.4" / "stuck-lso" / elsewhere.name).symlink_to(elsewhere)
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    (results / "kafka-4.4" / "stuck-lso" / ID.format(1) / "report.html").symlink_to(secret)
    assert asked(client, f"/runs/kafka-4.4/stuck-lso/{elsewhere.name}.html")[0] == 404
    assert elsewhere.name not in asked(client, "/")[1]
    code, text = asked(client, f"/{RUN}")
    assert (code, "a secret" in text) == (200, False)


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "0.0.0.0"])  # noqa: S104  (it is refused)
def test_pages_are_for_this_host_alone(client: FlaskClient, name: str) -> None:
    assert asked(client, "/", f"http://{name}:8642")[0] == 403


def test_no_page_asks_for_anything_or_runs_another_script(client: FlaskClient) -> None:
    for path in ("/", f"/{RUN}"):
        policy = client.get(path, base_url=OURS).headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        scripts = re.findall(r"<script>(.*?)</script>", asked(client, path)[1], re.DOTALL)
        assert len(scripts) == (2 if path == "/" else 1)
        for script in scripts:
            assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy


def test_an_unchanged_page_is_not_sent_again(client: FlaskClient, results: Path) -> None:
    etag = client.get("/", base_url=OURS).headers["ETag"]
    again = client.get("/", base_url=OURS, headers={"If-None-Match": etag})
    assert (again.status_code, again.get_data()) == (304, b"")
    stored(results, 2, CLEAN)
    changed = client.get("/", base_url=OURS, headers={"If-None-Match": etag})
    assert (changed.status_code, changed.headers["ETag"] != etag) == (200, True)


def test_nights_and_differences(client: FlaskClient, results: Path) -> None:
    second = stored(results, 2, CLEAN)
    write_night(results, "nightly/one", RUN_NAME)
    text = asked(client, "/")[1]
    for path in ("nights/one.html", f"differences/kafka-4.4/stuck-lso/{second.name}.html"):
        assert f'href="{path}"' in text
        code, page = asked(client, f"/{path}")
        assert (code, f'{RUN}"' in page) == (200, True)
    for path in ("nights/two.html", "nights/../nights/one.html", f"differences/{RUN}"):
        assert asked(client, f"/{path}")[0] == 404


def test_a_run_that_is_going_on_is_shown_with_its_stages(client: FlaskClient, results: Path) -> None:
    path = stored(results, 3, CLEAN)
    (path / "verdict.json").unlink()
    manifest = json.loads((path / "manifest.json").read_text())
    manifest |= {"status": "running", "owner": leftovers.owner_of_this_process(path.name, path)}
    (path / "manifest.json").write_text(json.dumps(manifest))
    (path / "harness.log").write_text(
        "2026-11-22 17:49:06,793 INFO harness boot\n2026-11-22 17:49:20,081 INFO harness Spark is up\n"
        "2026-11-22 17:49:21,418 INFO harness kill broker 2\nhalf a li"
    )
    text = asked(client, "/")[1]
    assert 'http-equiv="refresh"' not in text
    assert '<a href="">Reload</a>' in text
    assert "<strong>kill broker 2</strong>" in text
    assert "Spark is up" not in text
    assert "has no verdict.json" not in text
    (path / "manifest.json").write_text(json.dumps({**manifest, "owner": None}))
    text = asked(client, "/")[1]
    assert "No run is in progress." in text, "its process was killed"
    assert "has no verdict.json: it is in progress, or was interrupted" in text


def test_a_page_that_cannot_be_drawn(client: FlaskClient, results: Path) -> None:
    (results / "kafka-4.4" / "stuck-lso" / ID.format(1) / "history.jsonl").write_text("{\n")
    code, text = asked(client, f"/{RUN}")
    assert (code, "the run folder is damaged" in text) == (500, True)


def test_a_port_that_is_taken(results: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} of {HOST} is not free; choose another with --port"):
            serving(results, port)
