"""The runs, nights and soaks in a results folder, with what pages show of them."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from glob import iglob
from pathlib import Path
from typing import Any, Final, TypeVar

from markdown_it import MarkdownIt
from markupsafe import Markup

from harness.escape import visible
from harness.host import leftovers
from harness.json_codec import from_json
from harness.judge.verdict import RoundVerdict, SoakVerdict, Verdict
from harness.report.audits import summary_line
from harness.report.headlines import headline
from harness.report.page import DAMAGED, begin_text
from harness.report.pictures.story import ReplicaTimeline
from harness.run_folder import store
from harness.run_folder.history import fault_times, read_lines
from harness.schedules.operations import ADMIN, NEMESIS
from harness.targets import title_of

Stored = TypeVar("Stored")

_RUNS: Final = (f"*/*/*/{store.MANIFEST}",)
"""results/<target>/<anomaly>/<run id>/manifest.json"""
_SOAKS: Final = (f"*/soak/*/{store.SOAK_STATE}",)
"""results/<target>/soak/<id>/soak.json"""
_NIGHTS: Final = ("nightly/*/summary.json", "night/summary.json")
"""Summaries of nights next to their runs, and of a published night."""
_AUDITS: Final = (f"{store.AUDITS}/*/{store.VERDICT}",)
_NIGHT_ROW: Final = ("scenario", "client", "nemesis", "runtime")
_STAGE: Final = re.compile(r"^(\S+ \S+) INFO harness (.+)$")
_NOT_STAGES: Final = ("Spark is up", "the checkers are planned", "the workers are rehearsed")
_MARKDOWN: Final = MarkdownIt("js-default")


@dataclass(frozen=True)
class StoredRun:
    """A run that has a verdict. ``name``: its folder, relative to the results. ``column``: the version, as a title."""

    folder: store.RunFolder
    name: str
    manifest: dict[str, Any]
    verdict: Verdict
    column: str
    began_at: datetime | None


@dataclass(frozen=True)
class StoredAudit:
    """An audit. ``name``: its run id. ``began_at``, ``summary``: its time, and its counts of partitions, for people."""

    name: str
    verdict: Verdict
    began_at: str
    summary: str


@dataclass(frozen=True)
class RunningRun:
    """A run whose process lives; ``stages``: its stages so far with their times, the last one is the current."""

    name: str
    manifest: dict[str, Any]
    stages: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Night:
    """One night. ``columns``: versions. ``rows``: the fields of `_NIGHT_ROW`, protection, a cell a column or None."""

    name: str
    summary: Mapping[str, Any]
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Mapping[str, Any] | None, ...]], ...]


@dataclass(frozen=True)
class StoredSoak:
    """A soak. ``name``: its folder, relative to the results. ``with_evidence``: rounds whose evidence is stored."""

    path: Path
    name: str
    content: SoakVerdict
    with_evidence: tuple[str, ...]
    column: str


@dataclass(frozen=True)
class Contents:
    """Stored results; runs oldest first, else newest first. ``left_out``: omitted folders and pages, and why."""

    runs: Sequence[StoredRun]
    nights: Sequence[Night]
    soaks: Sequence[StoredSoak]
    audits: Sequence[StoredAudit]
    analyses: Mapping[str, tuple[str, Markup]]
    left_out: Sequence[str]


@dataclass(frozen=True)
class ClientOperation:
    """An operation of a client that has ended. ``kind``: ok, fail or info, as in the history."""

    name: str
    kind: str
    ended_s: float
    took_s: float


@dataclass(frozen=True)
class FaultSpan:
    """A fault on a broker; ``to_s`` is None if the history does not have its end."""

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
    replicas: Mapping[int, Mapping[str, ReplicaTimeline]]
    ends_s: float


def read_contents(results: Path) -> Contents:
    """Read every stored result that a site shows."""
    left_out: list[str] = []

    def read_each(patterns: Sequence[str], read: Callable[[Path, str], Stored]) -> Iterator[Stored]:
        for path in _folders(results, patterns):
            try:
                yield _read(read, path, str(path.relative_to(results)))
            except ValueError as error:
                left_out.append(str(error))

    return Contents(
        runs=sorted(read_each(_RUNS, _run), key=lambda run: (run.folder.run_id, run.name)),
        nights=sorted(read_each(_NIGHTS, _night), key=lambda night: str(night.summary["began_at"]), reverse=True),
        soaks=sorted(read_each(_SOAKS, read_soak), key=lambda soak: soak.path.name, reverse=True),
        audits=sorted(read_each(_AUDITS, _audit), key=lambda audit: audit.name, reverse=True),
        analyses=_read_analyses(results),
        left_out=left_out,
    )


def stored_run(path: Path) -> StoredRun:
    """Return the run of a folder, with the path as its name. Raises ValueError without a verdict."""
    return _read(_run, path, str(path))


def running_runs(results: Path) -> list[RunningRun]:
    """Return the runs of a results folder that are in progress, oldest first."""
    running = []
    for path in _folders(results, _RUNS):
        try:
            manifest = json.loads((path / store.MANIFEST).read_text())
            lives = manifest["status"] == store.RUNNING and leftovers.Owner(**manifest["owner"]).lives()
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if lives:
            running.append(RunningRun(str(path.relative_to(results)), manifest, _stages(path / store.HARNESS_LOG)))
    return sorted(running, key=lambda run: run.name.rpartition("/")[2])


def read_soak(path: Path, name: str) -> StoredSoak:
    """Return the soak of a folder. Raises an error of `DAMAGED`."""
    content = from_json(SoakVerdict, json.loads((path / store.SOAK_STATE).read_text()))
    folders = {
        folder.name for folder in path.iterdir() if (folder / store.BROKERS).is_dir() and not folder.is_symlink()
    }
    rounds = (line.name for line in content.rounds if line.name in folders)
    column = title_of(content.target, content.target.partition("-")[2])
    return StoredSoak(path, name, content, tuple(rounds), column)


def read_round(path: Path) -> StoredRound:
    """Return the round of a folder. Raises an error of `DAMAGED`."""
    full_history = path / store.WHOLE_HISTORY
    events = read_lines(full_history if full_history.is_file() else path / store.HISTORY)
    samples = read_lines(path / store.OFFSETS) if (path / store.OFFSETS).is_file() else []
    times_ms = [line["time_ms"] for line in (*events, *samples)]
    began_ms = min(times_ms, default=0)

    def since_s(time_ms: int) -> float:
        return (time_ms - began_ms) / 1000

    faults = [
        FaultSpan(fault.fault, fault.broker, since_s(fault.inject_ms), fault.healed_ms and since_s(fault.healed_ms))
        for fault in fault_times(events)
    ]
    replicas: dict[int, dict[str, ReplicaTimeline]] = defaultdict(lambda: defaultdict(ReplicaTimeline))
    for line in samples:
        for place, offsets in line["replicas"].items():
            replicas[line["broker"]][place].add(since_s(line["time_ms"]), *offsets)
    return StoredRound(
        path.name,
        json.loads((path / store.ROUND).read_text()),
        from_json(RoundVerdict, json.loads((path / store.VERDICT).read_text())),
        _operations(events, since_s),
        sorted(faults, key=lambda span: (span.from_s, span.broker, span.fault)),
        {broker: dict(sorted(places.items())) for broker, places in sorted(replicas.items())},
        since_s(max(times_ms, default=0)),
    )


def _read(read: Callable[[Path, str], Stored], path: Path, name: str) -> Stored:
    """Read a folder. Raises ValueError with the folder's name and the reason."""
    if (path / store.VERDICT).is_fifo():
        raise ValueError(f"{name} cannot be read: {store.VERDICT} is a named pipe")
    try:
        return read(path, name)
    except FileNotFoundError as error:
        missing = error.filename.rpartition("/")[2]
        raise ValueError(f"{name} has no {missing}: it is in progress, or was interrupted") from error
    except DAMAGED as error:
        raise ValueError(f"{name} cannot be read: {type(error).__name__}: {error}") from error


