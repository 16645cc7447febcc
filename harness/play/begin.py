"""The manifest of a run that begins: all that is known before its first broker starts."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from harness import DISTRIBUTION
from harness.errors import HarnessError
from harness.host import commands, leftovers
from harness.play.group_workload import groups_of
from harness.play.protection import GUARD_INTERVAL_S
from harness.report.pictures import topology as drawing
from harness.run_folder.manifest import HIDDEN, Manifest
from harness.run_folder.store import RUNNING, SCHEMA, TOPOLOGY, RunFolder
from harness.schedules.catalog import CONTROL, SERVED_SCENARIOS
from harness.schedules.schedule import schedule_json

if TYPE_CHECKING:
    from harness.play.run_plan import PreparedRun

PACKAGES = ("confluent-kafka", "kafka-python", "pyspark", "pyarrow")
SCHEDULE = "schedule"
"""Stands for the anomaly where a schedule was given."""
SECRET = re.compile(r"password|secret|jaas\.config|keystore\.key$|certificate\.chain$")


def begin_manifest(folder: RunFolder, run: PreparedRun, command: str | None = None) -> Manifest:
    """Write the manifest of a run that starts now. ``command``: the command line that runs the same again."""
    plan, options, equipment, security = run.plan, run.plan.options, run.equipment, run.security
    target, jars, agent = plan.target, equipment.jars, equipment.agent
    schedule, installed = options.schedule, run.installed
    me = leftovers.owner_of_this_process(folder.run_id, folder.path)
    groups = groups_of(plan)
    links = sorted(plan.nemesis.shape(plan.placement)) if plan.nemesis.shape else None
    manifest = Manifest(
        folder,
        {
            "schema": SCHEMA,
            "run_id": folder.run_id,
            "status": RUNNING,
            "failure": None,
            "command": command,
            "target": {name: getattr(target, name) for name in ("name", "version", "note", "status")},
            "coordination": dict.fromkeys(plan.system.proof, False),
            "anomaly": options.anomaly or SCHEDULE,
            "schedule": schedule_json(schedule) if schedule else None,
            "nemesis": plan.nemesis.name,
            "takes_away": plan.nemesis.is_outage,
            "hands_over": plan.nemesis.hands_over,
            "topology": links,
            "client": options.client,
            "timers": plan.timers.name,
            "seed": plan.seed,
            "topic_settings": dict(plan.topic_settings),
            "broker_settings": without_secrets(plan.broker_settings),
            "brokers": list(plan.placement.brokers),
            "absent_brokers": list(plan.placement.absent),
            "replication_factor": plan.placement.replication_factor,
            "partitions": plan.placement.partitions,
            "control": (SERVED_SCENARIOS[0] if plan.is_served else CONTROL).name,
            "scenarios": [
                {
                    "name": scenario.name,
                    "anomaly": scenario.anomaly,
                    "payload": scenario.payload,
                    "summary": scenario.summary,
                    "topic": scenario.topic,
                    "replicas": {str(tp[1]): list(plan.replicas[tp]) for tp in plan.partitions[scenario.name]},
                    "groups": {str(tp[1]): groups[tp].name for tp in plan.partitions[scenario.name] if tp in groups},
                    "critical": list(scenario.critical),
                }
                for scenario in plan.scenarios
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
            "gate": {"sha256": agent.sha256, "options": options.gate_options or ""} if agent else None,
            "guard": {"interval_s": GUARD_INTERVAL_S} if options.guard else None,
            "application": {
                "name": installed.application.name,
                "version": installed.version,
                "jars": installed.jars.digests if installed.jars else {},
            }
            if installed
            else None,
            "owner": me,
            "timings_s": {},
        },
    )
    manifest.write()
    if links is not None:
        picture = drawing.topology(links, plan.placement.brokers, plan.placement.absent)
        (folder.path / TOPOLOGY).write_text(picture)
    return manifest


def without_secrets(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings without the values that Kafka hides (settings of type PASSWORD)."""
    return {name: HIDDEN if SECRET.search(name) else value for name, value in settings.items()}


def _version(distribution: str) -> str | None:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None


def commit_of_checkout() -> str | None:
    """Return the checkout's commit; None where the harness is installed and not run from a checkout."""
    root = Path(__file__).resolve().parents[2]
    with suppress(HarnessError):
        return commands.run("git", "-C", str(root), "rev-parse", "HEAD").strip() if (root / ".git").exists() else None
    return None
