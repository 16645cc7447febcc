"""How the gate's jar is given to Java, and how Java is run to compile it or to try it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from harness.errors import HarnessError

if TYPE_CHECKING:
    from pathlib import Path

    from harness.host.java import Java

TIMEOUT_S: Final = 120.0


def agent_flag(jar: Path, options: str = "") -> str:
    """Return what starts a JVM with the agent."""
    return f"-javaagent:{jar}={options}" if options else f"-javaagent:{jar}"


def run_java(java: Java, *arguments: str | Path, failure: str) -> subprocess.CompletedProcess[str]:
    """Run a short program to its end, whatever its exit code.

    Raises `HarnessError`, which begins with ``failure``, where Java cannot be run or does not end in time.
    """
    try:
        return subprocess.run(
            [java.path, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessError(f"{failure}: {error}") from error
