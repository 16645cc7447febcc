"""Log entries of the formats before magic 2: recognized, checked and counted, but not read.

Brokers before 0.11 wrote them, and a log that was not cleaned since may still have them. They have neither transactions
nor delete horizons. The layout is ``LegacyRecord`` of Kafka's clients: offset and length as in a batch, then crc32 at
12 (not crc32c), magic at 16, and the rest. The CRC covers the bytes from the magic on.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final
from zlib import crc32

OLD_MAGICS: Final = (0, 1)
LEAST_BYTES: Final = (26, 34)
"""The smallest size by magic, with offset and length (``LegacyRecord.RECORD_OVERHEAD_V0`` and ``_V1``)."""
CRC_FROM: Final = 16

_HEAD = struct.Struct(">qiIb")


@dataclass(frozen=True, slots=True)
class OldEntry:
    """One record, or several compressed ones; ``last_offset``: of the last record."""

    position: int
    size_bytes: int
    last_offset: int
    magic: int


def read_old_entry(view: memoryview, position: int, *, verify_crc: bool = True) -> OldEntry:
    """Read the entry that fills ``view``; ``position`` is its position in the source.

    Raises ``ValueError`` with the reason for a wrong CRC.
    """
    last_offset, _, crc, magic = _HEAD.unpack_from(view)
    if verify_crc and (computed := crc32(view[CRC_FROM:])) != crc:
        raise ValueError(f"CRC of an entry of magic {magic} is {computed:08x}, it says {crc:08x}")
    return OldEntry(position, len(view), last_offset, magic)
