"""Class files whose library has another package, so that a broker's own copy of that library is never mistaken for it.

A class names others in UTF-8 constants of its constant pool alone (JVM Specification, 4.4), so that changing these is
enough; no instruction refers to text by its length.
"""

from __future__ import annotations

import struct
from typing import Final

from harness.errors import HarnessError

_MAGIC: Final = 0xCAFEBABE
_UTF8: Final = 1
_WIDTHS: Final = {
    **dict.fromkeys((7, 8, 16, 19, 20), 2),
    15: 3,
    **dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 4),
    **dict.fromkeys((5, 6), 8),
}
"""Bytes of each kind of constant after its tag."""
_LONG, _DOUBLE = 5, 6
"""Constants that count as two."""


def relocated(class_file: bytes, old: str, new: str) -> bytes:
    """Return a class file in which every name that has ``old`` (``org/objectweb/asm/``) has ``new`` instead.

    Raises `HarnessError` for any other file.
    """
    magic, _, count = struct.unpack_from(">IIH", class_file)
    if magic != _MAGIC:
        raise HarnessError("this is not a class file")
    pool, at, number = bytearray(), 10, 1
    while number < count:
        tag = class_file[at]
        if tag == _UTF8:
            (length,) = struct.unpack_from(">H", class_file, at + 1)
            text = class_file[at + 3 : at + 3 + length].replace(old.encode(), new.encode())
            pool += struct.pack(">BH", _UTF8, len(text)) + text
            at += 3 + length
        elif tag in _WIDTHS:
            end = at + 1 + _WIDTHS[tag]
            pool += class_file[at:end]
            at = end
        else:
            raise HarnessError(f"this class file has a constant of the unknown kind {tag}")
        number += 2 if tag in {_LONG, _DOUBLE} else 1
    return class_file[:10] + bytes(pool) + class_file[at:]
