"""Pages in a real browser: everything is visible, no script fails, and no host is contacted."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from browsers import install_axe, violations
from pages import hostile_page, write_night
from playwright.sync_api import Browser, Dialog, Page
from sandbox import Run

import harness.report
from harness.errors import EXIT_CLEAN

pytestmark = pytest.mark.needs("chromium")

WIDE, PHONE = (1200, 900), (400, 800)
TEMPLATES: Final = Path(harness.report.__file__).parent / "templates"
BEFORE: Final = "2026-01-01T00-00-00Z-beef"
"""An earlier run of the same kind, of which only manifest and verdict are left."""


@pytest.fixture(params=[(WIDE, "light"), (WIDE, "dark"), (PHONE, "light")], ids=["light", "dark", "phone"])
def look(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    """Give a window of some size; what goes wrong in it fails in the end."""
    (width, height), scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    messages: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda sent: asked.append(sent.url))
    yield page
    assert messages == []
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
    context.close()


@pytest.fixture(scope="module")
def run(run_of: Callable[[str, str], Run]) -> Run:
    return run_of("kafka-3.9", "kill")


@pytest.fixture
def report(look: Page, run: Run) -> Page:
    look.goto((run.folder / "report.html").as_uri())
    return look


@pytest.fixture(scope="module")
def results(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a results folder with the run, an earlier one, and a night."""
    top = tmp_path_factory.mktemp("results")
    name = run.folder.relative_to(run.sandbox.results)
    shutil.copytree(run.folder, top / name)
    (top / name.parent / BEFORE).mkdir()
    for file in ("manifest.json", "verdict.json"):
        content = json.loads((run.folder / file).read_text())
        changed = {"seed": 1} if file == "manifest.json" else {"verdict": "clean", "findings": []}
        (top / name.parent / BEFORE / file).write_text(json.dumps({**content, **changed}))
    write_night(top, "nightly/one", name.as_posix())
    return top


