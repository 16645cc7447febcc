"""Pin a target's jars: ``python -m harness.targets.lock kafka-3.9`` writes its lock file.

For maintainers, in a source tree: resolves the POMs transitively, leaves out the target's excluded
modules, adds slf4j-simple as the one slf4j binding (brokers then log to stderr), hashes what came.
"""

from __future__ import annotations

import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from harness.errors import UsageError
from harness.targets import Target, find_target
from harness.targets.jars import file_sha256, ivy_dependency, lock_name, run_ivy

LOCKS = Path(__file__).parent / "locks"
_BINDING = "org.slf4j:slf4j-simple:1.7.36"
_OTHER_BINDINGS = (
    "ch.qos.logback:logback-classic",
    "org.apache.logging.log4j:log4j-slf4j-impl",
    "org.slf4j:slf4j-log4j12",
    "org.slf4j:slf4j-reload4j",
)


def resolve(target: Target) -> dict[str, str]:
    """Return the SHA-256 by ``group:artifact:version`` of every jar the target's brokers need.

    Raises UsageError when Maven Central does not have them all.
    """
    broker = ivy_dependency(f"org.apache.kafka:kafka_{target.scala}:{target.version}")
    for excluded in (*target.excluded_modules, *_OTHER_BINDINGS):
        group, artifact = excluded.split(":")
        ET.SubElement(broker, "exclude", org=group, module=artifact)
    with tempfile.TemporaryDirectory() as name:
        staging = Path(name)
        for line in run_ivy([broker, ivy_dependency(_BINDING)], staging, poms=True):
            print(line, file=sys.stderr)  # noqa: T201  a maintainer's tool
        jars = sorted(staging.glob("*.jar"))
        return {jar.stem.replace("--", ":"): file_sha256(jar) for jar in jars}


def main(arguments: list[str]) -> int:
    """Write the lock of each named target; return the exit code."""
    try:
        for target in map(find_target, arguments):
            rows = sorted(resolve(target).items())
            text = "".join(f"{sha256}  {coordinate}\n" for coordinate, sha256 in rows)
            (LOCKS / lock_name(target)).write_text(text, encoding="utf-8")
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
