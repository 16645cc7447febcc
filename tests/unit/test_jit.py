"""Loops that are compiled: by one process, whatever asks for them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COUNTING = """
from numba.core import event
from numba.core.event import Listener

class Count(Listener):
    count = 0
    def on_start(self, _): Count.count += 1
    def on_end(self, _): pass

event.register("numba:compile", Count())
import checkers.evidence.groups
print(Count.count)
"""


def test_processes_that_need_a_loop_at_once_compile_it_once(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    processes = [
        subprocess.Popen([sys.executable, "-c", COUNTING], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    counts = [int(process.communicate()[0]) for process in processes]
    assert sorted(counts) == [0, 1]
