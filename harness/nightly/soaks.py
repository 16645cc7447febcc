"""Soaks of a night: each is a cell, which `harness soak` runs for a given time, after all other runs.

    [[soak]]
    targets = ["kafka-4.4"]            # by default those of the file
    protections = ["none", "gate"]     # by default none alone
    minutes = 20
    seed = 1
    expect = "known.toml"              # of the soaks without the gate; by default what every Kafka shows

A soak is ``as-expected`` if every finding is tolerated by name, and ``clean`` if nothing was found: both are expected.
"""

from __future__ import annotations

import fnmatch
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.errors import UsageError
from harness.judge.protected import GATES, UNPROTECTED
from harness.nightly.fields import raise_if_no_list, with_known_keys
from harness.nightly.outages import ANY, SOAK, Outage, SoakCell
from harness.runtimes import LOCAL, SIM
from harness.targets import KAFKA, SIM_KAFKA, SIMULATED, TARGETS, find_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

KEYS: Final = ("targets", "protections", "minutes", "seed", "expect")
DEFAULT_MINUTES: Final = 10
SOAK_ENDS_S: Final = 180.0
"""A soak ends with the round that is played when its minutes are over, and with the verdict on it."""


def soak_outages(
    blocks: Any, targets: Sequence[str] | None, newest: Callable[[str], str | None], where: str
) -> list[Outage]:
    """Return the soaks of ``[[soak]]`` blocks. ``targets``: of blocks without any; ``newest``: see `read_matrix`.

    Raises `UsageError` for other keys, and for what cannot be soaked.
    """
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise UsageError(f"{where}: give soaks as [[soak]] blocks")
    outages = []
    for block in blocks:
        own = {
            "targets": targets, "protections": [UNPROTECTED], "minutes": DEFAULT_MINUTES, "seed": 1, "expect": "",
            **with_known_keys(block, KEYS, f"[[soak]] of {where}"),
        }  # fmt: skip
        if not own["targets"]:
            raise UsageError(f"[[soak]] of {where} names no targets: see `harness targets`")
        for axis in ("targets", "protections"):
            raise_if_no_list(axis, own[axis], f"[[soak]] of {where}")
        soak = _soak_of(own, f"[[soak]] of {where}")
        outages += [
            _outage(target, protection, soak, f"[[soak]] of {where}")
            for target in targets_of(own["targets"], newest)
            for protection in own["protections"]
        ]
    return _numbered(outages)


def targets_of(names: Iterable[str], newest: Callable[[str], str | None]) -> list[str]:
    """Return the names of targets, each with its newest patch, if any. Raises `UsageError` as `find_target` does.

    ``kafka-*`` stands for every line of Kafka. A user's own build has a name by which a resumed night finds it again.
    """
    every = [name for pattern in names for name in fnmatch.filter(TARGETS, pattern) or [find_target(pattern).name]]
    return [target for name in every for target in (name, newest(name)) if target]


def soak_command(outage: Outage, soak: SoakCell, results: Path) -> list[str]:
    """Return the arguments of ``harness`` that run a soak."""
    known = soak.expect or str(resources.files(__package__) / "known.toml")
    return [
        "soak", "--target", outage.target, "--minutes", f"{soak.minutes:g}", "--seed", str(soak.seed),
        *(["--gate"] if outage.protection == GATES else ["--expect", known]), "--results", str(results),
    ]  # fmt: skip


def _soak_of(own: Mapping[str, Any], where: str) -> SoakCell:
    minutes, seed, expect = own["minutes"], own["seed"], own["expect"]
    if isinstance(minutes, bool) or not isinstance(minutes, int | float) or minutes <= 0:
        raise UsageError(f"{where}: minutes is {minutes!r}; give a number above 0")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise UsageError(f"{where}: seed is {seed!r}; give a number from 0")
    if not isinstance(expect, str) or (expect and not Path(expect).is_file()):
        raise UsageError(f"{where}: expect is {expect!r}, which is no file")
    return SoakCell(float(minutes), seed, str(Path(expect).absolute()) if expect else "")


def _outage(target: str, protection: str, soak: SoakCell, where: str) -> Outage:
    system = find_target(target).system
    if system not in {KAFKA, SIM_KAFKA}:
        raise UsageError(f"{where}: {target}: soak is for Kafka and sim-kafka")
    if protection not in {UNPROTECTED, GATES}:
        raise UsageError(f"{where}: protections has {protection!r}: a soak has {UNPROTECTED} or {GATES}")
    if protection == GATES and system in SIMULATED:
        raise UsageError(f"{where}: {target} has no brokers of this host, and so no {GATES}")
    return Outage(target, ANY, ANY, SIM if system in SIMULATED else LOCAL, 0, (SOAK,), protection, soak)


def _numbered(outages: Sequence[Outage]) -> list[Outage]:
    """Return them, where a second soak of the same cell is its second repeat."""
    numbered: list[Outage] = []
    for outage in outages:
        repeat = sum(one.cells == outage.cells for one in numbered)
        numbered.append(replace(outage, repeat=repeat))
    return numbered
