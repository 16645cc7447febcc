"""The matrix of runs, from a TOML file and the command line, and the outages that it needs.

A file looks like this; without any ``[[matrix]]``, the keys above are the only matrix:

    targets = ["kafka-3.9", "kafka-4.4"]       # every key of an axis is a default for each [[matrix]]
    anomalies = ["all"]
    clients = ["librdkafka", "java"]
    nemeses = ["kill", "none"]
    runtimes = ["local"]
    protections = ["none", "gate", "guard"]
    repeats = 3
    timers = "fast"
    set = ["topic.delete.retention.ms=3000"]

    [[matrix]]
    nemeses = ["join"]
    clients = ["librdkafka"]
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.clients import find_client
from harness.command_line.request import parse_settings
from harness.errors import UsageError
from harness.judge.protected import GATES, THE_GUARD, UNPROTECTED
from harness.plan.catalog import ALL, ALL_SCENARIOS, GROUP_SCENARIOS, GROUPS, SCENARIOS, scenarios_for
from harness.run.contradictions import raise_if_contradictory
from harness.run.options import RunOptions, find_protection
from harness.run.start import test_of
from harness.runtimes import SIM, find_runtime
from harness.suggest import nearest
from harness.targets import SIMULATED, find_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.resources.abc import Traversable
    from pathlib import Path

AXES = ("targets", "anomalies", "clients", "nemeses", "runtimes", "protections")
DEFAULTS: Mapping[str, Any] = {
    "anomalies": [ALL], "clients": ["librdkafka"], "nemeses": ["kill"], "runtimes": ["local"],
    "protections": [UNPROTECTED],
}  # fmt: skip
KEYS = (*AXES, "repeats", "timers", "set")


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

    def __str__(self) -> str:
        """Return its printed name."""
        return f"{self.target} {self.scenario} {self.client} {self.nemesis} {self.runtime}{_with(self.protection)}"


@dataclass(frozen=True)
class Outage:
    """One run, for all ``scenarios`` of a target, client, nemesis and runtime; the ``repeat``-th."""

    target: str
    client: str
    nemesis: str
    runtime: str
    repeat: int
    scenarios: tuple[str, ...]
    protection: str = UNPROTECTED

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
        return f"{self.target} {self.client} {self.nemesis} {self.runtime}{_with(self.protection)}{again}"


@dataclass(frozen=True)
class Matrix:
    """All outages in the order of their runs: each cell runs once before any is repeated.

    ``timers`` and ``settings`` are for `harness run`.
    """

    outages: tuple[Outage, ...]
    timers: str = "fast"
    settings: tuple[str, ...] = field(default=())

    @property
    def cells(self) -> list[Cell]:
        """Every cell once."""
        return list(dict.fromkeys(cell for outage in self.outages for cell in outage.cells))

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Matrix:
        """Return the matrix whose fields were stored as JSON."""
        outages = [Outage(**{**one, "scenarios": tuple(one["scenarios"])}) for one in content["outages"]]
        return cls(tuple(outages), content["timers"], tuple(content["settings"]))


def read_matrix(path: Path | None, given: Mapping[str, Any], newest: Callable[[str], str | None]) -> Matrix:
    """Return the matrix of a file, in which the command line's keys replace the file's.

    ``newest`` returns a further target to run, if any. Raises `UsageError` for a file that cannot be read
    or has other keys, and for unknown or incompatible names.
    """
    where = str(path) if path else "the matrix"
    in_file = with_known_keys(read_toml(path, where), (*KEYS, "matrix"), where) if path else {}
    content = {**DEFAULTS, **in_file, **given}
    blocks = content.pop("matrix", None) or [{}]
    shared, replaced = ({name: one[name] for name in AXES if name in one} for one in (content, given))
    scenarios_by_run: dict[tuple[str, str, str, str, str], dict[str, None]] = {}
    for block in blocks:
        axes = {**shared, **with_known_keys(block, AXES, f"[[matrix]] of {where}"), **replaced}
        if not axes.get("targets"):
            raise UsageError(f"{where} names no targets: see `harness targets`")
        for axis in AXES:
            raise_if_no_list(axis, axes[axis], where)
        # By its name, a build of the user's own is found again, wherever the night is resumed.
        names = [find_target(name).name for name in axes["targets"]]
        targets = [name for target in names for name in (target, newest(target)) if name]
        for target in targets:
            row = find_target(target)
            scenarios = dict.fromkeys(
                s.name for name in axes["anomalies"] for s in scenarios_for(name, row.group_protocols)
            )
            # Simulated targets have this runtime only.
            runtimes = [SIM] if row.system in SIMULATED else axes["runtimes"]
            for key in product([target], axes["clients"], axes["nemeses"], runtimes, axes["protections"]):
                scenarios_by_run.setdefault(key, {}).update(scenarios)
    repeats = content.get("repeats", 1)
    if not isinstance(repeats, int) or repeats < 1:
        raise UsageError(f"{where}: repeats is {repeats!r}; give a number from 1")
    raise_if_no_list("set", content.get("set", []), where)
    matrix = Matrix(
        tuple(
            Outage(
                target,
                client,
                nemesis,
                runtime,
                repeat,
                tuple(s.name for s in ALL_SCENARIOS if s.name in scenarios),
                protection,
            )
            for repeat in range(repeats)
            for (target, client, nemesis, runtime, protection), scenarios in scenarios_by_run.items()
        ),
        content.get("timers", "fast"),
        tuple(content.get("set", [])),
    )
    for outage in matrix.outages:
        _raise_if_unfit(outage, matrix)
    return matrix


def read_toml(source: Path | Traversable, where: str) -> dict[str, Any]:
    """Return a file's content. Raises `UsageError` for a file that cannot be read, or is no TOML."""
    try:
        return tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{where} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{where} is no TOML: {error}") from error


def options_of(outage: Outage, matrix: Matrix) -> RunOptions:
    """Return the options of `harness run`. Raises `UsageError` for invalid settings."""
    topic_settings, broker_settings = parse_settings(matrix.settings)
    return RunOptions(
        target=outage.target,
        anomaly=outage.anomalies,
        nemesis=outage.nemesis,
        client=outage.client,
        runtime=outage.runtime,
        gate=outage.protection == GATES,
        guard=outage.protection == THE_GUARD,
        timers=matrix.timers,
        topic_settings=topic_settings,
        broker_settings=broker_settings,
    )


def _raise_if_unfit(outage: Outage, matrix: Matrix) -> None:
    find_client(outage.client)
    find_runtime(outage.runtime)
    find_protection(outage.protection)
    try:
        options = options_of(outage, matrix)
        raise_if_contradictory(options)
        test_of(options)
    except UsageError as error:
        raise UsageError(f"{replace(outage, repeat=0)}: {error}") from error


def with_known_keys(content: Mapping[str, Any], keys: Sequence[str], where: str) -> dict[str, Any]:
    """Return the content. Raises `UsageError` for a key that is not among these."""
    for key in content:
        if key not in keys:
            raise UsageError(f"{where}: {nearest('key', key, keys)}")
    return dict(content)


def raise_if_no_list(axis: str, names: Any, where: str) -> None:
    """Raise `UsageError` where the value of a key is no list of names."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{where}: {axis} is {names!r}; give a list of names")
