"""The cells of a night, and the runs and soaks that give them a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from harness.judge.protected import UNPROTECTED
from harness.schedules.catalog import ALL, BY_NAME, GROUP_SCENARIOS, GROUPS, SCENARIOS, scenarios_for
from harness.targets import find_target

SOAK = "soak"
"""The scenario of a cell that is a soak."""
ANY = "drawn"
"""In place of the client and the nemesis: a soak draws them."""


@dataclass(frozen=True)
class SoakCell:
    """A soak's ``minutes``, and the ``seed`` of its first round. ``expect``: a file of tolerated findings, or ""."""

    minutes: float
    seed: int
    expect: str = ""


class Cell(NamedTuple):
    """A question of the matrix: does this ``scenario`` show its anomaly on that target, under these conditions?"""

    target: str
    client: str
    nemesis: str
    runtime: str
    scenario: str
    protection: str = UNPROTECTED

    @property
    def anomaly(self) -> str:
        """The name of the anomaly that the scenario shows; a soak shows any."""
        return SOAK if self.scenario == SOAK else str(BY_NAME[self.scenario].anomaly)

    @property
    def payload(self) -> str:
        """The payload of the scenario."""
        return ANY if self.scenario == SOAK else BY_NAME[self.scenario].payload

    def __str__(self) -> str:
        """Return the printed name of the cell."""
        return f"{self.target} {self.scenario} {self.client} {self.nemesis} {self.runtime}{_suffix(self.protection)}"


@dataclass(frozen=True)
class Outage:
    """A run of all ``scenarios`` on a target with a client, a nemesis and a runtime; the ``repeat``-th; or a soak."""

    target: str
    client: str
    nemesis: str
    runtime: str
    repeat: int
    scenarios: tuple[str, ...]
    protection: str = UNPROTECTED
    soak: SoakCell | None = None

    @property
    def cells(self) -> list[Cell]:
        """The cells of this run."""
        return [
            Cell(self.target, self.client, self.nemesis, self.runtime, name, self.protection) for name in self.scenarios
        ]

    @property
    def anomalies(self) -> str:
        """The scenarios, as ``--anomaly`` of `harness run` takes them."""
        if len(self.scenarios) == len(scenarios_for(ALL, find_target(self.target).group_protocols)):
            return ALL
        names = dict.fromkeys(str(s.anomaly) for s in SCENARIOS if s.name in self.scenarios)
        has_groups = any(s.name in self.scenarios for s in GROUP_SCENARIOS)
        return ",".join([*names, *([GROUPS] if has_groups else [])])

    def __str__(self) -> str:
        """Return the printed name of the run."""
        repeat = f", repeat {self.repeat}" if self.repeat else ""
        kind = f"soak of {self.soak.minutes:g} minutes" if self.soak else f"{self.client} {self.nemesis} {self.runtime}"
        return f"{self.target} {kind}{_suffix(self.protection)}{repeat}"


@dataclass(frozen=True)
class Matrix:
    """All runs of a night in their order: each cell runs once before any is repeated.

    ``timers`` and ``settings`` are for `harness run`.
    """

    outages: tuple[Outage, ...]
    timers: str = "fast"
    settings: tuple[str, ...] = ()

    @property
    def cells(self) -> list[Cell]:
        """Every cell once."""
        return list(dict.fromkeys(cell for outage in self.outages for cell in outage.cells))


def _suffix(protection: str) -> str:
    return "" if protection == UNPROTECTED else f", {protection}"
