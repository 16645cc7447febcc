"""``manifest.json``: what was run, with what, by whom, and how it ended. Written here, and read again."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import platform
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.brokers.segments.batches import CorruptLogError, iter_batches
from harness.brokers.segments.transactions import transaction_version
from harness.errors import UsageError
from harness.host import leftovers
from harness.judge.verdict import MANIFEST_FIELDS, RUNNING, SCHEMA
from harness.plan.catalog import CONTROL
from harness.report import drawing
from harness.run_folder import inventory
from harness.run_folder.store import MANIFEST, TOPOLOGY, RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harness.brokers.protocol.security import Security
    from harness.brokers.segments.batches import Batch
    from harness.host.java import Java
    from harness.plan.schedule import Schedule
    from harness.run.runner import Test
    from harness.targets import Target
    from harness.targets.jars import JarSet

log = logging.getLogger("harness")

PACKAGES = ("confluent-kafka", "kafka-python", "pyspark", "pyarrow")
DISTRIBUTION = "compaction-harness"
GIT_TIMEOUT_S = 5.0
HIDDEN = "(hidden)"
DIGEST = "digest"
"""Of the manifest: that of all its other fields."""
SECRET = re.compile(r"password|secret|jaas\.config|keystore\.key$|certificate\.chain$")


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


def begin(
    folder: RunFolder,
    *,
    target: Target,
    anomaly: str,
    schedule: Schedule | None = None,
    test: Test,
    java: Java,
    runtime: Mapping[str, Any],
    jars: JarSet | None,
    security: Security | None = None,
    command: str | None = None,
) -> Manifest:
    """Write the manifest of a run that starts now. ``jars``: those that brokers or clients of this host run on.

    ``command``: the command line that runs the same again.
    """
    me = leftovers.owner_of_this_process(folder.run_id, folder.path)
    links = sorted(test.nemesis.shape(test.placement).edges) if test.nemesis.shape else None
    manifest = Manifest(
        folder,
        {
            "schema": SCHEMA,
            "run_id": folder.run_id,
            "status": RUNNING,
            "failure": None,
            "command": command,
            "target": {
                "name": target.name,
                "version": target.version,
                "note": target.note,
                "unpromised": dict(target.unpromised),
            },
            "coordination": dict.fromkeys(test.system.proof, False),
            "anomaly": anomaly,
            "schedule": vars(schedule) if schedule else None,
            "nemesis": test.nemesis.name,
            "takes_away": test.nemesis.takes_away,
            "topology": links,
            "client": test.client,
            "timers": test.timers.name,
            "seed": test.seed,
            "topic_settings": dict(test.topic_settings),
            "broker_settings": without_secrets(test.broker_settings),
            "brokers": list(test.placement.brokers),
            "absent_brokers": list(test.placement.absent),
            "replication_factor": test.placement.replication_factor,
            "partitions": test.placement.partitions,
            "control": CONTROL.name,
            "scenarios": [
                {
                    "name": scenario.name,
                    "anomaly": scenario.anomaly,
                    "payload": scenario.payload,
                    "summary": scenario.summary,
                    "topic": scenario.name,
                    "replicas": {
                        str(partition): list(brokers)
                        for (topic, partition), brokers in test.replicas.items()
                        if topic == scenario.name
                    },
                    "critical": list(scenario.critical),
                }
                for scenario in test.scenarios
            ],
            "versions": {
                "harness": _version(DISTRIBUTION),
                "commit": commit_of_checkout(),
                "python": platform.python_version(),
                "java": java.version_text,
                "platform": platform.platform(),
                **{name: _version(name) for name in PACKAGES},
            },
            "runtime": dict(runtime),
            "security": {"protocol": security.protocol, "mechanism": security.mechanism} if security else None,
            "jars": jars.digests if jars else {},
            "jars_pinned": jars.pinned if jars else None,
            "owner": me,
            "timings_s": {},
        },
    )
    manifest.write()
    if links is not None:
        picture = drawing.topology(links, test.placement.brokers, test.placement.absent)
        (folder.path / TOPOLOGY).write_text(picture)
    return manifest


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
    folder, content, owner = open_run(path, MANIFEST_FIELDS)
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


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with the values hidden that Kafka hides too (those of type PASSWORD)."""
    return {name: HIDDEN if SECRET.search(name) else value for name, value in settings.items()}


def _digest(content: Mapping[str, Any]) -> str:
    # As it will be read again: without tuples, and without keys that are numbers.
    told = json.loads(json.dumps({name: value for name, value in content.items() if name != DIGEST}))
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=inventory.DIGEST_BYTES).hexdigest()


def _batches(segment: Path) -> Iterator[Batch]:
    """Walk a stored segment; it may end in a batch that was being written."""
    with suppress(CorruptLogError):
        yield from iter_batches(segment.read_bytes(), source=str(segment), verify_crc=False)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit_of_checkout() -> str | None:
    """Return the checkout's commit; None where the harness is installed and not run from a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
