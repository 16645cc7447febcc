"""Commands of this host that the harness calls: found, run with a time limit, and quoted in error messages."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 10.0

# Given to every command by name: one that inherits it fails to start while another thread changes it (EFAULT).
_ENVIRONMENT = dict(os.environ)
# Where the system's commands are on Debian; a PATH that came through `su` lacks it.
_ENVIRONMENT["PATH"] = f"{_ENVIRONMENT.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def find(command: str) -> str | None:
    """Return where a command is, None where it is not installed."""
    return shutil.which(command, path=_ENVIRONMENT["PATH"])


def run(*command: str, timeout_s: float = TIMEOUT_S, variables: Mapping[str, str] | None = None) -> str:
    """Run a command with these variables added to its environment; return what it prints, to stderr if nothing else.

    Raises `HarnessError` with its own words where it fails or does not end in time.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**_ENVIRONMENT, **(variables or {})},
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HarnessError(f"`{' '.join(command)}`: {error}") from error
    if done.returncode != 0:
        message = " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
        raise HarnessError(f"`{' '.join(command)}`: {message}")
    return done.stdout or done.stderr
