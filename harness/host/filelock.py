"""A lock between processes, which the kernel releases when a process ends for any reason."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_POLL_S = 0.05


@contextmanager
def alone_in(folder: Path, wait_s: float) -> Iterator[bool]:
    """Lock a folder, created if needed, for this process; yield whether that succeeded.

    It fails if another process holds the lock for longer than ``wait_s``, or the folder cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        deadline_s = time.monotonic() + wait_s
        while not (is_mine := _try_lock(descriptor)) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        yield is_mine
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
