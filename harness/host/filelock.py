"""A lock between processes of one user, which the kernel takes back when a process ends, however it ends."""

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
    """Lock a folder, which is made where there is none; give whether it is locked now, for this process alone.

    It is not where another process holds it for longer than ``wait_s``, and where the folder cannot be had.
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
