"""Findings that are known, by name: ``--expect FILE``, in TOML.

Entries ``[[expect]]``, each with ``findings``, a list of names, and ``why`` they are tolerated.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.schedules.catalog import Anomaly
from harness.suggest import nearest

if TYPE_CHECKING:
    from pathlib import Path

HANGING: Final = "hanging-transaction"
"""A transaction that is open on every replica although clients have ended it, and its coordinator skipped no marker."""
HOLE: Final = "hole-after-power-failure"
"""Records that a broker lost with its power, and did not copy again: see `harness.soak.causes.losses`."""
REOPENED: Final = "reopened-transaction"
"""A transaction that a replica takes for open although its log has the marker: see `harness.soak.causes.reopened`."""
STALE_MARKER: Final = "stale-marker"
"""An aborted transaction that a late marker of a former coordinator has committed: see `causes.stale_markers`."""
SKIPPED_MARKER: Final = "skipped-marker"
"""A transaction that is open, or that another marker ended: see `harness.soak.causes.skipped_markers`."""
UNCLEAN: Final = "unclean-election"
"""Replicas that differ in a partition whose leader had lost records, and was elected uncleanly: see there, too."""
NAMES: Final = (*map(str, Anomaly), HANGING, HOLE, REOPENED, SKIPPED_MARKER, STALE_MARKER, UNCLEAN)


def read_expected(path: Path) -> dict[str, str]:
    """Return why each finding is tolerated, by its name. Raises `UsageError` for a file with other content."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    entries = content.get("expect")
    if set(content) != {"expect"} or not isinstance(entries, list):
        raise UsageError(f"{path}: give [[expect]] entries, and nothing else")
    expected: dict[str, str] = {}
    for number, entry in enumerate(entries, 1):
        names, why = entry.get("findings"), entry.get("why")
        if set(entry) != {"findings", "why"} or not isinstance(names, list) or not isinstance(why, str) or not why:
            raise UsageError(f"{path}: entry {number}: give findings, a list of names, and why they are tolerated")
        for name in names:
            if name not in NAMES:
                raise UsageError(f"{path}: entry {number}: {nearest('finding', str(name), list(NAMES))}")
            expected[name] = why
    return expected
