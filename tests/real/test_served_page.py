"""The page of `harness serve` in a browser during runs: changes arrive, and the reader's state stays."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from browsers import install_axe, violations
from fakes import http_servers
from playwright.sync_api import Browser, Page, ViewportSize
from test_site import ID, stored
from werkzeug.serving import BaseWSGIServer

from harness.host import leftovers
from harness.judge.verdict import ANOMALY, CLEAN
from harness.report.site import serving

pytestmark = pytest.mark.needs("chromium")

SMALL: Final[ViewportSize] = {"width": 400, "height": 500}
CHANGE_MS = 20_000


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Return a results folder with two runs that ended, and one of this process at its first stage."""
    top = tmp_path / "results"
    *_, path = (stored(top, day, verdict) for day, verdict in ((1, ANOMALY), (2, CLEAN), (3, CLEAN)))
    (path / "verdict.json").rename(path / "verdict.later")
    change_manifest(path, status="running", owner=leftovers.owner_of_this_process(path.name, path))
    reach(path, "boot")
    return top


@pytest.fixture
def server(results: Path) -> Iterator[BaseWSGIServer]:
    one = serving(results, 0)
    with http_servers.serving(one):
        yield one


@contextmanager
def opened(browser: Browser, server: BaseWSGIServer, **options: Any) -> Iterator[Page]:
    with browser.new_context(viewport=SMALL, **options) as context:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.port}/")
        yield page


@pytest.fixture
def page(browser: Browser, server: BaseWSGIServer) -> Iterator[Page]:
    errors: list[str] = []
    with opened(browser, server) as page:
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.reload()
        page.get_by_text("This page shows changes as they happen.").wait_for()
        yield page
        assert errors == []


def change_manifest(path: Path, **fields: Any) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **fields}))


def reach(path: Path, stage: str) -> None:
    with (path / "harness.log").open("a") as log:
        log.write(f"2026-11-22 17:49:06,793 INFO harness {stage}\n")


def end(path: Path) -> None:
    change_manifest(path, status="complete")
    (path / "verdict.later").rename(path / "verdict.json")


def run_of(results: Path, day: int) -> Path:
    return results / "kafka-4.4" / "stuck-lso" / ID.format(day)


def ids(page: Page) -> list[str]:
    rows = page.get_by_role("region", name="All runs, newest first").get_by_role("rowheader").all()
    return [row.inner_text() for row in rows if row.is_visible()]


def top_px(page: Page) -> float:
    """Return where the table of runs stands in the window."""
    return float(page.evaluate("document.querySelector('#runs').getBoundingClientRect().top"))


@pytest.mark.commit
def test_stages_and_new_runs_come_in_by_themselves(page: Page, results: Path) -> None:
    assert ids(page) == [ID.format(2), ID.format(1)]
    reach(run_of(results, 3), "kill broker 2")
    page.get_by_text("kill broker 2").wait_for(timeout=CHANGE_MS)
    end(run_of(results, 3))
    page.get_by_text("No run is in progress.").wait_for(timeout=CHANGE_MS)
    assert ids(page) == [ID.format(3), ID.format(2), ID.format(1)]
    assert page.locator("header").inner_text().count("3 runs") == 1


def test_filters_order_focus_and_scroll_position_stay(page: Page, results: Path) -> None:
    page.get_by_label("verdict", exact=True).select_option("✓ clean")
    sort = page.get_by_role("columnheader", name="run").get_by_role("button")
    sort.click()
    page.evaluate("document.querySelector('#runs').scrollIntoView()")
    page.get_by_label("verdict", exact=True).focus()
    before_px = top_px(page)
    end(run_of(results, 3))
    page.get_by_role("link", name=ID.format(3), exact=True).wait_for(timeout=CHANGE_MS)
    assert ids(page) == [ID.format(2), ID.format(3)]
    assert page.evaluate("document.activeElement.ariaLabel") == "verdict"
    assert abs(top_px(page) - before_px) < 2


def test_a_fold_stays_open(page: Page, results: Path) -> None:
    (run_of(results, 1) / "verdict.json").write_text("{")
    fold = page.locator("details")
    fold.wait_for(timeout=CHANGE_MS)
    fold.locator("summary").click()
    (run_of(results, 2) / "verdict.json").write_text("{")
    page.get_by_text("2 folders").wait_for(timeout=CHANGE_MS)
    assert fold.locator("li").first.is_visible()
    assert ids(page) == []


@pytest.mark.commit
def test_a_server_that_ended_is_reported(page: Page, server: BaseWSGIServer) -> None:
    server.shutdown()
    server.server_close()
    page.get_by_text("The server does not answer; this page may be out of date.").wait_for(timeout=CHANGE_MS)


def test_without_a_script_a_link_reloads(browser: Browser, server: BaseWSGIServer, results: Path) -> None:
    with opened(browser, server, java_script_enabled=False) as page:
        reach(run_of(results, 3), "kill broker 2")
        page.get_by_role("link", name="Reload").click()
        page.get_by_text("kill broker 2").wait_for()


@pytest.mark.needs("npm registry")
def test_it_breaks_no_rule_of_axe(browser: Browser, server: BaseWSGIServer, tmp_path: Path) -> None:
    with opened(browser, server, bypass_csp=True) as page:
        assert violations(page, install_axe(tmp_path)) == []
