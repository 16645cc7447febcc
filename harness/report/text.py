"""What keys, values and other people's words are shown as: text in one line, whatever is in them."""

from __future__ import annotations

from typing import Final

SHOWN_CHARACTERS: Final = 200
"""Of a key or a value; the rest is counted."""


def shown(text: bytes | None) -> str | None:
    """Return bytes as text for people, cut where they are long; what is no text, or would not be seen, is escaped."""
    if text is None:
        return None
    told = printable(text[: 4 * SHOWN_CHARACTERS].decode(errors="backslashreplace"))
    if len(told) > SHOWN_CHARACTERS or len(text) > 4 * SHOWN_CHARACTERS:
        return f"{told[:SHOWN_CHARACTERS]}… ({len(text):,} bytes)"
    return told


def printable(text: str) -> str:
    """Return a text with what would not be seen, or would change how the rest is, as Python escapes it."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