def _folders(results: Path, patterns: Sequence[str]) -> Iterator[Path]:
    """Yield the folders of matching regular files, none outside the results. Unlike in `Path.glob`, they may vanish."""
    top = results.resolve()
    names = (iglob(pattern, root_dir=results, include_hidden=True) for pattern in patterns)  # noqa: PTH207
    for path in (results / name for names_of_pattern in names for name in names_of_pattern):
        if path.is_file() and path.parent.name != store.LATEST and path.resolve().is_relative_to(top):
            yield path.parent


def _run(path: Path, name: str) -> StoredRun:
    manifest, verdict = (json.loads((path / file).read_text()) for file in (store.MANIFEST, store.VERDICT))
    column, began_at = title_of(manifest["target"]["name"], manifest["target"]["version"]), store.begin_of(path.name)
    run = StoredRun(store.RunFolder(path), name, manifest, from_json(Verdict, verdict), column, began_at)
    # A missing field that a site shows raises here.
    if not all(isinstance(manifest[field], str) for field in ("anomaly", "nemesis", "client")):
        raise TypeError("anomaly, nemesis and client must be text")
    _ = [headline(finding) for finding in run.verdict.findings]
    _ = [scenario["summary"] for scenario in manifest.get("scenarios", ())]
    return run


def _audit(path: Path, _name: str) -> StoredAudit:
    verdict = from_json(Verdict, json.loads((path / store.VERDICT).read_text()))
    # A missing field that a page shows raises here.
    _ = verdict.target["name"], [scenario.exposure["replicas"] for scenario in verdict.scenarios]
    _ = [headline(finding) for finding in verdict.findings]
    return StoredAudit(path.name, verdict, begin_text(path.name), summary_line(verdict))


