"""Layouts of numpy arrays, and constants, that the compiled reader and its callers share."""

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from harness.broker_files.segments.records import MARKERS

if TYPE_CHECKING:
    import numpy.typing as npt

    Batches: TypeAlias = npt.NDArray[np.void]
    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Ints: TypeAlias = npt.NDArray[np.int32]
    Longs: TypeAlias = npt.NDArray[np.int64]

_LONGS = ("position", "base_offset", "last_offset", "timestamp_base_ms", "max_timestamp_ms", "producer_id")
_INTS = ("size_bytes", "leader_epoch", "crc", "base_sequence", "record_count")
HEADERS: Final = np.dtype(
    [
        *((name, np.int64) for name in _LONGS),
        *((name, np.uint32 if name == "crc" else np.int32) for name in _INTS),
        *((name, np.int16) for name in ("attributes", "producer_epoch")),
        *((name, np.int8) for name in ("magic", "marker")),
    ],
    align=True,
)
"""A row for each batch: the fields of ``batches.Batch`` under the same names, and ``marker``, from a control batch.

A row of an entry of magic 0 or 1 has its position, size, CRC32 and offset; its other fields are zero.
"""

MARKER_NAMES: Final = (*MARKERS, "other")
"""Names by value of ``marker``; types that end no transaction have the same name."""
NO_MARKER, OTHER_CONTROL = -1, len(MARKERS)
"""Values of ``marker``: data, or a control batch that compaction has emptied; and the other types."""
ASK: Final = -2
"""The value of ``marker`` for unusual bytes until the reference has read them."""
