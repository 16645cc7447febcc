"""``manifest.json``: what was run, with what, by whom, and how it ended. How one begins is in `harness.play.begin`."""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from harness.broker_files.segments.batches import CorruptLogError, iter_batches
from harness.broker_files.segments.transactions import transaction_version
from harness.errors import UsageError
from harness.host import leftovers
from harness.run_folder import inventory
from harness.run_folder.store import MANIFEST, RUNNING, RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.broker_files.segments.batches import Batch

log = logging.getLogger("harness")

FIELDS = (
    "run_id", "target", "anomaly", "nemesis", "absent_brokers", "scenarios", "timings_s",
)  # fmt: skip
"""What every finished run's manifest has."""
HIDDEN = "(hidden)"
"""Stands for a secret."""
DIGEST = "digest"
"""Of the manifest: that of all its other fields."""


@dataclass
class Manifest:
    """The manifest of a run that is going on; `write` brings the file up to date."""

    folder: RunFolder
    content: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        """Replace ``manifest.json``."""
        self.content[DIGEST] = _digest(self.content)
        self.folder.write_json(self.folder.manifest_path, self.content)

    def finish(self, status: str, timings_s: Mapping[str, float], failure: str | None = None) -> None:
        """Record how the run ended, and list its evidence; ``failure``: why it did not go to its end, in a sentence."""
        shown = transaction_version(map(_batches, sorted(self.folder.path.glob("brokers/*/*/*/*.log"))))
        self.content.update(status=status, timings_s=dict(timings_s), failure=failure, transaction_version=shown)
        self.list_evidence()

    def list_evidence(self) -> None:
        """List the evidence as it is now, with sizes and digests (see `harness.run_folder.inventory`)."""
        try:
            self.content[inventory.FIELD] = inventory.take_inventory(self.folder)
        except OSError as error:
            # The run is over, and its verdict matters more.
            self.content[inventory.FIELD] = None
            log.warning("the manifest does not list the evidence: %s", error)
        self.write()

    def go_on(self) -> None:
        """Record that this process goes on with a run that was cut off."""
        owner = leftovers.owner_of_this_process(self.folder.run_id, self.folder.path)
        self.content.update(status=RUNNING, failure=None, owner=owner)
        self.content.pop(inventory.FIELD, None)
        self.content.setdefault("resumed_at", []).append(datetime.now(UTC).isoformat(timespec="seconds"))
        self.write()

    def time(self, timings_s: Mapping[str, float]) -> None:
        """Record the timings anew, with what came after the end."""
        self.content["timings_s"] = dict(timings_s)
        self.write()


def open_run(path: Path, needed: Sequence[str]) -> tuple[RunFolder, dict[str, Any], leftovers.Owner]:
    """Return a stored run's folder, its manifest with all that is ``needed`` in it, and the owner this names.

    Raises `UsageError` for anything that is no run folder, or whose manifest is damaged.
    """
    folder = RunFolder(path.resolve())
    if not path.is_dir():
        raise UsageError(f"{path} is no folder; give a run folder, such as results/kafka-3.9/stuck-lso/latest")
    damaged = f"the run folder is damaged: {folder.manifest_path}"
    try:
        content = json.loads(folder.manifest_path.read_text())
    except FileNotFoundError:
        raise UsageError(f"{path} is no run folder: it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{damaged}: {error}") from error
    wanted = (*needed, "status", "owner")
    missing = [name for name in wanted if not isinstance(content, dict) or name not in content]
    if missing:
        raise UsageError(f"{damaged} lacks {', '.join(missing)}")
    # Manifests of older runs have none.
    if DIGEST in content and content[DIGEST] != _digest(content):
        raise UsageError(f"{damaged} has other content than the run wrote")
    try:
        return folder, content, leftovers.Owner(**content["owner"])
    except TypeError as error:
        raise UsageError(f"{damaged} names no owner") from error


def open_run_folder(path: Path) -> tuple[RunFolder, dict[str, Any]]:
    """Return a finished run's folder and manifest. Raises `UsageError` for anything that is not one."""
    folder, content, owner = open_run(path, FIELDS)
    if content["status"] == RUNNING:
        kept = leftovers.read_owner(leftovers.work_root() / folder.run_id)
        why = (
            f"its run is still going on (process {owner.pid})"
            if owner.lives()
            else f"its run was cut off; it can go on with `harness run --resume {path}`"
            if kept is not None and kept.resumable
            else "its run was cut off"
        )
        raise UsageError(f"{path} is half-written: {why}")
    return folder, content


def _digest(content: Mapping[str, Any]) -> str:
    # As it will be read again: without tuples, and without keys that are numbers.
    fields = json.loads(json.dumps({name: value for name, value in content.items() if name != DIGEST}))
    return hashlib.blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=inventory.DIGEST_BYTES).hexdigest()


def _batches(segment: Path) -> Iterator[Batch]:
    """Walk a stored segment; it may end in a batch that was being written."""
    with suppress(CorruptLogError):
        yield from iter_batches(segment.read_bytes(), source=str(segment), verify_crc=False)
