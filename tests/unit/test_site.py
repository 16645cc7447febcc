"""The site over many runs, two runs compared, and answers of `harness serve`."""

import base64
import hashlib
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import pages
import pytest
from click.testing import CliRunner
from flask.testing import FlaskClient
from literal import History, put, replica, write_run
from pages import FINDING, MANIFEST, write_night

from harness.cli.main import cli
from harness.errors import EXIT_CLEAN, UsageError
from harness.host import leftovers
from harness.judge.verdict import ANOMALY, CLEAN, UNKNOWN
from harness.report.site import HOST, app_of, serving, write_site
from harness.report.stored import read_contents

ID = "2026-11-2{}T01-02-03Z-beef"
RUN = f"kafka-4.4/stuck-lso/{ID.format(1)}"
SERVED = "broker 2 will never deliver t-0 past offset 0 to read_committed consumers"


def verdict_json(verdict: str) -> dict[str, Any]:
    content = pages.verdict(*[FINDING] * (verdict == ANOMALY))
    scenario = {**content["scenarios"][0], "scenario": "stuck-lso", "verdict": verdict}
    return {**content, "verdict": verdict, "scenarios": [scenario]}


def stored(results: Path, day: int, verdict: str, version: str = "4.4.0", **more: Any) -> Path:
    """Write a run as the harness stores it."""
    target = "-".join(["kafka", *version.split(".")[:2]]).replace("-4-", "-4.")
    top = results / target / "stuck-lso"
    top.mkdir(parents=True, exist_ok=True)
    folder = write_run(top, History(ID.format(day), wrote=(), after=tuple(replica(b, put(0, "K")) for b in (1, 2, 3))))
    folder.write_lines(folder.observations_path, [])
    place = {"run_id": folder.run_id, "target": {"name": target, "version": version}}
    manifest = {**MANIFEST, **place, "takes_away": True, **more}
    folder.write_json(folder.manifest_path, manifest)
    folder.write_json(folder.verdict_path, verdict_json(verdict))
    return folder.path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


def written(results: Path, out: Path) -> str:
    write_site(results, out, lambda _: None)
    return (out / "index.html").read_text()


def test_verdicts_are_counted_by_version(results: Path, site: Path) -> None:
    for day, verdict in enumerate((ANOMALY, ANOMALY, UNKNOWN)):
        stored(results, day, verdict)
    stored(results, 4, CLEAN, takes_away=False)
    text = written(results, site)
    for part in ("<p>4 runs. ", "✗ anomaly</span> 2 of 3; ", "? unknown</span> 1 of 3"):
        assert part in text
    assert text.count('<span class="faint">no run</span>') == 12


