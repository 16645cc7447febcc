"""``manifest.json``: the versions, configuration, owner and status of a run; `harness.play.begin` creates it."""

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from harness.broker_files.segments.batches import Batch, CorruptLogError, iter_batches
from harness.errors import UsageError, raised_as
from harness.host import leftovers
from harness.run_folder import inventory
from harness.run_folder.store import MANIFEST, RUNNING, SCHEMA, RunFolder

log = logging.getLogger("harness")

FIELDS = (
    "run_id", "target", "anomaly", "nemesis", "absent_brokers", "scenarios", "timings_s",
)  # fmt: skip
"""Fields of every finished run's manifest."""
HIDDEN = "(hidden)"
"""Replaces a secret."""
DIGEST = "digest"
"""The field with the digest of all other fields."""


@dataclass
class Manifest:
    """The manifest of a current run; `write` updates the file."""

    folder: RunFolder
    content: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        """Replace ``manifest.json``."""
        self.content[DIGEST] = _digest(self.content)
        self.folder.write_json(self.folder.manifest_path, self.content)

    def finish(self, status: str, timings_s: Mapping[str, float], failure: str | None = None) -> None:
        """Record the end of the run, and list its evidence. ``failure``: why the run is incomplete, in a sentence."""
        shown = transaction_version(map(_batches, sorted(self.folder.path.glob("brokers/*/*/*/*.log"))))
        self.content.update(status=status, timings_s=dict(timings_s), failure=failure, transaction_version=shown)
        self.list_evidence()

    def list_evidence(self) -> None:
        """List the evidence as it is now, with sizes and digests (see `harness.run_folder.inventory`)."""
        try:
            self.content[inventory.FIELD] = inventory.take_inventory(self.folder)
        except OSError as error:
            # The run has ended, and its verdict is more important than the list.
            self.content[inventory.FIELD] = None
            log.warning("the manifest does not list the evidence: %s", error)
        self.write()

    def go_on(self) -> Self:
        """Record that this process continues an interrupted run; return the manifest."""
        owner = leftovers.owner_of_this_process(self.folder.run_id, self.folder.path)
        self.content.update(status=RUNNING, failure=None, owner=owner)
        self.content.pop(inventory.FIELD, None)
        self.content.setdefault("resumed_at", []).append(datetime.now(UTC).isoformat(timespec="seconds"))
        self.write()
        return self

    def time(self, timings_s: Mapping[str, float]) -> None:
        """Record the timings again, with those after the end of the run."""
        self.content["timings_s"] = dict(timings_s)
        self.write()


def open_run(path: Path, needed: Sequence[str]) -> tuple[RunFolder, dict[str, Any], leftovers.Owner]:
    """Return a stored run's folder, its manifest with the ``needed`` fields, and the owner of the run.

    Raises `UsageError` if the path is not a run folder, or its manifest is damaged.
    """
    folder = RunFolder(path.resolve())
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder; give a run folder, such as results/kafka-3.9/stuck-lso/latest")
    damaged = f"the run folder is damaged: {folder.manifest_path}"
    with raised_as(UsageError, damaged, OSError, ValueError):
        if not folder.manifest_path.is_file():
            raise UsageError(f"{path} is not a run folder: it has no {MANIFEST}")
        content = json.loads(folder.manifest_path.read_text())
    if isinstance(content, dict) and content.get("schema", SCHEMA) != SCHEMA:
        raise UsageError(f"{folder.manifest_path} has schema {content['schema']}, and this version reads {SCHEMA}")
    required = (*needed, "status", "owner")
    if missing := [name for name in required if not isinstance(content, dict) or name not in content]:
        raise UsageError(f"{damaged} does not have {', '.join(missing)}")
    # Published manifests of older runs have none.
    if DIGEST in content and content[DIGEST] != _digest(content):
        raise UsageError(f"{damaged} has other content than the run wrote")
    try:
        return folder, content, leftovers.Owner(**content["owner"])
    except TypeError as error:
        raise UsageError(f"{damaged} names no owner") from error


def open_run_folder(path: Path) -> tuple[RunFolder, dict[str, Any]]:
    """Return a finished run's folder and manifest. Raises `UsageError` for any other path."""
    folder, content, owner = open_run(path, FIELDS)
    if content["status"] == RUNNING:
        local_owner = leftovers.read_owner(leftovers.work_root() / folder.run_id)
        why = f"its run is still in progress (process {owner.pid})" if owner.lives() else "its run was interrupted"
        if not owner.lives() and local_owner is not None and local_owner.resumable:
            why += f"; `harness run --resume {path}` continues it"
        raise UsageError(f"{path} is half-written: {why}")
    return folder, content


def transaction_version(segments: Iterable[Iterable[Batch]]) -> int | None:
    """Return 2 if every marker has a higher producer epoch than its transaction's data, else 1; None without markers.

    From transactions v2 on (KIP-890) a coordinator increments the epoch with each end of a transaction, in v1 only if
    the coordinator itself ends the transaction.
    """
    bumped: set[bool] = set()
    for segment in segments:
        epochs: dict[int, int] = {}
        for batch in segment:
            if not batch.is_transactional:
                continue
            if not batch.is_control:
                epochs[batch.producer_id] = batch.producer_epoch
            elif batch.producer_id in epochs:
                bumped.add(batch.producer_epoch > epochs.pop(batch.producer_id))
    return None if not bumped else 2 if all(bumped) else 1


def _digest(content: Mapping[str, Any]) -> str:
    # JSON has neither tuples nor numeric keys: the digest is of the fields as they are read.
    fields = json.loads(json.dumps({name: value for name, value in content.items() if name != DIGEST}))
    return hashlib.blake2b(json.dumps(fields, sort_keys=True).encode(), digest_size=inventory.DIGEST_BYTES).hexdigest()


def _batches(segment: Path) -> Iterator[Batch]:
    """Yield the batches of a stored segment, which may end in an incomplete batch."""
    with suppress(CorruptLogError):
        yield from iter_batches(segment.read_bytes(), source=str(segment), verify_crc=False)
