"""Fetch jars from Maven Central with Ivy, and read and write the lock files that pin them.

A lock file (``locks/kafka-3.9.2.lock``) has a line ``sha256  group:artifact:version`` for every jar of a version. To
write it, `resolve` resolves the POMs transitively, leaves out the target's excluded modules, adds slf4j-simple as the
only slf4j binding (brokers then log to stderr), and hashes the jars. ``bench/pin.py`` writes the locks of a release;
for another version, the first use writes a lock into the user's cache.
"""

import hashlib
import importlib.resources
import importlib.util
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from importlib.resources.abc import Traversable
from pathlib import Path

from harness.errors import UsageError
from harness.host.cache import cache_root
from harness.host.java import find_java
from harness.targets import Target

LOCKS = importlib.resources.files("harness.targets") / "locks"
"""The locks and the lists of settings of this release."""

FETCH_LIMIT_S = 900.0
_SILENCE_LIMIT_S = 40.0
_CONNECT_TIMEOUT_MS = 10_000
_READ_TIMEOUT_MS = 30_000
_REASONS = (
    r"Server access error .*",
    r"Host \S+ not found.*",
    r"(CLIENT|SERVER) ERROR: .*",
    r"module not found: .*",
    r"\[FAILED .*",
)
_FETCH_REMEDY = (
    "check the network (a proxy goes into JAVA_TOOL_OPTIONS) or "
    "set COMPACTION_HARNESS_MAVEN_ROOT to a mirror of Maven Central"
)
BINDING = "org.slf4j:slf4j-simple:1.7.36"
"""The slf4j binding with which brokers log to their output."""
_BINDINGS = (
    "ch.qos.logback:logback-classic",
    "org.apache.logging.log4j:log4j-slf4j-impl",
    "org.slf4j:slf4j-log4j12",
    "org.slf4j:slf4j-reload4j",
    "org.slf4j:slf4j-simple",
)


def jar_name(coordinate: str) -> str:
    """Return the file name of ``group:artifact:version`` in the cache."""
    return coordinate.replace(":", "--") + ".jar"


def lock_name(target: Target) -> str:
    """Return the file name of the lock of a target's exact version."""
    return f"kafka-{target.version}.lock"


def user_locks() -> Path:
    """Return the folder of the locks that the first uses of versions wrote."""
    return cache_root() / "locks"


def is_pinned(target: Target) -> bool:
    """Return whether this release pins the version's jars; the user's cache pins other versions."""
    return (LOCKS / lock_name(target)).is_file()


def read_lock(target: Target) -> dict[str, str] | None:
    """Return the SHA-256 by ``group:artifact:version`` of a version's jars; None before its first use."""
    lock = (LOCKS if is_pinned(target) else user_locks()) / lock_name(target)
    return read_digests(lock) if lock.is_file() else None


def read_digests(lock: Traversable) -> dict[str, str]:
    """Return the SHA-256 by ``group:artifact:version`` of a lock file. Raises `UsageError` for other files."""
    try:
        rows = [line.split() for line in lock.read_text(encoding="utf-8").splitlines()]
        return {coordinate: sha256 for sha256, coordinate in rows}
    except (OSError, ValueError) as error:
        raise UsageError(f"{lock} is not a list of jars: {error}; remove it, so that it is written again") from error


def lock_text(digests: Mapping[str, str]) -> str:
    """Return the content of a lock file."""
    return "".join(f"{sha256}  {coordinate}\n" for coordinate, sha256 in sorted(digests.items()))


def resolve(target: Target, staging: Path, on_line: Callable[[str], object]) -> dict[str, str]:
    """Retrieve every jar that the target's brokers need into ``staging``; pass Ivy's output to ``on_line``.

    Returns the SHA-256 by ``group:artifact:version``. Ivy verifies the repository's checksums.
    Raises `UsageError` if Maven Central does not have all jars.
    """
    broker = f"org.apache.kafka:kafka_{target.scala}:{target.version}"
    try:
        return resolve_modules([broker], staging, on_line, target.excluded_modules)
    except UsageError as error:
        if "module not found: org.apache.kafka#kafka_" not in str(error):
            raise
        raise UsageError(f"the repository has no Kafka {target.version}: {error}") from error


def resolve_modules(
    coordinates: Iterable[str], staging: Path, on_line: Callable[[str], object], excluded: Iterable[str] = ()
) -> dict[str, str]:
    """Retrieve ``group:artifact:version`` modules with their dependencies, as `resolve` does for brokers."""
    modules = [ivy_dependency(coordinate, excluded=(*excluded, *_BINDINGS)) for coordinate in coordinates]
    run_ivy([*modules, ivy_dependency(BINDING)], staging, on_line, poms=True)
    return {jar.stem.replace("--", ":"): file_sha256(jar) for jar in sorted(staging.glob("*.jar"))}


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ivy_dependency(coordinate: str, *, transitive: bool = True, excluded: Iterable[str] = ()) -> str:
    """Return the ``<dependency>`` of an ivy.xml for ``group:artifact:version``, without ``group:artifact`` names."""
    group, artifact, version = coordinate.split(":")
    excludes = ('<exclude org="{}" module="{}" />'.format(*name.split(":")) for name in excluded)
    head = f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="{str(transitive).lower()}">'
    return f"{head}{''.join(excludes)}</dependency>"


