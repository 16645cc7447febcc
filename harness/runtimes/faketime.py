"""A clock of its own for a process: libfaketime, preloaded, reads from a file how far it is off."""

from __future__ import annotations

from pathlib import Path

LIBRARY = "libfaketimeMT.so.1"
PLACES = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"))


def find_library() -> Path | None:
    """Return where the library is, None where it is not installed."""
    places = (place / "faketime" / LIBRARY for root in PLACES for place in (root, *root.glob("*-linux-gnu*")))
    return next((place for place in places if place.exists()), None)


def why_impossible() -> str | None:
    """Return the reason why no process can have a clock of its own here, None where one can."""
    return None if find_library() else "there is no libfaketime: apt-get install libfaketime"


def environment(file: Path) -> dict[str, str]:
    """Return the variables under which a process takes its clock from this file. Timeouts run on as they are."""
    return {
        "LD_PRELOAD": str(find_library()),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Otherwise it takes the clocks of timed waits for each other: they return at once, and threads spin.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }


def set_offset(file: Path, offset_s: int) -> None:
    """Have whoever reads the file be so many seconds ahead."""
    draft = file.with_suffix(".new")
    draft.write_text(f"{offset_s:+d}\n")
    draft.replace(file)
