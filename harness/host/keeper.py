"""A process that outlives the harness by a moment, to take the run apart whatever ended the harness.

It holds the read end of a pipe whose write end only the harness has. When the pipe ends, by a clean exit,
an exception or ``kill -9``, it ends the run's processes and deletes the run's work directory. A
parent-death signal would not do: it follows the spawning thread, and it deletes no data. The keeper runs in
a session of its own, so that Ctrl-C in the terminal does not reach it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import IO

from harness.host import leftovers

KEEP = b"keep\n"
CLOSE_TIMEOUT_S = 15.0


class Keeper:
    """The harness's end of the pipe."""

    def __init__(self, run_id: str, work_dir: Path) -> None:
        """Start the keeper process for this run."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.host.keeper", run_id, str(work_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self, *, keep: bool) -> None:
        """End the keeper; unless ``keep``, it takes the run apart first, and this waits for that."""
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            return
        if keep:
            pipe.write(KEEP)
        pipe.close()
        self._process.wait(timeout=CLOSE_TIMEOUT_S)


def guard(pipe: IO[bytes], run_id: str, work_dir: Path) -> None:
    """Wait for the pipe to end, then take the run apart unless its last word was ``keep``."""
    if pipe.read() != KEEP:
        leftovers.release(run_id, work_dir)


if __name__ == "__main__":
    guard(sys.stdin.buffer, sys.argv[1], Path(sys.argv[2]))
