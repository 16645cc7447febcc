"""Keys of committed offsets in ``__consumer_offsets``, as a coordinator writes them: ``OffsetCommitKey``."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from harness.brokers.internal_topics.coordinator_messages import GROUP_KEYS, KEYS
from harness.brokers.internal_topics.decode import CONSUMER_OFFSETS, internal_topic

VERSION: Final = 1
_MESSAGE: Final = GROUP_KEYS[VERSION]
_VERSION: Final = struct.Struct(">h")


class OffsetKey(NamedTuple):
    """The group, and the partition for which it commits offsets."""

    group: str
    topic: str
    partition: int


def encode_offset_key(key: OffsetKey) -> bytes:
    """Return the bytes that a coordinator writes."""
    return _VERSION.pack(VERSION) + bytes(KEYS[f"{_MESSAGE}Key"].struct.encode(key._asdict(), version=0))


def decode_offset_key(content: bytes) -> OffsetKey | None:
    """Return the key; None for the key of another kind of record."""
    decoders = internal_topic(CONSUMER_OFFSETS)
    try:
        key = None if decoders is None else decoders.key(content)
    except ValueError:
        return None
    return OffsetKey(**key.fields) if key is not None and key.type == _MESSAGE else None
