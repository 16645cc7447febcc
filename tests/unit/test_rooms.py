"""Folders of the project: few entries, a docstring for each, and imports in one direction."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = sorted(path.parent for top in ("harness", "checkers") for path in (ROOT / top).rglob("__init__.py"))


def layers() -> list[str]:
    """Return the modules in the layers of pyproject.toml."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    return re.findall(r"[\w.]+", " ".join(contract["layers"]))


def test_every_entry_of_the_harness_has_a_layer() -> None:
    entries = {path.stem for path in (ROOT / "harness").iterdir() if not path.name.startswith("__")}
    assert sorted(f"harness.{entry}" for entry in entries) == sorted(name for name in layers() if "." in name)


def test_the_harness_has_few_modules_beside_its_folders() -> None:
    assert len([path for path in (ROOT / "harness").iterdir() if path.is_file()]) <= 10


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_every_folder_says_what_is_in_it_and_what_is_not(room: Path) -> None:
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    assert len([line for line in text.splitlines() if line]) >= 3


def test_in_the_picture_every_import_goes_to_an_entry_further_below() -> None:
    sys.path.insert(0, str(ROOT / "docs" / "pictures"))
    try:
        pictures = import_module("imports")
    finally:
        sys.path.pop(0)
    drawn = re.findall(
        r'<rect class="box" [^>]*? y="([\d.]+)"[^>]*/><text[^>]*>(\w+)</text>',
        (ROOT / "docs/pictures/imports.svg").read_text(),
    )
    height = {name: float(y) for y, name in drawn}
    entries = pictures.imports()
    assert set(height) == set(entries.nodes)
    assert [(above, below) for above, below in entries.edges if height[above] >= height[below]] == []
