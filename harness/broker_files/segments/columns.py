"""Layouts of numpy arrays, and constants, that the compiled reader and its callers share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from harness.broker_files.segments.records import MARKERS

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy.typing as npt

    Batches: TypeAlias = npt.NDArray[np.void]
    Bytes: TypeAlias = npt.NDArray[np.uint8]
    Ints: TypeAlias = npt.NDArray[np.int32]
    Longs: TypeAlias = npt.NDArray[np.int64]

HEADERS: Final = np.dtype(
    [
        ("position", np.int64),
        ("base_offset", np.int64),
        ("last_offset", np.int64),
        ("timestamp_base_ms", np.int64),
        ("max_timestamp_ms", np.int64),
        ("producer_id", np.int64),
        ("size_bytes", np.int32),
        ("leader_epoch", np.int32),
        ("crc", np.uint32),
        ("base_sequence", np.int32),
        ("record_count", np.int32),
        ("attributes", np.int16),
        ("producer_epoch", np.int16),
        ("magic", np.int8),
        ("marker", np.int8),
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

NULL_KEY_HASH: Final = 42
"""The result of Spark's ``xxhash64`` for null: its seed."""
