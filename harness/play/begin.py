"""The manifest of a run that begins: all that is known before its first broker starts."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import DISTRIBUTION
from harness.errors import HarnessError
from harness.host import commands, leftovers
from harness.play.group_workload import groups_of
from harness.play.protection import GUARD_INTERVAL_S
from harness.report.pictures import drawing
from harness.run_folder.manifest import HIDDEN, Manifest
from harness.run_folder.store import RUNNING, SCHEMA, TOPOLOGY, RunFolder
from harness.schedules.catalog import CONTROL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.play.applications import Installed
    from harness.play.lifecycle import Job

PACKAGES = ("confluent-kafka", "kafka-python", "pyspark", "pyarrow")
SCHEDULE = "schedule"
"""Stands for the anomaly where a schedule was given."""
SECRET = re.compile(r"password|secret|jaas\.config|keystore\.key$|certificate\.chain$")


def begin(folder: RunFolder, job: Job, command: str | None = None) -> Manifest:
    """Write the manifest of a run that starts now. ``command``: the command line that runs the same again."""
    test, equipment, security = job.test, job.equipment, job.security
    target, jars = equipment.target, equipment.jars
    schedule = job.options.schedule
    me = leftovers.owner_of_this_process(folder.run_id, folder.path)
    groups = groups_of(test)
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
            "anomaly": job.options.anomaly or SCHEDULE,
            "schedule": vars(schedule) if schedule else None,
            "nemesis": test.nemesis.name,
            "takes_away": test.nemesis.is_outage,
            "hands_over": test.nemesis.hands_over,
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
                    "topic": scenario.topic,
                    "replicas": {str(tp[1]): list(test.replicas[tp]) for tp in test.partitions[scenario.name]},
                    "groups": {str(tp[1]): groups[tp].name for tp in test.partitions[scenario.name] if tp in groups},
                    "critical": list(scenario.critical),
                }
                for scenario in test.scenarios
            ],
            "versions": {
                "harness": _version(DISTRIBUTION),
                "commit": commit_of_checkout(),
                "python": platform.python_version(),
                "java": equipment.java.version_text,
                "platform": platform.platform(),
                **{name: _version(name) for name in PACKAGES},
            },
            "runtime": dict(equipment.ready.facts),
            "security": {"protocol": security.protocol, "mechanism": security.mechanism} if security else None,
            "jars": jars.digests if jars else {},
            "jars_pinned": jars.pinned if jars else None,
            "build": asdict(target.build) if target.build else None,
            "gate": _gate(job),
            "guard": {"interval_s": GUARD_INTERVAL_S} if job.options.guard else None,
            "application": _application(job.installed) if job.installed else None,
            "owner": me,
            "timings_s": {},
        },
    )
    manifest.write()
    if links is not None:
        picture = drawing.topology(links, test.placement.brokers, test.placement.absent)
        (folder.path / TOPOLOGY).write_text(picture)
    return manifest


def _gate(job: Job) -> dict[str, Any] | None:
    if job.equipment.agent is None:
        return None
    return {"sha256": job.equipment.agent.sha256, "options": job.options.gate_options or ""}


def _application(installed: Installed) -> dict[str, Any]:
    return {
        "name": installed.application.name,
        "version": installed.version,
        "jars": installed.jars.digests,
    }


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with the values hidden that Kafka hides too (those of type PASSWORD)."""
    return {name: HIDDEN if SECRET.search(name) else value for name, value in settings.items()}


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
        return commands.run("git", "-C", str(root), "rev-parse", "HEAD").strip()
    except HarnessError:
        return None