def _stages(log: Path) -> tuple[tuple[str, str], ...]:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ()
    stages = [(match[1], match[2]) for line in lines if (match := _STAGE.match(line))]
    return tuple((at, stage) for at, stage in stages if stage not in _NOT_STAGES)


def _night(path: Path, _name: str) -> Night:
    summary = json.loads((path / "summary.json").read_text())
    # A missing field that a page shows raises here.
    _ = [summary[field] for field in ("began_at", "command", "commit", "cells_as_expected", "strays")]
    titles: dict[str, str] = {}
    by_row: dict[tuple[str, ...], dict[str, Mapping[str, Any]]] = {}
    for result in summary["cells"]:
        _ = [result[field] for field in ("expected", "why", "status")]
        _ = [list(result[field]) for field in ("runs", "flaky", "verdicts")]
        cell = result["cell"]
        titles[cell["target"]] = title_of(cell["target"], result["version"])
        # Published summaries of earlier releases have no protection.
        row = (*(cell[field] for field in _NIGHT_ROW), cell.get("protection", store.UNPROTECTED))
        by_row.setdefault(row, {})[cell["target"]] = result
    rows = ((row, tuple(cells.get(target) for target in titles)) for row, cells in by_row.items())
    return Night(path.name, summary, tuple(titles.values()), tuple(rows))


def _operations(events: Sequence[Mapping[str, Any]], since_s: Callable[[int], float]) -> list[ClientOperation]:
    invoked: dict[int, int] = {}
    ended = []
    for event in (event for event in events if event["process"] not in {ADMIN, NEMESIS}):
        op, time_ms = event["op"], event["time_ms"]
        if event["type"] == "invoke":
            invoked[op] = time_ms
        elif op in invoked:
            took_s = (time_ms - invoked.pop(op)) / 1000
            ended.append(ClientOperation(event["f"], event["type"], since_s(time_ms), took_s))
    return ended


def _read_analyses(results: Path) -> dict[str, tuple[str, Markup]]:
    """Return the written analyses next to the runs (``<date>-<words>.md``) as titles and markup, newest first.

    HTML in them is shown as text.
    """
    analyses = {}
    for path in sorted(filter(Path.is_file, results.glob("[0-9]*.md")), reverse=True):
        text = visible(path.read_text(errors="replace").expandtabs(), line_break="\n")
        title = next((line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")), path.stem)
        analyses[path.stem] = title, Markup(_MARKDOWN.render(text))  # noqa: S704  (its preset lets no HTML through)
    return analyses
