"""The run folder: the one artifact of a run, complete enough for the same verdict a year later.

results/<target>/<anomaly>/<run id>/          latest -> newest
  manifest.json  history.jsonl  observations.jsonl  harness.log
  brokers/<id>/<snapshot>/<topic>-<partition>/*     beside them the checkpoints
  fetched/<id>/<snapshot>/<topic>-<partition>/{batches.bin,state.json}
  logs/<id>/server.log     verdict.json     outcomes.jsonl     aftermath.jsonl  aftermath-history.jsonl
  report.html              all of it to look at
  topology.svg             who hears whom while brokers are away, where links are the fault
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LATEST = "latest"
MIN_FREE_BYTES = 64 << 20
MANIFEST = "manifest.json"
HISTORY = "history.jsonl"
OBSERVATIONS = "observations.jsonl"
AFTERMATH = "aftermath.jsonl"
AFTERMATH_HISTORY = "aftermath-history.jsonl"
HARNESS_LOG = "harness.log"
VERDICT = "verdict.json"
OUTCOMES = "outcomes.jsonl"
TOPOLOGY = "topology.svg"
REPORT = "report.html"
STATE = "state.json"
"""What a broker said of a replica that it served."""
COORDINATOR = "coordinator.json"
"""What a broker said of the transactions that it coordinates; only of an audit."""
BROKER_UUID = "broker-uuid"
"""Among the checkpoints of a broker whose files do not name its data directory."""

BEFORE_RETURN = "before-return"
AFTER_REJOIN = "after-rejoin"


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run."""

    path: Path

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
    def aftermath_path(self) -> Path:
        """``aftermath.jsonl``; only where it was asked for."""
        return self.path / AFTERMATH

    @property
    def aftermath_history_path(self) -> Path:
        """``aftermath-history.jsonl``: what the clients did after the evidence was complete."""
        return self.path / AFTERMATH_HISTORY

    @property
    def verdict_path(self) -> Path:
        """``verdict.json``."""
        return self.path / VERDICT

    @property
    def outcomes_path(self) -> Path:
        """``outcomes.jsonl``: what each replica makes of each transactional batch, by the last check."""
        return self.path / OUTCOMES

    @property
    def logs_path(self) -> Path:
        """``logs/``, one folder a broker."""
        return self.path / "logs"

    def broker_snapshot(self, broker: int, snapshot: str) -> Path:
        """A broker's files at a snapshot."""
        return self.path / "brokers" / str(broker) / snapshot

    def fetched_snapshot(self, broker: int, snapshot: str) -> Path:
        """What a broker served at a snapshot."""
        return self.path / "fetched" / str(broker) / snapshot

    def write_json(self, path: Path, content: Any) -> None:
        """Replace a JSON file in one step: readers see the old or the new one, never half."""
        draft = path.with_suffix(path.suffix + ".new")
        draft.write_text(json.dumps(content, indent=2, sort_keys=False) + "\n")
        draft.replace(path)

    def write_lines(self, path: Path, lines: Iterable[Any]) -> None:
        """Replace a file of JSON lines in one step."""
        draft = path.with_suffix(path.suffix + ".new")
        draft.write_text("".join(json.dumps(line) + "\n" for line in lines))
        draft.replace(path)


def new_run_id(now: datetime | None = None) -> str:
    """Return a run id: UTC time to the second and four random hex digits, so that two runs never collide."""
    return f"{now or datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}-{secrets.token_hex(2)}"


def create_run_folder(results: Path, target: str, anomaly: str, run_id: str) -> RunFolder:
    """Create ``results/target/anomaly/run_id`` and point ``latest`` at it.

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
        _point_latest(path)
    except OSError as error:
        raise UsageError(
            f"results cannot be written to {results}: {error.strerror or error}; choose another place with --results"
        ) from error
    return RunFolder(path)


def _point_latest(path: Path) -> None:
    draft = path.parent / f".{LATEST}-{path.name}"
    draft.symlink_to(path.name)
    draft.replace(path.parent / LATEST)