def run_ivy(dependencies: Iterable[str], staging: Path, on_line: Callable[[str], object], *, poms: bool) -> None:
    """Retrieve ``dependencies`` into ``staging`` under their ``jar_name``; pass Ivy's output to ``on_line``.

    ``poms``: resolve transitively. Java's proxy and trust store settings apply, as in JAVA_TOOL_OPTIONS. Raises
    `UsageError` with Ivy's reason if it fails, prints nothing for 40 s, or takes 15 minutes.
    """
    for name, text in _ivy_files(dependencies, poms=poms).items():
        (staging / name).write_text(text, encoding="utf-8")
    command: list[str | Path] = [find_java().path, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", _ivy_jar()]
    command += ["-settings", "ivysettings.xml", "-ivy", "ivy.xml", "-cache", "ivy-home"]
    command += ["-types", "jar", "bundle", "-retrieve", "[organisation]--[artifact]--[revision].jar"]
    log: list[str] = []
    with subprocess.Popen(command, cwd=staging, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as ivy:
        try:
            for line in _lines(ivy):
                log.append(line)
                on_line(line)
        except BaseException:
            ivy.kill()
            raise
    if ivy.returncode != 0:
        raise UsageError(f"the jars cannot be fetched: {ivy_reason(log)}; {_FETCH_REMEDY}")


def ivy_reason(log: Iterable[str]) -> str:
    """Return the line of Ivy's output with the reason of a failure, or its last line."""
    lines = [line.strip() for line in log if line.strip()]
    matches = (match[0] for reason in _REASONS for line in lines if (match := re.search(reason, line)))
    return next(matches, lines[-1] if lines else "Ivy printed nothing")


def _lines(ivy: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield the lines of Ivy's output immediately. Raises `UsageError` if Ivy hangs or takes too long."""
    assert ivy.stdout is not None  # noqa: S101  Ivy's output is a pipe
    deadline_s, pending = time.monotonic() + FETCH_LIMIT_S, b""
    # Read in chunks: a long download prints dots without line ends, which show that it progresses.
    while (remaining_s := deadline_s - time.monotonic()) > 0:
        if not select.select([ivy.stdout], [], [], min(_SILENCE_LIMIT_S, remaining_s))[0]:
            break
        chunk = os.read(ivy.stdout.fileno(), 65536)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
    raise UsageError(
        f"the jars cannot be fetched: the repository sent nothing for {_SILENCE_LIMIT_S:.0f} s, or took more than "
        f"{FETCH_LIMIT_S:.0f} s; {_FETCH_REMEDY}"
    )


def _ivy_files(dependencies: Iterable[str], *, poms: bool) -> dict[str, str]:
    """Return Ivy's files by name: settings with one Maven repository, Ivy's default unless the user names one.

    Locked jars are verified by their SHA-256 afterwards, so that the repository's checksums, a request for each, are
    only requested with ``poms``.
    """
    root = os.environ.get("COMPACTION_HARNESS_MAVEN_ROOT")
    settings = f"""\
<ivysettings>
  <settings defaultResolver="maven" />
  <timeout-constraints>
    <timeout-constraint name="bounded" connectionTimeout="{_CONNECT_TIMEOUT_MS}" readTimeout="{_READ_TIMEOUT_MS}" />
  </timeout-constraints>
  <resolvers>
    <ibiblio name="maven" m2compatible="true" timeoutConstraint="bounded"
      {"" if poms else 'usepoms="false" useMavenMetadata="false" checksums=""'}
      {f'root="{escape(root)}"' if root else ""} />
  </resolvers>
</ivysettings>
"""
    module = f"""\
<ivy-module version="2.0">
  <info organisation="compaction-harness" module="jars" />
  <configurations defaultconfmapping="default->{"runtime,master" if poms else "default"}">
    <conf name="default" />
  </configurations>
  <dependencies>{"".join(dependencies)}</dependencies>
</ivy-module>
"""
    return {"ivysettings.xml": settings, "ivy.xml": module}


def _ivy_jar() -> Path:
    """Return the Ivy that the installed pyspark bundles (pyspark is not imported for it)."""
    spec = importlib.util.find_spec("pyspark")
    folders = (spec.submodule_search_locations if spec else None) or []
    jar = next((jar for folder in folders for jar in Path(folder, "jars").glob("ivy-*.jar")), None)
    if jar is None:
        raise UsageError("pyspark with its bundled Ivy is not installed here: pip install 'pyspark>=4.0'")
    return jar