@pytest.fixture(scope="module")
def site(run: Run, results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "site"
    run.sandbox.call("report", "--results", str(results), "--out", str(out), code=EXIT_CLEAN)
    return out


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_axe(tmp_path_factory.mktemp("axe"))


@pytest.mark.commit
def test_verdict_timeline_and_logs_can_be_seen(report: Page) -> None:
    assert report.locator("h1").inner_text().startswith("ANOMALY")
    for picture in ("Timeline of stuck-lso-0", "Transactions of stuck-lso-0"):
        assert report.get_by_role("img", name=picture).locator("svg").is_visible()
    logs = report.get_by_role("region", name="Logs of stuck-lso-0")
    assert logs.is_visible()
    assert logs.locator("td.found").inner_text().startswith("K = V")
    assert "… open here" in logs.locator("td.open").first.inner_text()
    assert "never seen here" in logs.inner_text()
    assert_no_wider_than_the_window(report)


def assert_no_wider_than_the_window(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_text_stands_out_from_what_is_behind_it(report: Page) -> None:
    """Contrast of at least 4.5 (WCAG 2, AA) for the words of a few kinds."""
    for place in ("h1", "p.faint", ".verdict.anomaly", "td.open", "td.missing", "pre"):
        assert report.locator(place).first.evaluate(CONTRAST) >= 4.5, place


def test_a_fold_and_its_background_traffic_are_shown_by_the_keyboard_alone(report: Page) -> None:
    logs = report.get_by_role("region", name="Logs of control-0")
    assert not logs.is_visible()
    report.locator("summary", has_text="control-0").focus()
    for is_open in (True, False):
        report.keyboard.press("Enter")
        assert logs.is_visible() is is_open
    report.get_by_role("navigation", name="Contents").get_by_role("link", name="control-0").click()
    box = report.get_by_role("checkbox", name="rows of background traffic").last
    hidden = logs.locator("tr.background").first
    assert not hidden.is_visible()
    box.focus()
    report.keyboard.press("Space")
    assert hidden.is_visible()


def test_the_headline_says_who_is_hurt_and_its_timeline_follows(report: Page) -> None:
    headline = report.locator("h1").inner_text().removeprefix("ANOMALY: ")
    assert re.fullmatch(r"\d+ findings on broker 2, in \d kinds", headline)
    assert headline in report.title()
    assert report.locator("body").inner_text().count(headline) == 1
    figure = report.get_by_role("img", name="Timeline of stuck-lso-0").bounding_box()
    assert figure is not None
    assert figure["y"] < report.evaluate("innerHeight")


def test_a_finding_leads_to_its_witness_and_its_row(report: Page) -> None:
    logs = report.get_by_role("region", name="Logs of tombstone-divergence-0")
    logs.get_by_role("link", name="finding 1").click()
    report.wait_for_url("**#finding-1")
    report.locator("#finding-1 summary").click()
    assert "deleted_at" in report.locator("#finding-1 details pre").inner_text()
    report.locator("#finding-1 h4 a").last.click()
    assert "finding 1" in report.locator("tr:target").inner_text()


def test_the_first_key_skips_to_the_findings(report: Page) -> None:
    report.keyboard.press("Tab")
    assert report.evaluate("document.activeElement.textContent") == "Skip to the findings and logs"
    report.keyboard.press("Enter")
    report.wait_for_url("**#topics")


def test_a_button_copies_the_witness(report: Page) -> None:
    report.context.grant_permissions(["clipboard-read", "clipboard-write"])
    report.locator("#finding-1 summary").click()
    button = report.locator("#finding-1").get_by_role("button", name="Copy: Witness")
    button.focus()
    report.keyboard.press("Enter")
    report.get_by_text("Copied").wait_for()
    copied = json.loads(report.evaluate("navigator.clipboard.readText()"))
    assert copied["witness"]["deleted_at"] > copied["offset"]


def test_paper_shows_what_is_folded(report: Page) -> None:
    report.emulate_media(media="print", color_scheme="no-preference")
    assert report.get_by_role("region", name="Logs of control-0").is_visible()
    assert not report.locator("#finding-1 details pre").is_visible()
    assert not report.get_by_role("button").first.is_visible()
    assert not report.get_by_role("navigation").is_visible()


@pytest.mark.commit
def test_hostile_text_is_nothing_but_text(look: Page, tmp_path: Path) -> None:
    """A dialog would hang the browser, an unknown address would be asked for, and either fails."""
    (tmp_path / "hostile.html").write_text(hostile_page(tmp_path), encoding="utf-8")
    opened: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        opened.append(dialog.message)
        dialog.dismiss()

    look.on("dialog", dismiss)
    look.goto((tmp_path / "hostile.html").as_uri())
    message = r"""<script>alert(1)</script>\x00\u202e\x1b[31m&"'"""
    assert message in look.get_by_role("region", name="Logs of t-0").inner_text()
    assert message in look.locator("#finding-1").inner_text()
    assert look.get_by_text("… (1,048,576 bytes)").first.is_visible()
    assert look.locator("script").all_inner_texts() == [(TEMPLATES / "copy.js").read_text().rstrip("\n")]
    assert look.locator("img[onerror]").count() == 0
    assert opened == []
    assert_no_wider_than_the_window(look)


@pytest.mark.commit
def test_the_site_leads_from_versions_to_anomalies_to_runs(look: Page, site: Path, run: Run) -> None:
    look.goto((site / "index.html").as_uri())
    matrix = look.get_by_role("region", name="Verdicts by anomaly and version")
    stuck = matrix.get_by_role("row", name="stuck-lso value")
    assert stuck.inner_text().split("\t")[-1].strip() == "✗ ANOMALY 2 of 2"
    assert look.get_by_role("img", name="Verdicts of all runs over time").locator("svg").is_visible()
    assert_no_wider_than_the_window(look)
    stuck.get_by_role("link", name="stuck-lso").click()
    assert look.get_by_role("region", name="Logs of stuck-lso-0").is_visible()
    assert_no_wider_than_the_window(look)
    look.get_by_role("link", name=run.folder.name).click()
    assert look.locator("h1").inner_text().startswith("ANOMALY")


def test_the_table_of_runs_is_filtered_and_sorted_by_the_keyboard(look: Page, site: Path, run: Run) -> None:
    look.goto((site / "index.html").as_uri())
    table = look.get_by_role("region", name="All runs, newest first")

    def ids() -> list[str]:
        return [one.inner_text() for one in table.get_by_role("rowheader").all()]

    assert ids() == [run.folder.name, BEFORE]
    verdict = table.locator("td").get_by_text("✓ clean").bounding_box()
    assert verdict is not None
    assert verdict["x"] + verdict["width"] <= look.evaluate("innerWidth")
    sort = table.get_by_role("columnheader", name="run").get_by_role("button")
    for order, first in (("ascending", BEFORE), ("descending", run.folder.name)):
        sort.focus()
        look.keyboard.press("Enter")
        assert table.locator("th[aria-sort]").get_attribute("aria-sort") == order
        assert ids()[0] == first
    look.get_by_label("verdict", exact=True).focus()
    look.keyboard.press("ArrowDown")
    assert ids() == [BEFORE]
    assert look.get_by_role("status").inner_text() == "1 of 2"
    look.reload()
    assert ids() == [BEFORE]
    look.get_by_label("anomaly", exact=True).select_option("stuck-lso")
    look.get_by_label("verdict", exact=True).select_option("all")
    assert ids() == [run.folder.name, BEFORE]


def pages_of(site: Path, run: Run) -> dict[str, Path]:
    name = f"{run.folder.relative_to(run.sandbox.results)}.html"
    return {
        "index": site / "index.html", "run": site / "runs" / name, "differences": site / "differences" / name,
        "anomaly": site / "anomalies" / "stuck-lso.html", "night": site / "nights" / "one.html",
    }  # fmt: skip


@pytest.mark.needs("npm registry")
@pytest.mark.parametrize("kind", ["index", "run", "differences", "anomaly", "night"])
def test_a_page_breaks_no_rule_of_axe(look: Page, site: Path, run: Run, axe: Path, kind: str) -> None:
    look.goto(pages_of(site, run)[kind].as_uri())
    for fold in look.locator("summary").all():
        fold.evaluate("summary => { summary.parentElement.open = true; }")
    assert violations(look, axe) == []
    assert_no_wider_than_the_window(look)


@pytest.mark.needs("npm registry")
def test_axe_finds_what_is_wrong(look: Page, site: Path, run: Run, axe: Path) -> None:
    look.goto(pages_of(site, run)["index"].as_uri())
    look.evaluate("document.documentElement.removeAttribute('lang')")
    assert [one.partition(":")[0] for one in violations(look, axe)] == ["html-has-lang"]


@pytest.mark.commit
@pytest.mark.parametrize("kind", ["index", "run"])
def test_nothing_is_missing_without_a_script(browser: Browser, site: Path, run: Run, kind: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages_of(site, run)[kind].as_uri())
    assert page.get_by_role("button").count() == 0
    if kind == "index":
        assert page.get_by_role("region", name="All runs, newest first").get_by_role("row").count() == 1 + 2
    else:
        assert page.locator("#finding-1 pre").first.is_visible()
        page.locator("summary", has_text="control-0").click()
        assert page.get_by_role("region", name="Logs of control-0").is_visible()
    context.close()


def test_a_run_is_compared_with_the_one_before(browser: Browser, site: Path, run: Run) -> None:
    page = browser.new_page()
    page.goto(pages_of(site, run)["index"].as_uri())
    page.get_by_role("link", name=f"changes of {run.folder.name}").click()
    settings = page.get_by_role("region", name="Settings, before and after")
    assert settings.get_by_role("row", name="seed").inner_text().split("\t")[1] == "1"
    assert "stuck-lso on broker 2" in page.get_by_role("region", name="Findings, before and after").inner_text()
    page.get_by_role("link", name=run.folder.name).click()
    assert page.locator("h1").inner_text().startswith("ANOMALY")
    page.close()


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
