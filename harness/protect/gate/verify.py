"""Verifies that the agent fits a version of Kafka: a broker's classes are loaded and changed, but no broker starts.

The agent itself does all checks before the main class starts, and ends the JVM where a check fails; the main class then
has the JVM verify each changed class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.protect.gate.build import agent_flag, run_java

if TYPE_CHECKING:
    from pathlib import Path

    from harness.host.java import Java

MAIN_CLASS: Final = "compaction.gate.Verify"
_HOOK: Final = "hook\t"
_REASONS: Final = ("compaction-gate:", "Error", "Exception")


@dataclass(frozen=True)
class Verification:
    """``hooks``: the hooked methods with the methods that they call; ``reason``: why a hook does not fit."""

    fits: bool
    hooks: tuple[tuple[str, str], ...]
    reason: str = ""


def verify_agent(java: Java, jar: Path, classpath: str, options: str = "") -> Verification:
    """Try the agent on the classes of a broker. Raises `HarnessError` where Java cannot be run."""
    done = run_java(java, agent_flag(jar, options), "-cp", classpath, MAIN_CLASS, failure="the gate cannot be tried")
    rows = [line.removeprefix(_HOOK).split("\t") for line in done.stdout.splitlines() if line.startswith(_HOOK)]
    hooks = tuple((row[0], row[1]) for row in rows)
    if done.returncode != 0:
        return Verification(False, hooks, _reason(done.stderr) or f"java ended with exit code {done.returncode}")
    return Verification(True, hooks)


def libraries(folder: Path) -> str:
    """Return the class path of a Kafka installation's ``libs`` folder. Raises `UsageError` if it has no jars."""
    if not (jars := sorted(folder.glob("*.jar"))):
        raise UsageError(f"{folder} has no jars: give the folder libs of an installation of Kafka")
    return ":".join(map(str, jars))


def _reason(stderr: str) -> str:
    """Return the first line of the JVM's output with a reason, without the class of the exception."""
    lines = [line.strip().removeprefix("Caused by: ") for line in stderr.splitlines()]
    reason = next((line for mark in _REASONS for line in lines if mark in line), "")
    return reason.partition("compaction-gate: ")[2] or reason
