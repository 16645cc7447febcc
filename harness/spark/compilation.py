"""Compiles the loops over bytes once, while Spark starts or a cluster is read, rather than in every worker.

The compilation has a process of its own, as it takes a processor for seconds; workers that need a loop meanwhile
wait for it (`harness.broker_files.segments.jit`). For big audits only: little data is read by a reader without compiled
loops.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from harness.host.cache import compiled_folder

if TYPE_CHECKING:
    from pathlib import Path

COMPILED = ("harness.broker_files.segments.kernels", "harness.broker_files.segments.fields")
"""Modules that compile their loops, or load them, when they are imported."""

_LAST = "*/fields.walk_headers-*.nbi"
"""The file of the last loop in numba's cache; where it is of another version, workers compile again."""


def compile_all() -> None:
    """Compile the loops that are not compiled yet, for this user and processor."""
    for module in COMPILED:
        import_module(module)


def start_compilation() -> None:
    """Start a process that compiles, unless all is compiled; it ends by itself, and no process waits for it."""
    if not any(compiled_folder().glob(_LAST)):
        start_beside(__name__)


def start_beside(module: str, *arguments: str, cwd: Path | None = None) -> None:
    """Run a module in a process that outlives this one and prints nothing; do nothing if no process can be started."""
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
            start_new_session=True,
        )


if __name__ == "__main__":
    compile_all()
