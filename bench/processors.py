"""A command's seconds, and the processor seconds of everything that it started."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PR_SET_CHILD_SUBREAPER = 36
"""A process that loses its parent becomes a child of this one, so that its processor time counts (prctl(2))."""


class Took(NamedTuple):
    """Wall time holds for a quiet machine alone; processor time on a busy one too, within a fifth or so."""

    wall_s: float
    processors_s: float


def timed(command: Sequence[str], environment: Mapping[str, str]) -> Took:
    """Run a command that judges, and wait for the processes that it leaves, which count as processor time."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    before_s = _children_s()
    started_s = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    wall_s = time.monotonic() - started_s
    if done.returncode not in {EXIT_CLEAN, EXIT_ANOMALY, EXIT_UNKNOWN}:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return Took(wall_s, _children_s() - before_s)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
