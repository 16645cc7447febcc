"""The soaks in a results folder, and their rounds, as `harness soak` has stored them."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.json_codec import from_json
from harness.judge.soak_verdict import RoundVerdict, SoakVerdict
from harness.report.pictures.replica_offsets import ReplicaOffsets
from harness.report.stored.runs import paths_below
from harness.run_folder.fault_times import fault_times
from harness.run_folder.history import read_lines
from harness.run_folder.store import BROKERS, HISTORY, OFFSETS, ROUND, SOAK_STATE, VERDICT, WHOLE_HISTORY
from harness.schedules.operations.administrators import ADMIN
from harness.schedules.operations.faults import NEMESIS
from harness.targets import title_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_SOAKS: Final = f"*/soak/*/{SOAK_STATE}"
"""results/<target>/soak/<id>/soak.json"""
INVOKE: Final = "invoke"
MS: Final = 1000.0


@dataclass(frozen=True)
class StoredSoak:
    """A soak. ``name``: its folder, relative to the results. ``kept``: the rounds that have their evidence."""

    path: Path
    name: str
    content: SoakVerdict
    kept: tuple[str, ...]

    @property
    def column(self) -> str:
        """The tested version, as a column's title."""
        version = self.content.target.partition("-")[2]
        return title_of(self.content.target, version)


@dataclass(frozen=True)
class ClientOperation:
    """An operation of a client that has ended. ``kind``: ok, fail or info, as in the history."""

    name: str
    kind: str
    ended_s: float
    took_s: float


@dataclass(frozen=True)
class FaultSpan:
    """A fault on a broker; ``to_s`` is None where nothing says that it ended."""

    fault: str
    broker: int
    from_s: float
    to_s: float | None


@dataclass(frozen=True)
class StoredRound:
    """A round; times are seconds from its first event. ``replicas``: by broker and ``<topic>-<partition>``."""

    name: str
    played: Mapping[str, Any]
    verdict: RoundVerdict
    operations: Sequence[ClientOperation]
    faults: Sequence[FaultSpan]
    replicas: Mapping[int, Mapping[str, ReplicaOffsets]]
    ends_s: float


def stored_soaks(results: Path) -> tuple[list[StoredSoak], list[str]]:
    """Return all soaks, newest first, and those that cannot be read, with the reason."""
    soaks, left_out = [], []
    top = results.resolve()
    for path in paths_below(results, _SOAKS):
        if path.resolve().is_relative_to(top):
            name = str(path.parent.relative_to(results))
            try:
                soaks.append(read_soak(path.parent, name))
            except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
                left_out.append(f"{name} cannot be read: {type(error).__name__}: {error}")
    return sorted(soaks, key=lambda one: one.path.name, reverse=True), left_out


def read_soak(path: Path, name: str) -> StoredSoak:
    """Return the soak of a folder. Raises OSError, ValueError, LookupError or TypeError for one that is damaged."""
    content = from_json(SoakVerdict, json.loads((path / SOAK_STATE).read_text()))
    kept = (line.name for line in content.rounds if (path / line.name / BROKERS).is_dir())
    return StoredSoak(path, name, content, tuple(kept))


def read_round(path: Path) -> StoredRound:
    """Return the round of a folder. Raises OSError, ValueError, LookupError or TypeError for one that is damaged."""
    whole = path / WHOLE_HISTORY
    events = read_lines(whole if whole.is_file() else path / HISTORY)
    samples = read_lines(path / OFFSETS) if (path / OFFSETS).is_file() else []
    began_ms = min((one["time_ms"] for one in (*events, *samples)), default=0)
    ends_ms = max((one["time_ms"] for one in (*events, *samples)), default=0)
    return StoredRound(
        path.name,
        json.loads((path / ROUND).read_text()),
        from_json(RoundVerdict, json.loads((path / VERDICT).read_text())),
        _operations(events, began_ms),
        _faults(events, began_ms),
        _replicas(samples, began_ms),
        (ends_ms - began_ms) / MS,
    )


def _operations(events: Sequence[Mapping[str, Any]], began_ms: int) -> list[ClientOperation]:
    """Return the operations of clients, in the order in which they ended."""
    invoked: dict[int, int] = {}
    ended = []
    for event in events:
        if event["process"] in {ADMIN, NEMESIS}:
            continue
        if event["type"] == INVOKE:
            invoked[event["op"]] = event["time_ms"]
        elif event["op"] in invoked:
            took_s = (event["time_ms"] - invoked.pop(event["op"])) / MS
            ended.append(ClientOperation(event["f"], event["type"], (event["time_ms"] - began_ms) / MS, took_s))
    return ended


def _faults(events: Sequence[Mapping[str, Any]], began_ms: int) -> list[FaultSpan]:
    """Return the faults in the order in which they began: from being asked for until their end was done."""
    spans = [
        FaultSpan(
            one.fault,
            one.broker,
            (one.inject_ms - began_ms) / MS,
            None if one.healed_ms is None else (one.healed_ms - began_ms) / MS,
        )
        for one in fault_times(events)
    ]
    return sorted(spans, key=lambda one: (one.from_s, one.broker, one.fault))


def _replicas(samples: Sequence[Mapping[str, Any]], began_ms: int) -> dict[int, dict[str, ReplicaOffsets]]:
    replicas: dict[int, dict[str, ReplicaOffsets]] = defaultdict(lambda: defaultdict(ReplicaOffsets))
    for line in samples:
        for place, offsets in line["replicas"].items():
            replicas[line["broker"]][place].add((line["time_ms"] - began_ms) / MS, *offsets)
    return {broker: dict(sorted(replicas[broker].items())) for broker in sorted(replicas)}
