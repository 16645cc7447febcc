"""A run's work directory and the keeper that removes it: everything temporary of a run, with one owner."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Self

from harness import leftovers
from harness.errors import UsageError
from harness.keeper import Keeper

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class Workspace:
    """Claimed on entry; on exit the run's processes are ended and the directory is deleted, unless kept."""

    def __init__(self, run_id: str, run_dir: Path) -> None:
        """Claim the directory and start the keeper. Raises `UsageError` where there is no room for one."""
        self.run_id = run_id
        try:
            self.path = leftovers.claim_work_dir(run_id, run_dir)
        except OSError as error:
            raise UsageError(
                f"no work directory can be made under {leftovers.work_root()}: {error.strerror or error};"
                " set TMPDIR to a folder with room"
            ) from error
        self._keeper = Keeper(run_id, self.path)
        self._kept = False

    def keep(self) -> None:
        """Leave processes and data to the user, who ends them with ``harness clean RUN_ID``."""
        self._kept = True

    def __enter__(self) -> Self:
        """Return the workspace."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the run apart, or disown it."""
        if self._kept and kind is None:
            owner = leftovers.read_owner(self.path)
            if owner is not None:
                leftovers.write_owner(self.path, dataclasses.replace(owner, kept=True))
            self._keeper.close(keep=True)
        else:
            leftovers.remove(self.run_id, self.path)
            self._keeper.close(keep=False)
