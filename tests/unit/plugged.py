"""Plugins as an installer leaves them: packages with metadata, in a folder of Python's path; and code run there."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plugin"
RUN_S = 120


def install(folder: Path, distribution: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    """Write the metadata of a distribution. ``entry_points``: by group, without the common prefix."""
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[compaction_harness.{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))


def install_example(folder: Path) -> None:
    """Install ``examples/plugin``, as its pyproject.toml says."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    entries = {name.removeprefix("compaction_harness."): of for name, of in project["entry-points"].items()}
    shutil.copytree(EXAMPLE / "example_plugin", folder / "example_plugin")
    install(folder, project["name"], entries)


def python(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a folder that is the first one of Python's path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    return subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S,
        check=False,
    )  # fmt: skip
