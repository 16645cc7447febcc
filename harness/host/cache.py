"""The folders of a user's downloads and other reusable files."""

from __future__ import annotations

import os
from pathlib import Path


def cache_root() -> Path:
    """Return ``$COMPACTION_HARNESS_CACHE``, else ``compaction-harness`` in the user's cache directory."""
    xdg = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("COMPACTION_HARNESS_CACHE") or Path(xdg, "compaction-harness")).absolute()


def compiled_folder() -> Path:
    """Return the folder of code that numba compiled: ``$NUMBA_CACHE_DIR``, else ``numba`` below `cache_root`."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or cache_root() / "numba")
