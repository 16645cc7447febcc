"""The map from keys to offsets that a pass fills: entries of one size, whatever the size of the keys."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Final

from harness.models.cloud_topics.rules import ALL_ON, COLLISION_RESISTANCE

ENTRY_BYTES: Final = 32 + 8
"""A SHA-256 hash and a 64-bit offset (the post)."""

DEFAULT_MAP_BYTES: Final = 128 * 1024 * 1024
"""The default allocation (the post): 3 355 443 keys."""


class KeyOffsetMap:
    """Offsets by hash of key, up to a number of entries that follows from its memory.

    The post relies on SHA-256 being collision resistant: equal hashes count as equal keys, and no key is kept.
    """

    def __init__(self, map_bytes: int = DEFAULT_MAP_BYTES, without: frozenset[str] = ALL_ON) -> None:
        self.most_entries = map_bytes // ENTRY_BYTES
        if self.most_entries < 1:
            raise ValueError(f"a map of {map_bytes} bytes has no room for an entry of {ENTRY_BYTES}")
        self._offsets: dict[bytes, int] = {}
        self._hashed = _one_hash if COLLISION_RESISTANCE in without else _sha256

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, key: bytes, offset: int) -> bool:
        """Raise a key's offset to this one; return False, without a change, if the key is new and does not fit.

        A full map still takes offsets of keys that it has. In the post, the scan stops at a completely full map;
        continuing until the first key that does not fit cleans more with the same memory, and needs no more entries.
        """
        hashed = self._hashed(key)
        before = self._offsets.get(hashed)
        if before is None and len(self._offsets) >= self.most_entries:
            return False
        if before is None or before < offset:
            self._offsets[hashed] = offset
        return True

    def latest(self, key: bytes) -> int:
        """Return the highest offset of a key, -1 if the map does not have it."""
        return self._offsets.get(self._hashed(key), -1)


@lru_cache(maxsize=1 << 16)
def _sha256(key: bytes) -> bytes:
    return sha256(key).digest()


def _one_hash(_key: bytes) -> bytes:
    return bytes(32)
