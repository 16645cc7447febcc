"""Folders of the project: each entry has a layer in pyproject.toml and a place in the picture of imports."""

import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def layers() -> list[str]:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    return re.findall(r"[\w.]+", " ".join(contract["layers"]))


def test_every_entry_of_the_harness_has_a_layer_and_few_are_modules() -> None:
    paths = [path for path in (ROOT / "harness").iterdir() if path.is_dir() or path.suffix == ".py"]
    entries = {path.stem for path in paths if not path.name.startswith("__")}
    assert entries == {name.split(".")[1] for name in layers() if name.startswith("harness.")}
    assert len([path for path in (ROOT / "harness").iterdir() if path.suffix == ".py"]) <= 10


def test_the_picture_of_imports_has_every_entry() -> None:
    sys.path.insert(0, str(ROOT / "docs" / "pictures"))
    try:
        pictures = import_module("imports")
    finally:
        sys.path.pop(0)
    drawn = re.findall(
        r'<rect class="box" [^>]*/><text[^>]*>(\w+)</text>', (ROOT / "docs/pictures/imports.svg").read_text()
    )
    assert set(drawn) == set(pictures.imports().nodes)
