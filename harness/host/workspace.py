"""A run's work directory and the keeper that removes it: everything temporary of a run, with one owner."""

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
    """On exit the run's processes are ended and the directory is deleted, unless kept or to be resumed."""

    def __init__(self, run_id: str, run_dir: Path, *, again: bool = False) -> None:
        """Claim the directory, or claim it ``again``, and start the keeper.

        Raises `UsageError` where there is no room for one, or none any more.
        """
        self.run_id = run_id
        try:
            self.path = (leftovers.reclaim_work_dir if again else leftovers.claim_work_dir)(run_id, run_dir)
        except OSError as error:
            raise UsageError(
                f"the run's data are gone from {leftovers.work_root()}: {error.strerror or error}; run it anew"
                if again
                else f"no work directory can be made under {leftovers.work_root()}: {error.strerror or error};"
                " set TMPDIR to a folder with room"
            ) from error
        self._keeper = Keeper(run_id, self.path)
        self._kept = False

    def keep(self) -> None:
        """Leave processes and data to the user, who ends them with ``harness clean RUN_ID``."""
        self._kept = True

    def let_resume(self, *, resumable: bool) -> None:
        """Say whether the data are kept when the run is cut off from now on."""
        leftovers.change_owner(self.path, resumable=resumable)

    def __enter__(self) -> Self:
        """Return the workspace."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the run apart, or disown it."""
        if self._kept and kind is None:
            leftovers.change_owner(self.path, kept=True)
            self._keeper.close(keep=True)
        else:
            try:
                leftovers.release(self.run_id, self.path)
            except (HarnessError, OSError) as failure:
                log.warning("%s; `harness clean %s` removes the rest later", failure, self.run_id)
            self._keeper.close(keep=False)
