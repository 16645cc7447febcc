"""A run's work directory, and the keeper that removes it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from harness.errors import HarnessError, UsageError
from harness.host import leftovers
from harness.host.keeper import Keeper

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

log = logging.getLogger("harness")


class Workspace:
    """Ends the run's processes on exit, and deletes the directory unless it is kept or can be resumed."""

    def __init__(self, run_id: str, run_dir: Path, *, again: bool = False) -> None:
        """Claim the directory, or claim it ``again``, and start the keeper.

        Raises `UsageError` if the directory cannot be created, or does not exist any more.
        """
        self.run_id = run_id
        try:
            self.path = (leftovers.reclaim_work_dir if again else leftovers.claim_work_dir)(run_id, run_dir)
        except OSError as error:
            raise UsageError(
                f"the run's data are gone from {leftovers.work_root()}: {error.strerror or error}; start a new run"
                if again
                else f"no work directory can be created in {leftovers.work_root()}: {error.strerror or error};"
                " set TMPDIR to a folder with free space"
            ) from error
        self._keeper = Keeper(run_id, self.path)
        self._kept = False

    def keep(self) -> None:
        """Keep processes and data for the user, who removes them with ``harness clean RUN_ID``."""
        self._kept = True

    def let_resume(self, *, resumable: bool) -> None:
        """Set whether the data are kept if the run is interrupted."""
        leftovers.change_owner(self.path, resumable=resumable)

    def __enter__(self) -> Self:
        """Return the workspace."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the run, or leave it to the user."""
        if self._kept and kind is None:
            leftovers.change_owner(self.path, kept=True)
            self._keeper.close(keep=True)
        else:
            try:
                leftovers.release(self.run_id, self.path)
            except (HarnessError, OSError) as failure:
                log.warning("%s; `harness clean %s` removes the rest later", failure, self.run_id)
            self._keeper.close(keep=False)
