"""The rules that keep a log correct, by name. Each can be switched off, which shows the violations that it prevents."""

from __future__ import annotations

from typing import Final

RULES: Final[dict[str, str]] = {
    "compaction-epoch": "an update made from metadata that another compaction has changed since is refused; "
    "without it, it is applied",
    "aligned-extents": "a new object takes the place of whole objects; without it, of every object that it touches",
    "atomic-commit": "objects and their bookkeeping change at once; without it, cleaned ranges are recorded first and "
    "objects are replaced after that, one by one",
    "atomic-replace": "as atomic-commit does; without it, objects are replaced one by one, cleaned ranges recorded "
    "last",
    "cleaned-ranges": "only indexed offsets are recorded as clean; without it, all dirty offsets are, also after the "
    "map was full",
    "snapshot-end": "records appended during a pass stay dirty; without it, the log is recorded as clean to its end",
    "whole-prefix": "everything below an indexed range is rewritten; without it, only the indexed range is",
    "backward-scan": "dirty ranges are indexed from the log's end; without it, from its start",
    "collision-resistance": "two keys never have one hash; without it, all have",
    "tombstone-wait": "a tombstone stays for delete.retention.ms; without it, until the next pass",
    "commit-time": "that time counts from the commit of the pass; without it, from when the pass began",
    "clean-tombstones": "only tombstones in cleaned ranges go, by when those were cleaned; without it, all go, by when "
    "they were written",
}
"""The meaning of each rule, and what happens without it."""
