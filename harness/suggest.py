"""Messages about unknown names, with the nearest known names."""

import difflib
from collections.abc import Iterable, Sequence

from harness.errors import UsageError

LONGEST_NAME = 200
"""Characters that are shown and compared: no name has as many, and comparing takes the product of both."""


def quoted(value: str) -> str:
    """Return a value for a message: in quotes and one line, cut where it is long."""
    return repr(value if len(value) <= LONGEST_NAME else f"{value[:LONGEST_NAME]}…")


def nearest(kind: str, name: str, names: Sequence[str]) -> str:
    """Return one sentence: the unknown name, the nearest known names, and all of these."""
    return f"unknown {kind} {quoted(name)}{close_to(name, names)} (known: {', '.join(names) or 'none'})"


def known_name(kind: str, name: str, names: Iterable[str], place: str = "") -> str:
    """Return one of these names. Raises `UsageError` with the ``place``, and the nearest names, for another name."""
    if name not in (known := list(names)):
        raise UsageError(f"{place}{nearest(kind, name, known)}")
    return name


def close_to(name: str, names: Sequence[str]) -> str:
    """Return the end of a sentence that asks whether a nearest name was meant, "" where none is near."""
    close = difflib.get_close_matches(name[:LONGEST_NAME], names, n=2, cutoff=0.4)
    return f"; did you mean {' or '.join(close)}?" if close else ""
