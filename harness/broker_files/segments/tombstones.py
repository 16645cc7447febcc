"""The definition of a tombstone: a record without a value, or a record with a flag.

Kafka's cleaner deletes by null values. KIP-87 has a flag in the record's own attributes instead, bit 5, so that a
delete may carry a value; a null value without the flag is then an ordinary value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from harness.broker_files.segments.blocks import Unpacked
    from harness.broker_files.segments.records import Record

Tombstones: TypeAlias = Literal["null", "kip-87"]
"""The mark of a tombstone."""

BY_NULL: Final[Tombstones] = "null"
BY_FLAG: Final[Tombstones] = "kip-87"
TOMBSTONES: Final[tuple[Tombstones, ...]] = get_args(Tombstones)
DATA: Final = ("value", "tombstone")
"""The kinds of clients' records, as observations and checkers name them."""
FLAG: Final = 0x20
"""Bit 5 of a record's attributes."""


def is_tombstone(record: Record, tombstones: Tombstones) -> bool:
    """Whether a record deletes its key."""
    return bool(record.attributes & FLAG) if tombstones == BY_FLAG else record.value is None


def are_tombstones(records: Unpacked, tombstones: Tombstones) -> npt.NDArray[np.bool_]:
    """Return for each record whether it deletes its key."""
    return records.attributes & FLAG != 0 if tombstones == BY_FLAG else records.value_size < 0
