"""Run commands of this host with a time limit, and raise their error messages."""

import os
import shutil
import subprocess
from collections.abc import Mapping

from harness.errors import HarnessError, raised_as

TIMEOUT_S = 10.0

# Passed to every command: a command that inherits the environment fails to start while a thread changes it (EFAULT).
ENVIRONMENT = dict(os.environ)
# The system's commands on Debian are in these folders, which a PATH from `su` does not have.
ENVIRONMENT["PATH"] = f"{ENVIRONMENT.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def find(command: str) -> str | None:
    """Return the path of a command, None if it is not installed."""
    return shutil.which(command, path=ENVIRONMENT["PATH"])


def run(*command: str, timeout_s: float = TIMEOUT_S, variables: Mapping[str, str] | None = None) -> str:
    """Run a command with additional environment variables; return its stdout, or its stderr without stdout.

    Raises `HarnessError` with the command's message if it fails, or does not end in time.
    """
    with raised_as(HarnessError, f"`{' '.join(command)}`", OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
            env={**ENVIRONMENT, **(variables or {})},
            timeout=timeout_s,
            check=False,
        )
    if done.returncode != 0:
        message = " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
        raise HarnessError(f"`{' '.join(command)}`: {message}")
    return done.stdout or done.stderr
