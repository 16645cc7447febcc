"""The rules that keep a log correct, by name. Each can be switched off, which shows the violations that it prevents."""

from __future__ import annotations

from typing import Final

COMPACTION_EPOCH: Final = "compaction-epoch"
ALIGNED_EXTENTS: Final = "aligned-extents"
ATOMIC_COMMIT: Final = "atomic-commit"
ATOMIC_REPLACE: Final = "atomic-replace"
CLEANED_RANGES: Final = "cleaned-ranges"
SNAPSHOT_END: Final = "snapshot-end"
WHOLE_PREFIX: Final = "whole-prefix"
BACKWARD_SCAN: Final = "backward-scan"
COLLISION_RESISTANCE: Final = "collision-resistance"
TOMBSTONE_WAIT: Final = "tombstone-wait"
COMMIT_TIME: Final = "commit-time"
CLEAN_TOMBSTONES: Final = "clean-tombstones"

RULES: Final[dict[str, str]] = {
    COMPACTION_EPOCH: "an update made from metadata that another compaction has changed since is refused; "
    "without it, it is applied",
    ALIGNED_EXTENTS: "a new object takes the place of whole objects; without it, of every object that it touches",
    ATOMIC_COMMIT: "objects and their bookkeeping change at once; without it, cleaned ranges are recorded first and "
    "objects are replaced after that, one by one",
    ATOMIC_REPLACE: "as atomic-commit does; without it, objects are replaced one by one, cleaned ranges recorded last",
    CLEANED_RANGES: "only indexed offsets are recorded as clean; without it, all dirty offsets are, also after the map "
    "was full",
    SNAPSHOT_END: "records appended during a pass stay dirty; without it, the log is recorded as clean to its end",
    WHOLE_PREFIX: "everything below an indexed range is rewritten; without it, only the indexed range is",
    BACKWARD_SCAN: "dirty ranges are indexed from the log's end; without it, from its start",
    COLLISION_RESISTANCE: "two keys never have one hash; without it, all have",
    TOMBSTONE_WAIT: "a tombstone stays for delete.retention.ms; without it, until the next pass",
    COMMIT_TIME: "that time counts from the commit of the pass; without it, from when the pass began",
    CLEAN_TOMBSTONES: "only tombstones in cleaned ranges go, by when those were cleaned; without it, all go, by when "
    "they were written",
}
"""The meaning of each rule, and what happens without it."""

ALL_ON: Final[frozenset[str]] = frozenset()
