"""Every environment variable that the source reads is listed by `harness settings`, and so on its page."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from documentation import ROOT

from harness.cli.lists import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = re.compile("COMPACTION_HARNESS_[A-Z_]+|HARNESS_CONFIG")
OTHERS = {"SPARK_CONNECT_MODE", "SPARK_LOCAL_IP", "PYSPARK_DRIVER_PYTHON"}
"""Variables that the harness sets, or takes away, for its own Spark."""


def variables_read() -> Iterator[str]:
    """Yield the names of the environment variables that the source reads."""
    for package in ("harness", "checkers", "models", "nemesis", "workloads"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and OWN.fullmatch(str(node.value)):
                    yield str(node.value)
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "os.environ.get":
                    yield from (str(name.value) for name in node.args[:1] if isinstance(name, ast.Constant))


def test_every_variable_that_is_read_is_listed() -> None:
    read = set(variables_read())
    assert {"JAVA_HOME", "HARNESS_CONFIG", "COMPACTION_HARNESS_CACHE"} <= read
    assert read - OTHERS - {name for name, _ in VARIABLES} == set()
