"""Loops that are compiled: by one process, whatever asks for them."""

import os
import subprocess
import sys
from pathlib import Path

LOOP = """
from numba import int64
from harness.broker_files.segments.jit import compiled

@compiled(int64(int64))
def twice(number):
    return 2 * number
"""
COUNTING = """
import sys
from numba.core import event
from numba.core.event import Listener

class Count(Listener):
    count = 0
    def on_start(self, _): Count.count += 1
    def on_end(self, _): pass

event.register("numba:compile", Count())
sys.path.insert(0, sys.argv[1])
import loop
print(Count.count)
"""


def test_processes_that_need_a_loop_at_once_compile_it_once(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    command = [sys.executable, "-c", COUNTING, str(tmp_path)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(2)]
    counts = [int(process.communicate()[0]) for process in processes]
    assert sorted(counts) == [0, 1]
