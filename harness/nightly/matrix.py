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

Soaks, ``[[soak]]``, come last: see `harness.nightly.soaks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from harness.clients import find_client
from harness.errors import UsageError
from harness.judge.protected import GATES, THE_GUARD, UNPROTECTED
from harness.nightly.fields import raise_if_no_list, read_toml, with_known_keys
from harness.nightly.outages import SOAK, Cell, Outage, SoakCell
from harness.nightly.soaks import soak_outages, targets_of
from harness.play.options import RunOptions, find_protection
from harness.play.run_plan import plan_run
from harness.runtimes import SIM, find_runtime
from harness.schedules.catalog import ALL, ALL_SCENARIOS, scenarios_for
from harness.targets import SIMULATED, find_target
from harness.targets.settings import parse_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

AXES = ("targets", "anomalies", "clients", "nemeses", "runtimes", "protections")
DEFAULTS: Mapping[str, Any] = {
    "anomalies": [ALL], "clients": ["librdkafka"], "nemeses": ["kill"], "runtimes": ["local"],
    "protections": [UNPROTECTED],
}  # fmt: skip
KEYS = (*AXES, "repeats", "timers", "set")


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
        outages = [
            Outage(
                **{
                    **one,
                    "scenarios": tuple(one["scenarios"]),
                    # Plans of earlier releases have no soaks.
                    "soak": SoakCell(**one["soak"]) if one.get("soak") else None,
                }
            )
            for one in content["outages"]
        ]
        return cls(tuple(outages), content["timers"], tuple(content["settings"]))


def read_matrix(path: Path | None, given: Mapping[str, Any], newest: Callable[[str], str | None]) -> Matrix:
    """Return the matrix of a file, in which the command line's keys replace the file's.

    ``newest`` returns a further target to run, if any. Raises `UsageError` for a file that cannot be read
    or has other keys, and for unknown or incompatible names.
    """
    where = str(path) if path else "the matrix"
    in_file = with_known_keys(read_toml(path, where), (*KEYS, "matrix", SOAK), where) if path else {}
    content = {**DEFAULTS, **in_file, **given}
    soaks = content.pop(SOAK, [])
    blocks = content.pop("matrix", None) or ([] if soaks else [{}])
    shared, replaced = ({name: one[name] for name in AXES if name in one} for one in (content, given))
    scenarios_by_run: dict[tuple[str, str, str, str, str], dict[str, None]] = {}
    for block in blocks:
        axes = {**shared, **with_known_keys(block, AXES, f"[[matrix]] of {where}"), **replaced}
        if not axes.get("targets"):
            raise UsageError(f"{where} names no targets: see `harness targets`")
        for axis in AXES:
            raise_if_no_list(axis, axes[axis], where)
        for target in targets_of(axes["targets"], newest):
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
        )
        + tuple(soak_outages(soaks, content.get("targets"), newest, where)),
        content.get("timers", "fast"),
        tuple(content.get("set", [])),
    )
    for outage in matrix.outages:
        if outage.soak is None:
            _raise_if_unfit(outage, matrix)
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


def _raise_if_unfit(outage: Outage, matrix: Matrix) -> None:
    find_client(outage.client)
    find_runtime(outage.runtime)
    find_protection(outage.protection)
    try:
        plan_run(options_of(outage, matrix))
    except UsageError as error:
        raise UsageError(f"{replace(outage, repeat=0)}: {error}") from error
