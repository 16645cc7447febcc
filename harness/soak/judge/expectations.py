"""Findings that are tolerated by name: ``--expect FILE``, in TOML.

Entries ``[[expect]]``, each with ``findings``, a list of names, and ``why`` they are tolerated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.soak.causes import NAMES
from harness.suggest import nearest
from harness.toml_tables import expect_entries

if TYPE_CHECKING:
    from pathlib import Path


def read_expected(path: Path) -> dict[str, str]:
    """Return why each finding is tolerated, by its name. Raises `UsageError` for an invalid file."""
    expected: dict[str, str] = {}
    for entry, place in expect_entries(path, str(path)):
        names, why = entry.get("findings"), entry.get("why")
        if set(entry) != {"findings", "why"} or not isinstance(names, list) or not isinstance(why, str) or not why:
            raise UsageError(f"{place}: give findings, a list of names, and why they are tolerated")
        for name in names:
            if name not in NAMES:
                raise UsageError(f"{place}: {nearest('finding', str(name), list(NAMES))}")
            expected[name] = why
    return expected
