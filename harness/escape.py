r"""Text that comes from brokers, files and clients, escaped for printing: no such text is printed raw.

A key, a transactional id or a topic name may hold anything: escape sequences that a terminal obeys, line breaks that
forge another line of a result, characters that reverse the text after them or that are invisible (`UNSEEN`).

- `escape` is for **one value** that becomes part of a sentence. It doubles backslashes, too, so that the text
  identifies the value exactly. `in_sentence` is the same for sentences of checkers, which cut a long value.
- `visible` is for a **whole text on its way out**, and does not change escaped text.

A control character of ASCII is written as ``\x1b``, another one as ``\u202e`` or ``\U000e0041``, a byte that is not
UTF-8 as ``\xff``. JSON for programs keeps every value, by JSON's own escapes (`to_json`).
"""

import json
import logging
import re
from typing import Any, Final

UNSEEN: Final = (
    (0x00, 0x1F),  # C0 controls: line breaks, tabs, ESC
    (0x7F, 0x9F),  # DEL and C1 controls: U+009B begins an escape sequence by itself
    (0xAD, 0xAD),  # soft hyphen
    (0x061C, 0x061C),  # Arabic letter mark: changes direction
    (0x180E, 0x180E),  # Mongolian vowel separator: has no width
    (0x200B, 0x200F),  # no width, and marks of direction
    (0x2028, 0x202E),  # line and paragraph separator; embeddings and overrides of direction
    (0x2060, 0x206F),  # word joiner, invisible operators, isolates of direction
    (0xD800, 0xDFFF),  # lone surrogates: not text; U+DC80 to U+DCFF stand for bytes that are not UTF-8
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFF9, 0xFFFB),  # annotations
    (0xFFFE, 0xFFFF),  # no characters, and forbidden in XML
    (0xE0000, 0xE007F),  # tags: a hidden copy of ASCII
)
"""First and last code points of the escaped ranges: characters that act on the text around them, or are invisible."""

SHOWN_CHARACTERS: Final = 200
"""Of a key or a value where both are shown in full; the rest is counted."""

CHARACTERS_IN_SENTENCE: Final = 60
"""Of a key in a sentence of a checker; bytes where the key is not text."""

CONTINUED: Final = "\n    "
"""A line break within a message: the next line cannot be mistaken for a separate message."""

_UNSEEN: Final = re.compile("[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in UNSEEN) + "]")
_HEX: Final = "[0-9a-fA-F]"
_ESCAPED: Final = re.compile(rf"\\(?:x(?P<byte>{_HEX}{{2}})|u(?P<short>{_HEX}{{4}})|U(?P<long>{_HEX}{{8}})|\\|)")
_DEL: Final = "\x7f"


def escape(value: str | bytes) -> str:
    """Return one value as a part of a sentence, unambiguous: two values never look the same."""
    text = value.decode(errors="surrogateescape") if isinstance(value, bytes) else value
    return visible(text.replace("\\", "\\\\"))


def unescape(text: str) -> bytes:
    """Return the value that `escape` writes as this text. Raises ValueError for a backslash that begins no escape."""

    def character(match: re.Match[str]) -> str:
        digits = match["byte"] or match["short"] or match["long"]
        if digits is None:
            if len(match[0]) == 1:
                raise ValueError(r"write a backslash as \\, and a byte as \xff")
            return "\\"
        code = int(digits, 16)
        return chr(code + 0xDC00 if match["byte"] and code > 0x7F else code)  # noqa: PLR2004  (as in `_written`)

    return _ESCAPED.sub(character, text).encode(errors="surrogateescape")


def visible(text: str, *, line_break: str = r"\x0a") -> str:
    """Return a text with every misleading or invisible character escaped; escaped text is not changed.

    ``line_break``: the replacement of line breaks; `CONTINUED` where several lines are one message.
    """
    return _UNSEEN.sub(lambda match: line_break if match[0] == "\n" else _written(ord(match[0])), text)


def shortened(value: bytes | None) -> str | None:
    """Return a key or a value as `escape` does, at most `SHOWN_CHARACTERS` long, with its size where it is longer."""
    if value is None:
        return None
    shown = escape(value[: 4 * SHOWN_CHARACTERS])
    if len(shown) > SHOWN_CHARACTERS or len(value) > 4 * SHOWN_CHARACTERS:
        return f"{shown[:SHOWN_CHARACTERS]}… ({len(value):,} bytes)"
    return shown


def in_sentence(value: bytes) -> str:
    """Return a key for a sentence of a checker: cut after `CHARACTERS_IN_SENTENCE`, as bytes if it is not text."""
    most = CHARACTERS_IN_SENTENCE
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in value[:most]) + "…" * (len(value) > most)
    return escape(text[:most]) + "…" * (len(text) > most)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON of printable ASCII and line breaks alone, from which every value is read back as it was."""
    return json.dumps(value, indent=indent, ensure_ascii=True).replace(_DEL, r"\u007f")


class LogFormatter(logging.Formatter):
    """Formats log records whose text comes from anywhere: one record cannot forge another."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record in one line, or with its other lines indented."""
        # All of it: a traceback may have been formatted by another handler, and kept with the record.
        return visible(super().format(record), line_break=CONTINUED)


def _written(code: int) -> str:
    if 0xDC80 <= code <= 0xDCFF:  # noqa: PLR2004  (what Python's surrogateescape makes of a byte)
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004
