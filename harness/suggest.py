"""What to say of a name that is not known."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def nearest(kind: str, name: str, known: Sequence[str]) -> str:
    """Return one sentence: the unknown name, the nearest known ones, and all of them."""
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.4)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"there is no {kind} {name!r}{hint} (known: {', '.join(known)})"
