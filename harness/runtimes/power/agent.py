"""The agent that records a broker's syncs as notes, and the initial notes of a broker."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from harness.protect.gate.build import AgentSource, build_agent
from harness.runtimes.power.sync_log import files_of, sync_line

if TYPE_CHECKING:
    from pathlib import Path

    from harness.host.java import Java
    from harness.protect.gate.build import Agent
    from harness.targets.jars import OnProgress

SYNC_NOTES: Final = AgentSource("sync notes", "harness.runtimes.power", "power/syncs", "sync-notes.jar")


def why_impossible() -> str | None:
    """Return the reason why syncs cannot be recorded on this host, or None."""
    return None if sys.platform == "linux" else "syncs are recorded on Linux only"


def build(java: Java, on_progress: OnProgress) -> Agent:
    """Return the agent, compiled if needed. Raises as `build_agent` does."""
    return build_agent(java, on_progress, SYNC_NOTES)


def flag(agent: Agent, log: Path, folder: Path) -> str:
    """Return the flag of a JVM that records its syncs of files in ``folder`` in ``log``."""
    return agent.flag(f"{log}={folder}")


def begin(log: Path, folder: Path) -> None:
    """Start a log from scratch, with all files in the folder as synced: its storage was formatted long ago."""
    log.write_text("".join(sync_line(name, path.stat().st_size) for name, path in files_of(folder)))
