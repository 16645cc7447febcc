"""The folders of a user's downloads and other reusable files, and locks on folders."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import UsageError, raised_as

_POLL_S = 0.05


def cache_root() -> Path:
    """Return ``$COMPACTION_HARNESS_CACHE``, else ``compaction-harness`` in the user's cache directory.

    Raises `UsageError` for a user without a home, as in some containers, who names neither.
    """
    if own := os.environ.get("COMPACTION_HARNESS_CACHE"):
        return Path(own).absolute()
    with raised_as(UsageError, "set COMPACTION_HARNESS_CACHE to a folder for the cache", RuntimeError):
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "compaction-harness").absolute()


def write_atomically(path: Path, text: str) -> None:
    """Write a file that other processes see complete or not at all; its folder is created. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def compiled_folder() -> Path:
    """Return the folder of code that numba compiled: ``$NUMBA_CACHE_DIR``, else ``numba`` below `cache_root`."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or cache_root() / "numba")


@contextmanager
def alone_in(folder: Path, wait_s: float) -> Iterator[bool]:
    """Lock a folder, created if needed, for this process; yield whether that succeeded.

    It fails if another process holds the lock for longer than ``wait_s``, or the folder cannot be created. The kernel
    releases the lock when the process ends for any reason.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    is_mine, deadline_s = False, time.monotonic() + wait_s
    try:
        while not is_mine:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_mine = True
            except OSError:
                if time.monotonic() >= deadline_s:
                    break
                time.sleep(_POLL_S)
        yield is_mine
    finally:
        os.close(descriptor)


@contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Lock the folder of a run or a soak. Raises `UsageError` if another process works on it."""
    with alone_in(folder, wait_s=0.0) as is_mine:
        if not is_mine:
            raise UsageError(f"{folder} is still in progress in another process")
        yield
