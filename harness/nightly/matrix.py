"""The matrix of a night: its cells, and the runs and soaks that give them a verdict; from a TOML file and options.

docs/how-to/nightly.md shows a file. Without any ``[[matrix]]``, the keys above the blocks are the only matrix. Each
``[[soak]]`` is a cell, which `harness soak` runs after all other runs. A soak is ``as-expected`` if every finding is
tolerated by name, and ``clean`` if nothing was found: both are expected.

Another file has the expected verdict of each cell: the first ``[[expect]]`` entry that fits counts. An axis that an
entry leaves out fits all.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import filter as matching
from fnmatch import fnmatchcase
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.clients import find_client
from harness.errors import UsageError, raised_as
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN
from harness.play.options import PROTECTIONS, RunOptions
from harness.play.run_plan import plan_run
from harness.run_folder.store import GATES, THE_GUARD, UNPROTECTED
from harness.runtimes import LOCAL, SIM, find_runtime
from harness.schedules.catalog import ALL, GROUPS, all_scenarios, scenarios_by_name, scenarios_for
from harness.suggest import known_name
from harness.targets import KAFKA, SIM_KAFKA, SIMULATED, TARGETS, find_target, line_of
from harness.targets.settings import parse_settings
from harness.toml_tables import expect_entries, names_in, read_toml, with_known_keys

SOAK = "soak"
"""The scenario of a cell that is a soak."""
ANY = "drawn"
"""In place of the client and the nemesis: a soak draws them."""
VERDICTS = (ANOMALY, AS_EXPECTED, CLEAN)
"""Verdicts that may be expected."""
AXES: Final = ("targets", "anomalies", "clients", "nemeses", "runtimes", "protections")
DEFAULTS: Final[Mapping[str, Any]] = {
    "anomalies": [ALL], "clients": ["librdkafka"], "nemeses": ["kill"], "runtimes": ["local"],
    "protections": [UNPROTECTED], "repeats": 1, "timers": "fast", "set": [],
}  # fmt: skip
SOAK_DEFAULTS: Final[Mapping[str, Any]] = {"protections": [UNPROTECTED], "minutes": 10, "seed": 1, "expect": ""}


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
        return SOAK if self.scenario == SOAK else str(scenarios_by_name()[self.scenario].anomaly)

    @property
    def payload(self) -> str:
        """The payload of the scenario."""
        return ANY if self.scenario == SOAK else scenarios_by_name()[self.scenario].payload

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
    protection: str
    scenarios: tuple[str, ...]
    repeat: int = 0
    soak: SoakCell | None = None

    @property
    def cells(self) -> list[Cell]:
        """The cells of this run."""
        conditions = self.target, self.client, self.nemesis, self.runtime
        return [Cell(*conditions, scenario, self.protection) for scenario in self.scenarios]

    @property
    def anomalies(self) -> str:
        """The scenarios, as ``--anomaly`` of `harness run` takes them."""
        if len(self.scenarios) == len(scenarios_for(ALL, find_target(self.target).group_protocols)):
            return ALL
        scenarios = [scenario for scenario in all_scenarios() if scenario.name in self.scenarios]
        names = dict.fromkeys(str(scenario.anomaly) for scenario in scenarios if not scenario.kind.is_of_groups)
        has_groups = any(scenario.kind.is_of_groups for scenario in scenarios)
        return ",".join([*names, *([GROUPS] if has_groups else [])])

    def __str__(self) -> str:
        """Return the printed name of the run."""
        repeat = f", repeat {self.repeat}" if self.repeat else ""
        kind = f"soak of {self.soak.minutes:g} minutes" if self.soak else f"{self.client} {self.nemesis} {self.runtime}"
        return f"{self.target} {kind}{_suffix(self.protection)}{repeat}"


@dataclass(frozen=True)
class Matrix:
    """All runs in their order: each cell runs once before any repeat. ``timers``, ``settings``: for `harness run`."""

    outages: tuple[Outage, ...]
    timers: str = "fast"
    settings: tuple[str, ...] = ()

    @property
    def cells(self) -> list[Cell]:
        """Every cell once."""
        return list(dict.fromkeys(cell for outage in self.outages for cell in outage.cells))


def read_matrix(path: Path | None, options: Mapping[str, Any], newest: Callable[[str], str | None]) -> Matrix:
    """Return the matrix of a file, in which ``options`` of the command line replace the file's keys.

    ``newest`` returns a further target to run, if any. Raises `UsageError` for a file that cannot be read
    or has other keys, and for unknown or incompatible names.
    """
    source = str(path) if path else "the matrix"
    in_file = with_known_keys(read_toml(path, source), ("targets", *DEFAULTS, "matrix", SOAK), source) if path else {}
    content = {**DEFAULTS, **in_file, **options}
    soaks = content.pop(SOAK, [])
    blocks = content.pop("matrix", None) or ([] if soaks else [{}])
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise UsageError(f"{source}: give the matrix as [[matrix]] blocks")
    shared, replaced = ({name: keys[name] for name in AXES if name in keys} for keys in (content, options))
    scenarios_by_run: dict[tuple[str, str, str, str, str], set[str]] = {}
    for block in blocks:
        axes = {**shared, **with_known_keys(block, AXES, f"[[matrix]] of {source}"), **replaced}
        targets = _targets(axes, newest, source)
        names = {axis: _named(axes, axis, source) for axis in AXES}
        for target in targets:
            row = find_target(target)
            scenarios = [s.name for name in names["anomalies"] for s in scenarios_for(name, row.group_protocols)]
            # Simulated targets have this runtime only.
            runtimes = [SIM] if row.system in SIMULATED else names["runtimes"]
            for run in product((target,), names["clients"], names["nemeses"], runtimes, names["protections"]):
                scenarios_by_run.setdefault(run, set()).update(scenarios)
    repeats = content["repeats"]
    if not isinstance(repeats, int) or repeats < 1:
        raise UsageError(f"{source}: repeats is {repeats!r}; give a number from 1")
    if not isinstance(content["timers"], str):
        raise UsageError(f"{source}: timers is {content['timers']!r}; give a name")
    outages = [
        Outage(*run, tuple(s.name for s in all_scenarios() if s.name in scenarios), repeat)
        for repeat in range(repeats)
        for run, scenarios in scenarios_by_run.items()
    ]
    outages += _soaks(soaks, content.get("targets"), newest, source)
    matrix = Matrix(tuple(outages), content["timers"], tuple(names_in(content, "set", source)))
    for outage in outages:
        if outage.soak is None:
            find_client(outage.client)
            find_runtime(outage.runtime)
            known_name("protection", outage.protection, PROTECTIONS)
            with raised_as(UsageError, str(replace(outage, repeat=0)), UsageError):
                plan_run(options_of(outage, matrix))
    return matrix


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


def _named(table: Mapping[str, Any], axis: str, source: str) -> list[str]:
    """Return the names of an axis. Raises `UsageError` for none: there would be no run, and nothing unexpected."""
    if not (names := names_in(table, axis, source)):
        raise UsageError(f"{source}: {axis} is empty; leave it out, or give a name")
    return names


def _targets(table: Mapping[str, Any], newest: Callable[[str], str | None], source: str) -> list[str]:
    """Return the targets of a table, each with its newest patch, if any. Raises `UsageError` for unknown ones.

    ``kafka-*`` stands for every line of Kafka. A user's own build has a name by which a resumed night finds it again.
    """
    if not table.get("targets"):
        raise UsageError(f"{source} names no targets: see `harness targets`")
    patterns = names_in(table, "targets", source)
    names = [name for pattern in patterns for name in matching(TARGETS, pattern) or [find_target(pattern).name]]
    return [target for name in names for target in (name, newest(name)) if target]


def _soaks(
    blocks: Any, targets: Sequence[str] | None, newest: Callable[[str], str | None], source: str
) -> Iterator[Outage]:
    """Yield the soaks of ``[[soak]]`` blocks. ``targets``: of blocks without any."""
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise UsageError(f"{source}: give soaks as [[soak]] blocks")
    repeats: Counter[tuple[str, str]] = Counter()
    for block in blocks:
        for soak in _soaks_of_block({**SOAK_DEFAULTS, "targets": targets, **block}, newest, f"[[soak]] of {source}"):
            # A second soak of the same cell is its second repeat.
            cell = soak.target, soak.protection
            yield replace(soak, repeat=repeats[cell])
            repeats[cell] += 1


def _soaks_of_block(block: Mapping[str, Any], newest: Callable[[str], str | None], source: str) -> Iterator[Outage]:
    with_known_keys(block, ("targets", *SOAK_DEFAULTS), source)
    targets, protections = _targets(block, newest, source), _named(block, "protections", source)
    minutes, seed, expect = block["minutes"], block["seed"], block["expect"]
    for key, is_valid, advice in (
        ("minutes", type(minutes) in {int, float} and minutes > 0, "give a number above 0"),
        ("seed", type(seed) is int and seed >= 0, "give a number from 0"),
        ("expect", isinstance(expect, str) and (not expect or Path(expect).is_file()), "give an existing file"),
    ):
        if not is_valid:
            raise UsageError(f"{source}: {key} is {block[key]!r}; {advice}")
    soak = SoakCell(float(minutes), seed, str(Path(expect).absolute()) if expect else "")
    for target, protection in product(targets, protections):
        system = find_target(target).system
        if system not in {KAFKA, SIM_KAFKA}:
            raise UsageError(f"{source}: {target}: soak is for Kafka and sim-kafka")
        if protection not in {UNPROTECTED, GATES}:
            raise UsageError(f"{source}: protections has {protection!r}: a soak has {UNPROTECTED} or {GATES}")
        if protection == GATES and system in SIMULATED:
            raise UsageError(f"{source}: {target} has no broker processes on this host, and no {GATES}")
        yield Outage(target, ANY, ANY, SIM if system in SIMULATED else LOCAL, protection, (SOAK,), soak=soak)


def _suffix(protection: str) -> str:
    return "" if protection == UNPROTECTED else f", {protection}"


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
