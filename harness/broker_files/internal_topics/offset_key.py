"""Keys in ``__consumer_offsets``: ``OffsetCommitKey`` and ``GroupMetadataKey``."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.broker_files.internal_topics.coordinator_messages import GROUP_KEYS, KEYS
from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS, internal_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1
_MESSAGE: Final = GROUP_KEYS[VERSION]
_CLASSIC_GROUP: Final = 2
_VERSION: Final = struct.Struct(">h")


class OffsetKey(NamedTuple):
    """The group, and the partition for which it commits offsets."""

    group: str
    topic: str
    partition: int


def encode_offset_key(key: OffsetKey) -> bytes:
    """Return the key of the record that a coordinator writes for a committed offset."""
    return _encode(VERSION, key._asdict())


def encode_group_key(group: str) -> bytes:
    """Return the key of the record that a coordinator writes for a classic group."""
    return _encode(_CLASSIC_GROUP, {"group": group})


def decode_offset_key(content: bytes) -> OffsetKey | None:
    """Return the key of a committed offset; None for the key of another record."""
    decoders = internal_topic(CONSUMER_OFFSETS)
    try:
        key = None if decoders is None else decoders.key(content)
    except ValueError:
        return None
    return OffsetKey(**key.fields) if key is not None and key.type == _MESSAGE else None


def _encode(kind: int, fields: Mapping[str, object]) -> bytes:
    return _VERSION.pack(kind) + bytes(KEYS[f"{GROUP_KEYS[kind]}Key"].struct.encode(fields, version=0))
