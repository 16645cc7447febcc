"""The expected verdict of each cell: a TOML table, in which the first entry that fits a cell counts.

An axis (targets, anomalies, clients, nemeses, runtimes, protections) that is left out fits all:

    [[expect]]
    targets = ["kafka-4.5*"]
    verdict = "clean"
    why = "KAFKA-NNNNN"
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN
from harness.nightly.fields import raise_if_no_list, read_toml, with_known_keys
from harness.nightly.matrix import AXES
from harness.targets import line_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.nightly.outages import Cell

KEYS = (*AXES, "verdict", "why")
EXPECTED = (ANOMALY, AS_EXPECTED, CLEAN)


@dataclass(frozen=True)
class Expectation:
    """One entry: patterns by axis, and the ``verdict`` of each cell that fits all.

    ``anomaly`` is meant under its own name. ``as-expected`` is for soaks that tolerate findings, and may be ``clean``.
    """

    patterns: Mapping[str, Sequence[str]]
    verdict: str
    why: str

    def fits(self, cell: Cell) -> bool:
        """Whether it applies to a cell."""
        names = {
            "targets": (cell.target, line_of(cell.target)),
            "anomalies": (cell.anomaly, cell.scenario),
            "clients": (cell.client,),
            "nemeses": (cell.nemesis,),
            "runtimes": (cell.runtime,),
            "protections": (cell.protection,),
        }
        return all(
            any(fnmatchcase(name, pattern) for name in names[axis] for pattern in patterns)
            for axis, patterns in self.patterns.items()
        )


def read_expectations(path: Path | None) -> tuple[Expectation, ...]:
    """Return a file's entries, then those of this release. Raises `UsageError` for a file with other content."""
    packaged = resources.files(__package__) / "expectations.toml"
    given = _entries(path, str(path)) if path else ()
    return (*given, *_entries(packaged, "expectations.toml"))


def expected(cells: Sequence[Cell], expectations: Sequence[Expectation]) -> dict[Cell, Expectation]:
    """Return the expectation of each cell. Raises `UsageError` for a cell without one."""
    expectations_by_cell = {cell: next((one for one in expectations if one.fits(cell)), None) for cell in cells}
    for cell, one in expectations_by_cell.items():
        if one is None:
            raise UsageError(
                f"nothing says what is expected of {cell}: add an [[expect]] for it to a file, and give that with"
                " --expectations"
            )
    return {cell: one for cell, one in expectations_by_cell.items() if one is not None}


def _entries(source: Any, source_name: str) -> tuple[Expectation, ...]:
    content = read_toml(source, source_name)
    entries = content.get("expect")
    if set(content) != {"expect"} or not isinstance(entries, list):
        raise UsageError(f"{source_name}: give [[expect]] entries, and nothing else")
    return tuple(_entry(entry, f"{source_name}: entry {number}") for number, entry in enumerate(entries, 1))


def _entry(entry: Mapping[str, Any], source_name: str) -> Expectation:
    with_known_keys(entry, KEYS, source_name)
    if entry.get("verdict") not in EXPECTED:
        raise UsageError(f"{source_name}: verdict is {entry.get('verdict')!r}; give {' or '.join(EXPECTED)}")
    patterns = {axis: entry[axis] for axis in AXES if axis in entry}
    for axis, names in patterns.items():
        raise_if_no_list(axis, names, source_name)
    return Expectation(patterns, entry["verdict"], str(entry.get("why", "")))
