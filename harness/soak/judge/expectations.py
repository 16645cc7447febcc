"""Findings that are known, by name: ``--expect FILE``, in TOML.

Entries ``[[expect]]``, each with ``findings``, a list of names, and ``why`` they are tolerated.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.soak.causes import NAMES
from harness.suggest import nearest

if TYPE_CHECKING:
    from pathlib import Path


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
