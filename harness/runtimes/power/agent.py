"""The agent that notes what a broker syncs, and the notes that a broker begins with."""

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
    """Return the reason why syncs cannot be noted here, None where they can."""
    return None if sys.platform == "linux" else "syncs are noted on Linux only"


def build(java: Java, on_progress: OnProgress) -> Agent:
    """Return the agent, compiling it where that was not done before. Raises as `build_agent` does."""
    return build_agent(java, on_progress, SYNC_NOTES)


def flag(agent: Agent, log: Path, folder: Path) -> str:
    """Return what starts a JVM that notes in ``log`` what it syncs of the files of ``folder``."""
    return agent.flag(f"{log}={folder}")


def begin(log: Path, folder: Path) -> None:
    """Begin a log anew, with everything that is in the folder as synced: its storage was formatted long ago."""
    log.write_text("".join(sync_line(name, path.stat().st_size) for name, path in files_of(folder)))
