"""A separate clock for a process: the preloaded libfaketime reads the clock's offset from a file."""

from contextlib import suppress
from pathlib import Path

import psutil

from harness.host.cache import write_atomically

LIBRARY = "libfaketimeMT.so.1"
PLACES = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"))


def find_library() -> Path | None:
    """Return the path of the library, None if it is not installed."""
    places = (place / "faketime" / LIBRARY for root in PLACES for place in (root, *root.glob("*-linux-gnu*")))
    return next((place for place in places if place.exists()), None)


def why_impossible() -> str | None:
    """Return the reason why processes cannot have separate clocks, or None."""
    return None if find_library() else "libfaketime is missing: apt-get install libfaketime"


def environment(file: Path) -> dict[str, str]:
    """Return the environment variables that give a process the clock of this file. Timeouts do not change."""
    return {
        "LD_PRELOAD": str(find_library()),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Otherwise it confuses the clocks of timed waits: they return immediately, and threads spin.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }


def is_loaded(process_id: int) -> bool:
    """Return whether a process or a descendant has loaded the library: the loader ignores a library that does not fit.

    A user's command may be a script that starts the broker.
    """
    with suppress(psutil.Error):
        process = psutil.Process(process_id)
        family = (process, *process.children(recursive=True))
        return any(LIBRARY in mapped.path for it in family for mapped in it.memory_maps())
    return False


def set_offset(file: Path, offset_s: int) -> None:
    """Set the clock of the processes that read the file this many seconds ahead."""
    write_atomically(file, f"{offset_s:+d}\n")
