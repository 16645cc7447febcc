"""Folders for this user alone, in places where others may create folders, too."""

import os
import stat
from pathlib import Path

from harness.errors import UsageError

PRIVATE = 0o700


def make_private(folder: Path) -> None:
    """Create a folder with mode 0700, or accept the one that exists. Raises OSError, and as `check_private`."""
    folder.mkdir(mode=PRIVATE, exist_ok=True)
    check_private(folder)


def check_private(folder: Path) -> None:
    """Raise `UsageError` for a link, for another user's folder, and for one that other users may read or write."""
    state = folder.lstat()
    if stat.S_ISLNK(state.st_mode):
        why = "is a link"
    elif state.st_uid != os.getuid():
        why = f"belongs to user {state.st_uid}, not to user {os.getuid()}"
    elif stat.S_IMODE(state.st_mode) & ~PRIVATE:
        why = f"is open to other users (mode {stat.S_IMODE(state.st_mode):04o})"
    else:
        return
    raise UsageError(f"{folder} {why}: remove it, or set TMPDIR to a folder of your own")
