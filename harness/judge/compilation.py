"""The loops over bytes are compiled while Spark starts, or while a cluster is read, and not in every worker after that.

It is done in a process of its own, as it takes a processor for seconds; workers that come to need a loop meanwhile
wait for it (`harness.brokers.segments.jit`). For big audits only: little is read by a reader that needs no compiling.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from importlib import import_module

from harness.host.cache import compiled_folder

COMPILED = ("harness.brokers.segments.kernels", "harness.brokers.segments.fields", "checkers.evidence.groups")
"""Modules that compile their loops, or load them, when they are imported."""

_LAST = "*/groups._number-*.nbi"
"""What the last of them leaves in numba's cache; where it was left by another version, workers compile anew."""


def compile_all() -> None:
    """Compile what was not compiled before, for this user and processor."""
    for module in COMPILED:
        import_module(module)


def compile_beside() -> None:
    """Start a process that compiles, unless that was done; it ends by itself, and nobody waits for it."""
    if not any(compiled_folder().glob(_LAST)):
        with suppress(OSError):
            subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )


if __name__ == "__main__":
    compile_all()
