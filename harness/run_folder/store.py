"""The run folder: the one artifact of a run, complete enough for the same verdict a year later.

results/<target>/<anomaly>/<run id>/          latest -> the newest with a verdict
  manifest.json  history.jsonl  observations.jsonl  harness.log
  brokers/<id>/<snapshot>/<topic>-<partition>/*     beside them the checkpoints
  fetched/<id>/<snapshot>/<topic>-<partition>/{batches.bin,state.json}
  gate.jsonl               what the gate of each broker did, or a build that has its rules
  guard.jsonl  guard.log   what the guard beside the run did; only with --guard
  logs/<id>/server.log     verdict.json     outcomes.jsonl     aftermath.jsonl  aftermath-history.jsonl
  verdict-<time>.json      a former verdict, by the time when it was given; only where a later one differs
  schedule.json            what was replayed, where that was a schedule
  report.html              all of it to look at
  topology.svg             who hears whom while brokers are away, where links are the fault
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError
from harness.escape import to_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCHEMA = 1
"""Of ``manifest.json`` and ``verdict.json``."""
RUNNING, COMPLETE = "running", "complete"
"""A run's status while it goes on, and where it went to its end."""
LATEST = "latest"
TIME_FORMAT = "%Y-%m-%dT%H-%M-%SZ"
"""Of UTC times in names of files and folders."""
MIN_FREE_BYTES = 64 << 20
MANIFEST = "manifest.json"
HISTORY = "history.jsonl"
OBSERVATIONS = "observations.jsonl"
OFFSETS = "offsets.jsonl"
"""Where the replicas of a soak's round ended, in time (`harness.soak.evidence.offsets`)."""
WHOLE_HISTORY = "history-whole.jsonl"
"""What the clients of a soak's round did, where ``history.jsonl`` has only what checkers read of it."""
ROUND = "round.json"
"""The schedule of a soak's round."""
SOAK_STATE = "soak.json"
"""What was asked of a soak, and a line for each of its rounds."""
APPLICATIONS = "applications.jsonl"
APPLICATION_HISTORY = "application-history.jsonl"
AFTERMATH = "aftermath.jsonl"
"""Only where it was asked for."""
AFTERMATH_HISTORY = "aftermath-history.jsonl"
"""What the clients did after the evidence was complete."""
GATE = "gate.jsonl"
SKIPPED_MARKERS = "skipped-markers.jsonl"
"""What the gate of each broker did (`harness.protect.gate.events`)."""
GUARD = "guard.jsonl"
"""What the guard beside the run did (`harness.run_folder.guard_events`)."""
GUARD_LOG = "guard.log"
HARNESS_LOG = "harness.log"
VERDICT = "verdict.json"
OUTCOMES = "outcomes.jsonl"
TOPOLOGY = "topology.svg"
REPORT = "report.html"
BROKERS = "brokers"
"""What brokers had on disk."""
FETCHED = "fetched"
"""What brokers served."""
BATCHES = "batches.bin"
"""The record batches of a replica that was served."""
SCHEDULE = "schedule.json"
"""What was replayed; only where that was a schedule."""
LOGS = "logs"
"""One folder a broker."""
STATE = "state.json"
"""The offsets and open transactions that a broker reported for a replica."""
COORDINATOR = "coordinator.json"
"""The transactions that a broker coordinates, as it reported them; only in an audit."""
BROKER_UUID = "broker-uuid"
"""Among the checkpoints of a broker whose files do not name its data directory."""

BEFORE_RETURN = "before-return"
AFTER_REJOIN = "after-rejoin"


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run. ``left_out``: files and folders, relative to it, that checkers do not read."""

    path: Path
    left_out: frozenset[str] = frozenset()

    def has(self, path: Path) -> bool:
        """Whether a file or folder of this run is there and is not left out."""
        name = path.relative_to(self.path)
        return path.exists() and not any(one.as_posix() in self.left_out for one in (name, *name.parents))

    @property
    def run_id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def manifest_path(self) -> Path:
        """``manifest.json``."""
        return self.path / MANIFEST

    @property
    def history_path(self) -> Path:
        """``history.jsonl``."""
        return self.path / HISTORY

    @property
    def observations_path(self) -> Path:
        """``observations.jsonl``."""
        return self.path / OBSERVATIONS

    @property
    def verdict_path(self) -> Path:
        """``verdict.json``."""
        return self.path / VERDICT

    @property
    def outcomes_path(self) -> Path:
        """``outcomes.jsonl``: what each replica makes of each transactional batch, by the last check."""
        return self.path / OUTCOMES

    def broker_snapshot(self, broker: int, snapshot: str) -> Path:
        """A broker's files at a snapshot."""
        return self.path / BROKERS / str(broker) / snapshot

    def fetched_snapshot(self, broker: int, snapshot: str) -> Path:
        """What a broker served at a snapshot."""
        return self.path / FETCHED / str(broker) / snapshot

    def write_json(self, path: Path, content: Any) -> None:
        """Replace a JSON file in one step: readers see the old or the new one, never half."""
        _replace(path, to_json(content, indent=2) + "\n")

    def keep_former_verdict(self, verdict: Any) -> Path | None:
        """Copy ``verdict.json`` to a name with the time when it was given, where it is not the same as ``verdict``.

        Returns the copy; None where there is none, as nothing would be lost.
        """
        if not self.verdict_path.exists():
            return None
        former = self.verdict_path.read_bytes()
        with suppress(ValueError):
            if json.loads(former) == json.loads(json.dumps(verdict)):
                return None
        given = datetime.fromtimestamp(self.verdict_path.stat().st_mtime, UTC)
        stem = f"{self.verdict_path.stem}-{given:{TIME_FORMAT}}"
        for number in count(1):
            path = self.path / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
            with suppress(FileExistsError), path.open("xb") as copy:
                copy.write(former)
                return path
        return None

    def write_lines(self, path: Path, lines: Iterable[Any]) -> None:
        """Replace a file of JSON lines in one step."""
        _replace(path, "".join(to_json(line) + "\n" for line in lines))


def _replace(path: Path, text: str) -> None:
    draft = path.with_suffix(path.suffix + ".new")
    draft.write_text(text)
    draft.replace(path)


def new_run_id() -> str:
    """Return a run id: UTC time to the second and four random hex digits, so that two runs never collide."""
    return f"{datetime.now(UTC):{TIME_FORMAT}}-{secrets.token_hex(2)}"


def create_run_folder(results: Path, target: str, anomaly: str, run_id: str) -> RunFolder:
    """Create ``results/target/anomaly/run_id``.

    Raises `UsageError` where the folder cannot be written or its disk is full.
    """
    path = results / target / anomaly / run_id
    try:
        path.mkdir(parents=True)
        usage = os.statvfs(path)
        if usage.f_bavail * usage.f_frsize < MIN_FREE_BYTES:
            path.rmdir()
            raise UsageError(
                f"the disk of {results} has less than {MIN_FREE_BYTES >> 20} MiB left;"
                " free some, or choose another place with --results"
            )
        probe = path / ".probe"
        probe.write_bytes(b"\0" * 4096)
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"results cannot be written to {results}: {error.strerror or error}; choose another place with --results"
        ) from error
    return RunFolder(path)
