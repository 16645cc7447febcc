"""A run's work directory, and the keeper that removes it.

The keeper is a process that outlives the harness for a moment, to end the run's processes and delete the directory. It
reads from a pipe whose write end only the harness has. The pipe ends with the harness, by a clean exit, an exception or
``kill -9``. A parent-death signal would follow the spawning thread, and delete no data. The keeper runs in a separate
session, so that Ctrl-C in the terminal does not reach it.
"""

import logging
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.errors import HarnessError, UsageError
from harness.host import leftovers

log = logging.getLogger("harness")

KEEP = b"keep\n"
CLOSE_TIMEOUT_S = 15.0


def start_keeper(work_dir: Path) -> subprocess.Popen[bytes]:
    """Start the keeper of a run, which releases the run when its stdin ends with anything but `KEEP`."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "harness.host.workspace", str(work_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


class Workspace:
    """Ends the run's processes on exit, and deletes the directory unless it is kept or can be resumed."""

    def __init__(self, run_id: str, run_dir: Path, *, again: bool = False) -> None:
        """Claim the directory, or claim it ``again``, and start the keeper.

        Raises `UsageError` if the directory cannot be created, or does not exist any more.
        """
        self.run_id = run_id
        try:
            self.path = leftovers.claim_work_dir(run_id, run_dir, again=again)
        except OSError as error:
            raise UsageError(
                f"the run's data are gone from {leftovers.work_root()}: {error.strerror or error}; start a new run"
                if again
                else f"no work directory can be created in {leftovers.work_root()}: {error.strerror or error};"
                " set TMPDIR to a folder with free space"
            ) from error
        self._keeper = start_keeper(self.path)
        self._is_kept = False

    def keep(self) -> None:
        """Keep processes and data for the user, who removes them with ``harness clean RUN_ID``."""
        self._is_kept = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        keep = self._is_kept and kind is None
        if keep:
            leftovers.change_owner(self.path, kept=True)
        else:
            if (owner := leftovers.read_owner(self.path)) and owner.resumable:
                log.warning("this run can be continued with `harness run --resume %s`", owner.run_dir)
            try:
                leftovers.release(self.path)
            except (HarnessError, OSError) as failure:
                log.warning("%s; `harness clean %s` removes the rest later", failure, self.run_id)
        try:
            self._keeper.communicate(KEEP if keep else None, timeout=CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # The keeper continues in a separate session. The result of the run must not be lost.
            log.warning("the keeper of %s (process %d) is still removing the run", self.run_id, self._keeper.pid)


if __name__ == "__main__":
    if sys.stdin.buffer.read() != KEEP:
        leftovers.release(Path(sys.argv[1]))
