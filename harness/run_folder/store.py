"""The run folder: the one artifact of a run, complete enough for the same verdict a year later.

docs/reference/run-folder.md lists its files.
"""

import json
import secrets
import shlex
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError
from harness.escape import to_json
from harness.host.cache import write_atomically
from harness.host.leftovers import PRIVATE

SCHEMA = 1
"""The version of ``manifest.json`` and ``verdict.json``."""
RUNNING, COMPLETE = "running", "complete"
"""A run's status until its end, and after a complete run."""
LATEST = "latest"
TIME_FORMAT = "%Y-%m-%dT%H-%M-%SZ"
"""The format of UTC times in names of files and folders."""
AUDIT_RUN: Final = "audit-"
"""Run ids of audits begin with it."""
LOGIN: Final = "--command-config"
AUDITS: Final = "audits"
"""A results folder has the verdict of an audit below it, in a folder with the audit's run id."""
MIN_FREE_BYTES = 64 << 20
MANIFEST = "manifest.json"
HISTORY = "history.jsonl"
OBSERVATIONS = "observations.jsonl"
OFFSETS = "offsets.jsonl"
"""The end offsets of replicas during a soak's round (`harness.soak.evidence.offsets`)."""
WHOLE_HISTORY = "history-whole.jsonl"
"""The complete history of a soak's round, if ``history.jsonl`` has only the part that checkers read."""
ROUND = "round.json"
"""The schedule of a soak's round."""
SOAK_STATE = "soak.json"
"""The options of a soak, and a line for each of its rounds."""
APPLICATIONS = "applications.jsonl"
APPLICATION_HISTORY = "application-history.jsonl"
"""The history of clients after the evidence was complete."""
SKIPPED_MARKERS = "skipped-markers.jsonl"
GATE = "gate.jsonl"
"""Events of each broker's gate (`harness.protect.gate.events`)."""
GUARD = "guard.jsonl"
"""Events of the guard of this run (`harness.run_folder.guard_events`)."""
UNPROTECTED, GATES, THE_GUARD = "none", "gate", "guard"
PROTECTION_FILES: Final = {GATES: GATE, THE_GUARD: GUARD}
"""The files with the events of each protection, by its key in the manifest."""
GUARD_LOG = "guard.log"
HARNESS_LOG = "harness.log"
VERDICT = "verdict.json"
OUTCOMES = "outcomes.jsonl"
TOPOLOGY = "topology.svg"
REPORT = "report.html"
BROKERS, FETCHED = "brokers", "fetched"
"""Files from brokers' disks, and answers of brokers."""
BATCHES = "batches.bin"
"""The record batches that a broker served of a replica."""
SCHEDULE = "schedule.json"
"""The replayed schedule."""
LOGS = "logs"
"""A folder for each broker."""
STATE = "state.json"
"""The offsets and open transactions that a broker reported for a replica."""
COORDINATOR = "coordinator.json"
"""The transactions that a broker coordinates; only in an audit."""
BROKER_UUID = "broker-uuid"
"""The identity of a data directory; next to the checkpoints, for a broker whose files do not contain it."""
BEFORE_RETURN, AFTER_REJOIN = "before-return", "after-rejoin"
"""Snapshots."""


@dataclass(frozen=True)
class _File:
    """The path of a file in a run folder."""

    name: str

    def __get__(self, folder: "RunFolder", _: type["RunFolder"]) -> Path:
        return folder.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """The paths of a run. ``left_out``: relative paths of files and folders that checkers do not read."""

    path: Path
    left_out: frozenset[str] = frozenset()

    def has(self, path: Path) -> bool:
        """Return whether a file or folder of this run exists and is not left out."""
        name, is_there = path.relative_to(self.path), path.is_file() or path.is_dir()
        return is_there and not any(part.as_posix() in self.left_out for part in (name, *name.parents))

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.path.name

    manifest_path, history_path, observations_path = _File(MANIFEST), _File(HISTORY), _File(OBSERVATIONS)
    verdict_path = _File(VERDICT)
    outcomes_path = _File(OUTCOMES)
    """The outcome of each transactional batch on each replica, by the last check."""

    def broker_snapshot(self, broker: int, snapshot: str) -> Path:
        """Return the folder of a broker's files at a snapshot."""
        return self.path / BROKERS / str(broker) / snapshot

    def fetched_snapshot(self, broker: int, snapshot: str) -> Path:
        """Return the folder of a broker's answers at a snapshot."""
        return self.path / FETCHED / str(broker) / snapshot

    def write_json(self, path: Path, content: Any) -> None:
        """Replace a JSON file atomically."""
        write_atomically(path, to_json(content, indent=2) + "\n")

    def keep_former_verdict(self, verdict: Any) -> Path | None:
        """Copy ``verdict.json`` to a name with its time, if it differs from ``verdict``; return the copy, or None."""
        if not self.verdict_path.is_file():
            return None
        former = self.verdict_path.read_bytes()
        with suppress(ValueError):
            if json.loads(former) == json.loads(json.dumps(verdict)):
                return None
        written_at = datetime.fromtimestamp(self.verdict_path.stat().st_mtime, UTC)
        stem = f"{self.verdict_path.stem}-{written_at:{TIME_FORMAT}}"
        for number in count(1):
            path = self.path / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
            with suppress(FileExistsError), path.open("xb") as copy:
                copy.write(former)
                return path
        return None

    def write_lines(self, path: Path, lines: Iterable[Any]) -> None:
        """Replace a file of JSON lines atomically."""
        write_atomically(path, "".join(to_json(line) + "\n" for line in lines))


def login_file(command: str) -> str | None:
    """Return the properties file of a run's command; None without one."""
    words = shlex.split(command)
    return words[words.index(LOGIN) + 1] if LOGIN in words[:-1] else None


def new_run_id() -> str:
    """Return a run id: UTC time to the second, and four random hex digits against collisions."""
    return f"{datetime.now(UTC):{TIME_FORMAT}}-{secrets.token_hex(2)}"


def begin_of(run_id: str) -> datetime | None:
    """Return the time in the id of a run or an audit; None without one."""
    try:
        text = run_id.removeprefix(AUDIT_RUN)[:20]
        return datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def create_run_folder(results: Path, target: str, anomaly: str, run_id: str) -> RunFolder:
    """Create ``results/target/anomaly/run_id``.

    Only this user may read it, as it has keys and values of records. Raises `UsageError` if the folder cannot be
    written, or its disk is full.
    """
    path = results / target / anomaly / run_id
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=PRIVATE)
        if shutil.disk_usage(path).free < MIN_FREE_BYTES:
            path.rmdir()
            raise UsageError(
                f"the disk of {results} has less than {MIN_FREE_BYTES >> 20} MiB free;"
                " free some space, or choose another place with --results"
            )
        probe = path / ".probe"
        probe.write_bytes(b"\0" * 4096)
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"results cannot be written to {results}: {error.strerror or error}; choose another place with --results"
        ) from error
    return RunFolder(path)


def protection_of(manifest: Mapping[str, Any]) -> str | None:
    """Return the key of a run's protection; None for a run without protection."""
    return next((name for name in PROTECTION_FILES if manifest.get(name)), None)
