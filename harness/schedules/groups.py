"""Consumer groups of a run: which partition of ``__consumer_offsets`` keeps a group, and what groups consume."""

from __future__ import annotations

from itertools import count
from typing import Final

CLASSIC, CONSUMER = "classic", "consumer"
"""Values of ``group.protocol``: the second is KIP-848's, with brokers of 4.0 or later."""
INPUT_PARTITIONS: Final = 2
INPUT_RECORDS: Final = 100
"""Of each partition of an input topic, before any group commits an offset."""


def input_topic(scenario: str) -> str:
    """Return the name of the topic that a scenario's groups consume."""
    return f"{scenario}-input"


def offsets_partition(group: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` that keeps a group, so its leader coordinates the group.

    Source: `GroupMetadataManager.partitionFor`, `GroupCoordinatorService.partitionFor`: Java's ``String.hashCode``, of
    which `Utils.abs` drops the sign bit's meaning (0 for the smallest integer).
    """
    code = 0
    for unit in _utf16_units(group):
        code = (31 * code + unit) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def group_in(prefix: str, partition: int, partitions: int) -> str:
    """Return the first group id ``<prefix>-<n>`` that this partition keeps."""
    names = (f"{prefix}-{n}" for n in count(1))
    return next(name for name in names if offsets_partition(name, partitions) == partition)


def _utf16_units(text: str) -> list[int]:
    encoded = text.encode("utf-16-be")
    return [encoded[at] << 8 | encoded[at + 1] for at in range(0, len(encoded), 2)]