def test_folders_that_vanish_during_the_search(results: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(results, 1, CLEAN)
    gone, scan = results / "nightly", os.scandir
    gone.mkdir()

    def scandir(path: str) -> Any:
        if Path(path) == gone:
            gone.rmdir()
        return scan(path)

    monkeypatch.setattr("os.scandir", scandir)
    assert "<p>1 run. " in written(results, site)
    assert not gone.exists()


def test_each_run_has_its_page_and_each_anomaly_too(results: Path, site: Path) -> None:
    stored(results, 1, ANOMALY)
    (stored(results, 2, CLEAN) / "report.html").write_text("<script>stolen()</script>")
    text = written(results, site)
    first, second = (f"runs/kafka-4.4/stuck-lso/{ID.format(day)}.html" for day in (1, 2))
    assert {first, second} <= set(re.findall('href="([^"]+)"', text))
    assert "<h1><span" in (site / first).read_text()
    drawn = (site / second).read_text()
    assert "stolen" not in drawn, "a folder from elsewhere may have any page"
    assert "script-src &#39;sha256-" in drawn
    assert f'href="../{first}#finding-1"' in (site / "anomalies" / "stuck-lso.html").read_text()
    assert "No run in this folder has this anomaly." in (site / "anomalies" / "aborted-to-committed.html").read_text()


def test_what_is_no_whole_run_is_left_out_and_reported(results: Path, site: Path) -> None:
    stored(results, 1, CLEAN)
    (stored(results, 2, CLEAN) / "verdict.json").unlink()
    (stored(results, 3, CLEAN) / "verdict.json").write_text("{")
    (stored(results, 4, CLEAN) / "manifest.json").write_text("[]")
    manifest = stored(results, 5, CLEAN) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "scenarios": [{"topic": "t"}]}))
    (results / "kafka-4.4" / "stuck-lso" / "latest").symlink_to(ID.format(1))
    result = verdict_json(ANOMALY)
    result["findings"][0]["witness"] = "text"
    (stored(results, 6, ANOMALY) / "verdict.json").write_text(json.dumps(result))
    for day, name in ((7, "verdict.json"), (8, "manifest.json")):
        pipe = stored(results, day, CLEAN) / name
        pipe.unlink()
        os.mkfifo(pipe)
    contents = read_contents(results)
    assert [run.folder.run_id for run in contents.runs] == [ID.format(1)]
    left_out = sorted(line.removeprefix("kafka-4.4/stuck-lso/") for line in contents.left_out)
    assert [line.partition(" ")[0] for line in left_out] == [ID.format(day) for day in (2, 3, 4, 5, 6, 7)]
    assert left_out[-1].endswith(" cannot be read: verdict.json is a named pipe")
    assert left_out[-2].endswith(" cannot be read: ValueError: Verdict.findings[0].witness is str")
    assert "has no verdict.json: it is in progress, or was interrupted" in written(results, site)


def test_a_page_that_cannot_be_drawn_is_reported(results: Path, site: Path) -> None:
    (stored(results, 1, CLEAN) / "history.jsonl").write_text("{\n")
    text = written(results, site)
    assert "has no page: UsageError: the run folder is damaged" in text
    assert 'href="runs/' not in text


def test_a_manifest_of_another_form_does_not_end_the_report(results: Path, site: Path) -> None:
    others: list[dict[str, Any]] = [{"runtime": "local"}, {"nemesis": ["a list"]}, {"timings_s": None}]
    for day, more in enumerate(others):
        stored(results, day, CLEAN, **more)
    (stored(results, 4, CLEAN) / "manifest.json").write_text('{"a":' * 100_000)
    stored(results, 5, CLEAN)
    text = written(results, site)
    assert text.count("has no page") == 2
    assert text.count("cannot be read: ") == 2
    assert text.count('href="runs/') == 1


def test_written_analyses_are_pages_and_markup_in_them_is_text(results: Path, site: Path) -> None:
    stored(results, 1, CLEAN)
    (results / "2026-11-22-kafka.md").write_text("# Findings of the week\n\n| a |\n|---|\n| <script>x</script> |\n")
    (results / "2026-11-21-latin.md").write_bytes(b"# \xe9")
    (results / "2026.md").mkdir()
    (results / "README.md").write_text("# Not this one")
    text = written(results, site)
    assert '<a href="analyses/2026-11-22-kafka.html">Findings of the week</a>' in text
    assert "Not this one" not in text
    page = (site / "analyses" / "2026-11-22-kafka.html").read_text()
    assert "<h1>Findings of the week</h1>" in page
    assert "<td>&lt;script&gt;x&lt;/script&gt;</td>" in page


def test_a_run_is_compared_with_the_previous_one_of_its_kind(results: Path, site: Path) -> None:
    stored(results, 1, CLEAN, seed=1)
    stored(results, 2, UNKNOWN, nemesis="pause")
    stored(results, 3, ANOMALY, seed=2, jars={"kafka": "beef"})
    text = written(results, site)
    name = f"kafka-4.4/stuck-lso/{ID.format(3)}.html"
    assert re.findall(r'href="differences/([^"]+)"', text) == [name]
    page = (site / "differences" / name).read_text()
    rows = re.findall(r'<th scope="row">([^<]+).*?<td>(.*?)</td><td>(.*?)</td>', page)
    judged = [("stuck-lso", "clean", "anomaly"), ("stuck-lso on broker 2, t-0", "none", SERVED)]
    assert rows == [*judged, ("seed", "1", "2"), ("jars.kafka", "none", "beef")]
    links = re.findall(r'href="([^"]+\.html)"', page)
    assert [(site / "differences" / name).parent.joinpath(link).resolve().exists() for link in links] == [True] * 3


