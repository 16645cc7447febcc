"""The cells of a night, and the runs that answer them."""

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


def _with(protection: str) -> str:
    return "" if protection == UNPROTECTED else f", {protection}"


class Cell(NamedTuple):
    """One question of the matrix: does this ``scenario`` show its anomaly on that target, in that way?"""

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
        """Return its printed name."""
        return f"{self.target} {self.scenario} {self.client} {self.nemesis} {self.runtime}{_with(self.protection)}"


@dataclass(frozen=True)
class Outage:
    """One run, for all ``scenarios`` of a target, client, nemesis and runtime; the ``repeat``-th; or a ``soak``."""

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
        """For ``--anomaly``."""
        of_anomalies = dict.fromkeys(str(s.anomaly) for s in SCENARIOS if s.name in self.scenarios)
        groups = [GROUPS] if any(s.name in self.scenarios for s in GROUP_SCENARIOS) else []
        return ALL if self._has_all else ",".join([*of_anomalies, *groups])

    @property
    def _has_all(self) -> bool:
        return len(self.scenarios) == len(scenarios_for(ALL, find_target(self.target).group_protocols))

    def __str__(self) -> str:
        """Return its printed name."""
        again = f", the {self.repeat + 1}th time" if self.repeat else ""
        if self.soak is not None:
            return f"{self.target} soak of {self.soak.minutes:g} minutes{_with(self.protection)}{again}"
        return f"{self.target} {self.client} {self.nemesis} {self.runtime}{_with(self.protection)}{again}"
