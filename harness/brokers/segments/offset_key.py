"""Keys of committed offsets in ``__consumer_offsets``.

Source: ``OffsetCommitKey.json`` of the group coordinator: i16 version (0 and 1 have the same fields), then group and
topic as strings with an i16 length, i32 partition.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

VERSION: Final = 1
_LENGTH: Final = struct.Struct(">h")
_PARTITION: Final = struct.Struct(">i")


class OffsetKey(NamedTuple):
    """The group, and the partition for which it commits offsets."""

    group: str
    topic: str
    partition: int


def encode_offset_key(key: OffsetKey) -> bytes:
    """Return the bytes that a coordinator writes."""
    texts = (text.encode() for text in (key.group, key.topic))
    return b"".join(
        (_LENGTH.pack(VERSION), *(_LENGTH.pack(len(text)) + text for text in texts), _PARTITION.pack(key.partition))
    )


def decode_offset_key(content: bytes) -> OffsetKey | None:
    """Return the key; None for the key of another kind of record."""
    try:
        (version,) = _LENGTH.unpack_from(content)
        if version > VERSION:
            return None
        at, texts = _LENGTH.size, []
        for _ in range(2):
            (length,) = _LENGTH.unpack_from(content, at)
            at += _LENGTH.size
            texts.append(content[at : at + length].decode())
            at += length
        (partition,) = _PARTITION.unpack_from(content, at)
    except (struct.error, UnicodeDecodeError):
        return None
    return OffsetKey(texts[0], texts[1], partition)
