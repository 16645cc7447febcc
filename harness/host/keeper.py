"""A process that outlives the harness for a moment, to end the run's processes and delete its work directory.

It reads from a pipe whose write end only the harness has. The pipe ends with the harness, by a clean exit, an exception
or ``kill -9``. A parent-death signal would follow the spawning thread, and delete no data. The keeper runs in a
separate session, so that Ctrl-C in the terminal does not reach it.
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
        """End the keeper; unless ``keep``, wait until it has released the run."""
        pipe = self._process.stdin
        if pipe is None or pipe.closed:
            return
        if keep:
            pipe.write(KEEP)
        pipe.close()
        self._process.wait(timeout=CLOSE_TIMEOUT_S)


def guard(pipe: IO[bytes], run_id: str, work_dir: Path) -> None:
    """Wait for the end of the pipe, then release the run unless the pipe's content is `KEEP`."""
    if pipe.read() != KEEP:
        leftovers.release(run_id, work_dir)


if __name__ == "__main__":
    guard(sys.stdin.buffer, sys.argv[1], Path(sys.argv[2]))
