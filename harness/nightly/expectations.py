"""The expected verdict of each cell: a TOML table, in which the first entry that fits a cell counts.

An axis (targets, anomalies, clients, nemeses, runtimes, protections) that an ``[[expect]]`` entry leaves out fits all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from harness.errors import UsageError
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN
from harness.nightly.matrix import AXES, Cell
from harness.targets import line_of
from harness.toml_tables import expect_entries, names_in, with_known_keys

VERDICTS = (ANOMALY, AS_EXPECTED, CLEAN)


@dataclass(frozen=True)
class Expectation:
    """An entry: patterns by axis, and the ``verdict`` of each cell that fits all.

    ``anomaly`` is meant under its own name. ``as-expected`` is for soaks that tolerate findings, and may be ``clean``.
    """

    patterns: Mapping[str, Sequence[str]]
    verdict: str
    why: str

    def fits(self, cell: Cell) -> bool:
        """Return whether the entry applies to a cell."""
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
    """Return the entries of a file, then the entries of this release. Raises `UsageError` for an invalid file."""
    packaged = resources.files(__package__) / "expectations.toml"
    return (*(_entries(path, str(path)) if path else ()), *_entries(packaged, packaged.name))


def expected(cells: Sequence[Cell], expectations: Sequence[Expectation]) -> dict[Cell, Expectation]:
    """Return the expectation of each cell. Raises `UsageError` for a cell without one."""
    by_cell = {}
    for cell in cells:
        fitting = next((expectation for expectation in expectations if expectation.fits(cell)), None)
        if fitting is None:
            raise UsageError(f"no expectation fits {cell}: add an [[expect]] to a file for --expectations")
        by_cell[cell] = fitting
    return by_cell


def _entries(path: Path | Traversable, source: str) -> Iterator[Expectation]:
    for entry, place in expect_entries(path, source):
        with_known_keys(entry, (*AXES, "verdict", "why"), place)
        if entry.get("verdict") not in VERDICTS:
            raise UsageError(f"{place}: verdict is {entry.get('verdict')!r}; give {' or '.join(VERDICTS)}")
        patterns = {axis: names_in(entry, axis, place) for axis in AXES if axis in entry}
        yield Expectation(patterns, entry["verdict"], str(entry.get("why", "")))
