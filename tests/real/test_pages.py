"""Pages in a real browser: what is there can be seen, nothing goes wrong, and no host is asked for anything."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from pages import hostile_page
from playwright.sync_api import sync_playwright

from harness.errors import EXIT_CLEAN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Dialog, Page
    from sandbox import Run

pytestmark = pytest.mark.timeout(600)

WIDE, PHONE = (1200, 900), (400, 800)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium")
    assert found is not None, "missing: chromium (apt-get install chromium)"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


LOOKS = pytest.mark.parametrize(
    "look", [(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")], ids=["light", "dark", "phone"], indirect=True
)


@pytest.fixture
def look(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """Give a window of some size; what goes wrong in it fails in the end."""
    (width, height), scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda sent: asked.append(sent.url))
    yield page
    assert said == []
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
    context.close()


@pytest.fixture(scope="module")
def run(run_of: Callable[[str, str], Run]) -> Run:
    """Give a run that found every payload."""
    return run_of("kafka-3.9", "kill")


@pytest.fixture
def report(look: Page, run: Run) -> Page:
    look.goto((run.folder / "report.html").as_uri())
    return look


@pytest.fixture(scope="module")
def site(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    ran = run.sandbox.call("report", "--out", str(out))
    assert ran.code == EXIT_CLEAN, ran.said
    return out


@LOOKS
def test_verdict_timeline_and_logs_can_be_seen(report: Page) -> None:
    assert report.locator("h1").inner_text().startswith("ANOMALY")
    for picture in ("Timeline of stuck-lso-0", "Transactions of stuck-lso-0"):
        assert report.get_by_role("img", name=picture).locator("svg").is_visible()
    logs = report.get_by_role("region", name="Logs of stuck-lso-0")
    assert logs.is_visible()
    assert logs.locator("td.found").inner_text().startswith("K = V")
    assert "… open here" in logs.locator("td.open").first.inner_text()
    assert "never seen here" in logs.inner_text()


@LOOKS
def test_nothing_but_tables_and_pictures_is_wider_than_the_window(report: Page) -> None:
    assert_no_wider_than_the_window(report)


def assert_no_wider_than_the_window(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@LOOKS
def test_text_stands_out_from_what_is_behind_it(report: Page) -> None:
    """Contrast of at least 4.5 (WCAG 2, AA) for the words of a few kinds."""
    for place in ("h1", "p.faint", ".verdict.anomaly", "td.open", "td.missing", "pre"):
        assert report.locator(place).first.evaluate(CONTRAST) >= 4.5, place


@LOOKS
def test_background_traffic_is_shown_by_the_keyboard_alone(report: Page) -> None:
    box = report.get_by_role("checkbox", name="rows of background traffic").last
    hidden = report.get_by_role("region", name="Logs of control-0").locator("tr.background").first
    assert not hidden.is_visible()
    box.focus()
    report.keyboard.press("Space")
    assert hidden.is_visible()


@LOOKS
def test_a_finding_leads_to_its_witness(report: Page) -> None:
    report.get_by_role("link", name="finding 1").click()
    assert report.url.endswith("#finding-1")
    assert "deleted_at" in report.locator("#finding-1 pre").inner_text()


@LOOKS
def test_hostile_text_is_nothing_but_text(look: Page, tmp_path: Path) -> None:
    """A dialog would hang the browser, an unknown address would be asked for, and either fails."""
    (tmp_path / "hostile.html").write_text(hostile_page(tmp_path), encoding="utf-8")
    opened: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        opened.append(dialog.message)
        dialog.dismiss()

    look.on("dialog", dismiss)
    look.goto((tmp_path / "hostile.html").as_uri())
    said = r"""<script>alert(1)</script>\x00\u202e\x1b[31m&"'"""
    assert said in look.get_by_role("region", name="Logs of t-0").inner_text()
    assert said in look.locator("#finding-1").inner_text()
    assert look.get_by_text("… (1,048,576 bytes)").first.is_visible()
    assert look.locator("script, img[onerror]").count() == 0
    assert opened == []
    assert_no_wider_than_the_window(look)


@LOOKS
def test_the_site_leads_from_versions_to_anomalies_to_runs(look: Page, site: Path, run: Run) -> None:
    look.goto((site / "index.html").as_uri())
    matrix = look.get_by_role("region", name="Verdicts by anomaly and version")
    assert matrix.get_by_role("row", name="stuck-lso").inner_text().split("\t")[-1].strip() == "✗ ANOMALY 1 of 1"
    assert look.get_by_role("img", name="Verdicts of all runs over time").locator("svg").is_visible()
    assert_no_wider_than_the_window(look)
    matrix.get_by_role("link", name="stuck-lso").click()
    assert look.get_by_role("region", name="Logs of stuck-lso-0").is_visible()
    assert_no_wider_than_the_window(look)
    look.get_by_role("link", name=run.folder.name).click()
    assert look.locator("h1").inner_text().startswith("ANOMALY")


CONTRAST = """
element => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  let behind = element;
  while (behind && (numbers(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
  const ink = light(numbers(getComputedStyle(element).color));
  const paper = light(behind ? numbers(getComputedStyle(behind).backgroundColor) : [255, 255, 255]);
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}
"""