def test_nights_have_pages(results: Path, site: Path) -> None:
    stored(results, 1, ANOMALY)
    write_night(results, "nightly/one", RUN)
    write_night(results, "nightly/two", RUN, status="regressed", flaky=["it failed once"])
    write_night(results, "night", RUN)
    write_night(results, "nightly/damaged", RUN, runs=None)
    text = written(results, site)
    assert "nightly/damaged cannot be read: TypeError" in text
    for name in ("one", "two", "night"):
        assert f'<a href="nights/{name}.html">2026-11-22T19:53:15+00:00</a>: 1 of 1 cells as expected' in text
    page_text, two = ((site / "nights" / f"{name}.html").read_text() for name in ("one", "two"))
    parts = ("✗ anomaly</span>", f'href="../runs/{RUN}.html"', "Not as expected")
    assert [part in page_text for part in parts] == [True, True, False]
    assert "<strong>regressed</strong>: kafka-4.4, java, kill, local, stuck-lso: expected anomaly: so it is" in two
    assert "flaky: it failed once" in two


def test_a_site_is_written_again_and_nothing_else_is_written_over(results: Path, site: Path) -> None:
    path = stored(results, 1, CLEAN)
    written(results, site)
    (path / "verdict.json").write_text(json.dumps(verdict_json(UNKNOWN)))
    assert "? unknown</span> 1 of 1" in written(results, site)
    with pytest.raises(UsageError, match="has files that are not part of a report"):
        written(results, results)
    with pytest.raises(UsageError, match="--out /proc/x cannot be written: No such file or directory"):
        written(results, Path("/proc/x"))


def test_a_folder_without_runs(tmp_path: Path, site: Path) -> None:
    with pytest.raises(UsageError, match="has no run with a verdict; `harness run` writes some there"):
        written(tmp_path, site)


def test_runs_of_any_kind_are_compared_if_they_have_a_verdict(tmp_path: Path) -> None:
    before = stored(tmp_path, 1, CLEAN, jars={"kafka:4.4.0": "beef"})
    after = stored(tmp_path, 2, ANOMALY, "4.3.1", nemesis="pause", jars={"kafka:4.3.1": "cafe"})
    ran = CliRunner().invoke(cli, ["compare", str(before), str(after), "--format", "json"], catch_exceptions=False)
    assert ran.exit_code == EXIT_CLEAN
    content = json.loads(ran.stdout)
    assert content["verdicts"] == [{"name": "stuck-lso", "before": "clean", "after": "anomaly", "differs": True}]
    assert [tuple(row.values()) for row in (*content["findings"], *content["settings"])] == [
        ("stuck-lso on broker 2, t-0", None, SERVED, True), ("target.name", "kafka-4.4", "kafka-4.3", True),
        ("target.version", "4.4.0", "4.3.1", True), ("nemesis", "kill", "pause", True),
    ]  # fmt: skip
    paths = [str(stored(tmp_path, day, CLEAN)) for day in (3, 4)]
    ran = CliRunner().invoke(cli, ["compare", *paths], catch_exceptions=False)
    for part in ("stuck-lso  clean   clean", "findings: none in either run", "settings: none differ"):
        assert part in ran.stdout
    before, after = (stored(tmp_path, day, CLEAN) for day in (5, 6))
    (after / "verdict.json").unlink()
    ran = CliRunner().invoke(cli, ["compare", str(before), str(after)], standalone_mode=False)
    assert isinstance(ran.exception, UsageError)
    assert f"{after} has no verdict.json: it is in progress, or was interrupted" in str(ran.exception)


