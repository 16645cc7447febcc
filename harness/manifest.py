"""``manifest.json``: what was run, with what, by whom, and how it ended."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import leftovers
from harness.catalog import CONTROL
from harness.segments.batches import CorruptLogError, iter_batches
from harness.segments.transactions import transaction_version
from harness.verdict import RUNNING, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from harness.java import Java
    from harness.runner import Test
    from harness.segments.batches import Batch
    from harness.store import RunFolder
    from harness.targets import Target
    from harness.targets.jars import JarSet

PACKAGES = ("confluent-kafka", "kafka-python", "pyspark", "pyarrow")
DISTRIBUTION = "compaction-harness"
GIT_TIMEOUT_S = 5.0


@dataclass
class Manifest:
    """The manifest of a run that is going on; `write` brings the file up to date."""

    folder: RunFolder
    content: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        """Replace ``manifest.json``."""
        self.folder.write_json(self.folder.manifest_path, self.content)

    def finish(self, status: str, timings_s: Mapping[str, float], failure: str | None = None) -> None:
        """Record how the run ended; ``failure`` is one sentence where it did not go to its end."""
        shown = transaction_version(map(_batches, sorted(self.folder.path.glob("brokers/*/*/*/*.log"))))
        self.content.update(status=status, timings_s=dict(timings_s), failure=failure, transaction_version=shown)
        self.write()

    def go_on(self) -> None:
        """Record that this process goes on with a run that was cut off."""
        owner = leftovers.owner_of_this_process(self.folder.run_id, self.folder.path)
        self.content.update(status=RUNNING, failure=None, owner=owner)
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
    test: Test,
    java: Java,
    jars: JarSet,
) -> Manifest:
    """Write the manifest of a run that starts now."""
    me = leftovers.owner_of_this_process(folder.run_id, folder.path)
    manifest = Manifest(
        folder,
        {
            "schema": SCHEMA,
            "run_id": folder.run_id,
            "status": RUNNING,
            "failure": None,
            "target": {"name": target.name, "version": target.version, "note": target.note},
            "anomaly": anomaly,
            "nemesis": test.nemesis.name,
            "client": test.client,
            "timers": test.timers.name,
            "seed": test.seed,
            "topic_settings": dict(test.topic_settings),
            "broker_settings": dict(test.broker_settings),
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
                "commit": _commit(),
                "python": platform.python_version(),
                "java": java.version_text,
                "platform": platform.platform(),
                **{name: _version(name) for name in PACKAGES},
            },
            "jars": jars.digests,
            "jars_pinned": jars.pinned,
            "owner": me,
            "timings_s": {},
        },
    )
    manifest.write()
    return manifest


def _batches(segment: Path) -> Iterator[Batch]:
    """Walk a stored segment; it may end in a batch that was being written."""
    with suppress(CorruptLogError):
        yield from iter_batches(segment.read_bytes(), source=str(segment), verify_crc=False)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the checkout's commit; None where the harness is installed and not run from a checkout."""
    root = Path(__file__).resolve().parent.parent
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
