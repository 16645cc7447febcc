"""Pages in a real browser: what is there can be seen, nothing goes wrong, and no host is asked for anything."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page
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


@pytest.fixture(params=[(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")], ids=["light", "dark", "phone"])
def report(request: pytest.FixtureRequest, browser: Browser, run_of: Callable[[str, str], Run]) -> Iterator[Page]:
    """Open the report of a run that found every payload, and look at it: what goes wrong fails in the end."""
    (width, height), scheme = request.param
    run = run_of("kafka-3.9", "kill")
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda sent: asked.append(sent.url))
    page.goto((run.folder / "report.html").as_uri())
    yield page
    assert said == []
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
    context.close()


def test_verdict_timeline_and_logs_can_be_seen(report: Page) -> None:
    assert report.locator("h1").inner_text().startswith("ANOMALY")
    assert report.get_by_role("img", name="Timeline of stuck-lso-0").locator("svg").is_visible()
    logs = report.get_by_role("region", name="Logs of stuck-lso-0")
    assert logs.is_visible()
    assert logs.locator("td.found").inner_text().startswith("K = V")
    assert "… open here" in logs.locator("td.open").first.inner_text()
    assert "never seen here" in logs.inner_text()


def test_nothing_but_tables_and_pictures_is_wider_than_the_window(report: Page) -> None:
    assert report.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_text_stands_out_from_what_is_behind_it(report: Page) -> None:
    """Contrast of at least 4.5 (WCAG 2, AA) for the words of a few kinds."""
    for place in ("h1", "p.faint", ".verdict.anomaly", "td.open", "td.missing", "pre"):
        assert report.locator(place).first.evaluate(CONTRAST) >= 4.5, place


def test_background_traffic_is_shown_by_the_keyboard_alone(report: Page) -> None:
    box = report.get_by_role("checkbox", name="rows of background traffic").last
    hidden = report.get_by_role("region", name="Logs of control-0").locator("tr.background").first
    assert not hidden.is_visible()
    box.focus()
    report.keyboard.press("Space")
    assert hidden.is_visible()


def test_a_finding_leads_to_its_witness(report: Page) -> None:
    report.get_by_role("link", name="finding 1").click()
    assert report.url.endswith("#finding-1")
    assert "deleted_at" in report.locator("#finding-1 pre").inner_text()


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