OURS = f"http://{HOST}:8642"
RUN_PAGE = f"runs/{RUN}.html"


@pytest.fixture
def client(results: Path) -> FlaskClient:
    stored(results, 1, ANOMALY)
    return app_of(results).test_client()


def asked(client: FlaskClient, path: str, base: str = OURS) -> tuple[int, str]:
    answer = client.get(path, base_url=base)
    return answer.status_code, answer.get_data(as_text=True)


def test_pages_ask_for_nothing_and_run_no_other_script(client: FlaskClient) -> None:
    for path in ("/", "/index.html", "/anomalies/stuck-lso.html", f"/{RUN_PAGE}"):
        code, text = asked(client, path)
        assert (path, code, "stuck-lso" in text) == (path, 200, True)
    for path in ("/", f"/{RUN_PAGE}"):
        policy = client.get(path, base_url=OURS).headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'")
        scripts = re.findall(r"<script>(.*?)</script>", asked(client, path)[1], re.DOTALL)
        assert len(scripts) == (2 if path == "/" else 1)
        for script in scripts:
            assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy


@pytest.mark.parametrize("path", [
    "/anomalies/none.html", "/runs/none.html", "/runs/../../../etc/passwd.html", "/runs/%2e%2e/%2e%2e/etc/passwd.html",
    "/runs/kafka-4.4/stuck-lso/latest.html", "/kafka-4.4/stuck-lso", "/etc/passwd", "/static/x",
    f"/runs/kafka-4.4/../{RUN}.html",
])  # fmt: skip
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
    code, text = asked(client, f"/{RUN_PAGE}")
    assert (code, "a secret" in text) == (200, False)


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "0.0.0.0"])  # noqa: S104  (it is refused)
def test_pages_are_for_this_host_alone(client: FlaskClient, name: str) -> None:
    assert asked(client, "/", f"http://{name}:8642")[0] == 403


def test_an_unchanged_page_is_not_sent_again(client: FlaskClient, results: Path) -> None:
    etag = client.get("/", base_url=OURS).headers["ETag"]
    again = client.get("/", base_url=OURS, headers={"If-None-Match": etag})
    assert (again.status_code, again.get_data()) == (304, b"")
    stored(results, 2, CLEAN)
    changed = client.get("/", base_url=OURS, headers={"If-None-Match": etag})
    assert (changed.status_code, changed.headers["ETag"] != etag) == (200, True)


def test_nights_and_differences(client: FlaskClient, results: Path) -> None:
    second = stored(results, 2, CLEAN)
    write_night(results, "nightly/one", RUN)
    text = asked(client, "/")[1]
    for path in ("nights/one.html", f"differences/kafka-4.4/stuck-lso/{second.name}.html"):
        assert f'href="{path}"' in text
        code, page = asked(client, f"/{path}")
        assert (code, f'{RUN_PAGE}"' in page) == (200, True)
    for path in ("nights/two.html", "nights/../nights/one.html", f"differences/{RUN_PAGE}"):
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
    assert [part in text for part in ('<a href="">Reload</a>', "<strong>kill broker 2</strong>")] == [True, True]
    assert [part for part in ('http-equiv="refresh"', "Spark is up", "has no verdict.json") if part in text] == []
    (path / "manifest.json").write_text(json.dumps({**manifest, "owner": None}))
    text = asked(client, "/")[1]
    assert "No run is in progress." in text, "its process was killed"
    assert "has no verdict.json: it is in progress, or was interrupted" in text


def test_a_page_that_cannot_be_drawn(client: FlaskClient, results: Path) -> None:
    (results / "kafka-4.4" / "stuck-lso" / ID.format(1) / "history.jsonl").write_text("{\n")
    code, text = asked(client, f"/{RUN_PAGE}")
    assert (code, "the run folder is damaged" in text) == (500, True)


def test_a_port_that_is_taken(results: Path) -> None:
    stored(results, 1, ANOMALY)
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port} of {HOST} is not free; choose another with --port"):
            serving(results, port)
