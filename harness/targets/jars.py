"""The jars of a target: pinned by version and SHA-256, fetched once per user, verified.

A lock file per exact version (``locks/kafka-3.9.2.lock``, made by ``harness.targets.lock``) names every
jar. They come from Maven Central through the Ivy that pyspark bundles, into
``$XDG_CACHE_HOME/compaction-harness/jars/<version>/`` (``~/.cache`` without XDG_CACHE_HOME;
COMPACTION_HARNESS_CACHE names another folder, COMPACTION_HARNESS_MAVEN_ROOT another repository).
"""

from __future__ import annotations

import hashlib
import importlib.resources
import importlib.util
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.java import find_java

if TYPE_CHECKING:
    from harness.targets import Target


OnProgress = Callable[[int, int], None]
Fetch = Callable[[Sequence[str], Path, OnProgress], None]

_MARKER = "complete.json"
_STAGING = ".fetching-"
_FETCH_LIMIT_S = 900.0
_SILENCE_LIMIT_S = 40.0
_CONNECT_TIMEOUT_MS = 10_000
_READ_TIMEOUT_MS = 30_000
_REASONS = (r"Server access error .*", r"Host \S+ not found.*", r"module not found: .*", r"\[FAILED .*")
_FETCH_REMEDY = (
    "check the network (a proxy goes into JAVA_TOOL_OPTIONS) or "
    "set COMPACTION_HARNESS_MAVEN_ROOT to a mirror of Maven Central"
)


@dataclass(frozen=True)
class JarSet:
    """The verified jars of one target version.

    ``classpath`` lists them for ``java -cp``; ``digests`` maps ``group:artifact:version`` to SHA-256.
    """

    directory: Path
    classpath: str
    digests: dict[str, str]


def jars_for(target: Target, *, on_progress: OnProgress | None = None, verify: bool = False) -> JarSet:
    """Return the jars of ``target``, fetching those that are missing or damaged.

    ``on_progress(done, total)`` counts Ivy's steps, two a jar: found, then downloaded. A complete cache
    is recognised by file sizes; ``verify`` hashes every jar as well. Bounded: 15 minutes.

    Raises UsageError: no lock for the version, jars not to be had, a jar that is not the pinned one, a
    cache folder that cannot be written, no Java, no pyspark.
    """
    return materialise(read_lock(target), _directory(target), fetch_locked, on_progress, verify=verify)


def is_cached(target: Target) -> bool:
    """Whether ``jars_for`` would return at once. Raises UsageError when the version has no lock."""
    return _is_complete(_directory(target), read_lock(target))


def materialise(
    digests: dict[str, str],
    directory: Path,
    fetch: Fetch,
    on_progress: OnProgress | None = None,
    *,
    verify: bool = False,
) -> JarSet:
    """Make ``directory`` hold the jars of a lock, by way of ``fetch``; as ``jars_for``.

    Verified jars replace the files in place one by one and the marker of completeness comes last: two
    processes that fetch at once write the same bytes, and a broker that has the old jars open keeps them.
    """
    if not _is_complete(directory, digests) or (verify and _mismatch(directory, digests)):
        try:
            _fill(directory, digests, fetch, on_progress or (lambda _done, _total: None))
        except OSError as error:
            raise UsageError(
                f"the jar cache {directory} cannot be written ({error.strerror or error}): "
                "make room or set COMPACTION_HARNESS_CACHE to another folder"
            ) from error
    classpath = os.pathsep.join(str(directory / jar_name(coordinate)) for coordinate in digests)
    return JarSet(directory, classpath, digests)


def jar_name(coordinate: str) -> str:
    """Return the file name of ``group:artifact:version`` in the cache."""
    return coordinate.replace(":", "--") + ".jar"


def lock_name(target: Target) -> str:
    """Return the file name of the lock of a target's exact version."""
    return f"kafka-{target.version}.lock"


def read_lock(target: Target) -> dict[str, str]:
    """Return the pinned SHA-256 by ``group:artifact:version``; UsageError when the version has no lock."""
    lock = importlib.resources.files("harness.targets") / "locks" / lock_name(target)
    if not lock.is_file():
        raise UsageError(
            f"no jars are pinned for {target.name} {target.version}: "
            f"run python -m harness.targets.lock {target.name}"
        )
    rows = (line.split() for line in lock.read_text(encoding="utf-8").splitlines())
    return {coordinate: sha256 for sha256, coordinate in rows}


def fetch_locked(coordinates: Sequence[str], staging: Path, on_progress: OnProgress) -> None:
    """Retrieve exactly these jars into ``staging`` through Ivy, without asking for any POM.

    Raises UsageError with Ivy's reason when one is not to be had.
    """
    total, done = 2 * len(coordinates), 0
    on_progress(done, total)
    modules = [ivy_dependency(coordinate, transitive="false") for coordinate in coordinates]
    for line in run_ivy(modules, staging, poms=False):
        if "\tfound " in line or "[SUCCESSFUL " in line:
            done = min(done + 1, total)
            on_progress(done, total)


def ivy_dependency(coordinate: str, **attributes: str) -> ET.Element:
    """Return the ``<dependency>`` of an ivy.xml for ``group:artifact:version``."""
    group, artifact, version = coordinate.split(":")
    return ET.Element("dependency", {"org": group, "name": artifact, "rev": version, **attributes})


def run_ivy(dependencies: Iterable[ET.Element], staging: Path, *, poms: bool) -> Iterator[str]:
    """Retrieve ``dependencies`` into ``staging`` under their ``jar_name``, yielding Ivy's output lines.

    With ``poms`` it resolves transitively. Java's own proxy and trust store settings hold, as in
    JAVA_TOOL_OPTIONS. Raises UsageError with Ivy's reason when it fails, is silent for 40 s or takes
    15 minutes.
    """
    settings, module = staging / "ivysettings.xml", staging / "ivy.xml"
    ET.ElementTree(_ivy_settings(staging / "ivy-home", poms=poms)).write(settings)
    ET.ElementTree(_ivy_module(dependencies, poms=poms)).write(module)
    command = [str(find_java().path), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar", str(_ivy_jar())]
    command += ["-settings", str(settings), "-ivy", str(module), "-types", "jar", "bundle"]
    command += ["-retrieve", f"{staging}/[organisation]--[artifact]--[revision].jar"]
    log: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0) as ivy:
        try:
            for line in _lines(ivy):
                log.append(line)
                yield line
            ivy.wait(_SILENCE_LIMIT_S)
        finally:
            ivy.kill()
    if ivy.returncode != 0:
        raise UsageError(f"the jars cannot be fetched: {ivy_reason(log)}; {_FETCH_REMEDY}")


def ivy_reason(log: Iterable[str]) -> str:
    """Return the line of Ivy's output that says why it failed, or its last one."""
    lines = [line.strip() for line in log if line.strip()]
    matches = (match for reason in _REASONS for line in lines if (match := re.search(reason, line)))
    first = next(matches, None)
    return first[0] if first else (lines or ["Ivy said nothing"])[-1]


def _lines(ivy: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield the lines of Ivy's output as they come; UsageError when it hangs or goes on for too long."""
    assert ivy.stdout is not None  # noqa: S101  a pipe was asked for
    deadline_s, pending = time.monotonic() + _FETCH_LIMIT_S, b""
    # Read in chunks: a long download prints dots, no line, and each dot is a sign of life.
    while select.select([ivy.stdout], [], [], min(_SILENCE_LIMIT_S, deadline_s - time.monotonic()))[0]:
        chunk = os.read(ivy.stdout.fileno(), 65536)
        *lines, pending = (pending + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
        if not chunk:
            return
        if time.monotonic() >= deadline_s:
            break
    raise UsageError(
        f"the jars cannot be fetched: the repository was silent for {_SILENCE_LIMIT_S:.0f} s, or sent for "
        f"more than {_FETCH_LIMIT_S:.0f} s; {_FETCH_REMEDY}"
    )


def _ivy_settings(home: Path, *, poms: bool) -> ET.Element:
    """Return the ivysettings.xml: one Maven repository, Ivy's own default unless the user names one.

    Locked jars are checked against their SHA-256 afterwards, so that the repository's own checksums,
    a request each, are only asked for with ``poms``.
    """
    settings = ET.Element("ivysettings")
    ET.SubElement(settings, "settings", defaultResolver="maven")
    ET.SubElement(settings, "caches", defaultCacheDir=str(home))
    constraints = ET.SubElement(settings, "timeout-constraints")
    ET.SubElement(
        constraints,
        "timeout-constraint",
        name="bounded",
        connectionTimeout=str(_CONNECT_TIMEOUT_MS),
        readTimeout=str(_READ_TIMEOUT_MS),
    )
    resolver = {"name": "maven", "m2compatible": "true", "timeoutConstraint": "bounded"}
    if not poms:
        resolver |= {"usepoms": "false", "useMavenMetadata": "false", "checksums": ""}
    if root := os.environ.get("COMPACTION_HARNESS_MAVEN_ROOT"):
        resolver["root"] = root
    ET.SubElement(ET.SubElement(settings, "resolvers"), "ibiblio", resolver)
    return settings


def _ivy_module(dependencies: Iterable[ET.Element], *, poms: bool) -> ET.Element:
    """Return the ivy.xml that asks for ``dependencies``."""
    module = ET.Element("ivy-module", version="2.0")
    ET.SubElement(module, "info", organisation="compaction-harness", module="jars")
    mapping = "default->runtime,master" if poms else "default->default"
    ET.SubElement(ET.SubElement(module, "configurations", defaultconfmapping=mapping), "conf", name="default")
    ET.SubElement(module, "dependencies").extend(dependencies)
    return module


def _ivy_jar() -> Path:
    """Return the Ivy that the installed pyspark bundles (pyspark is not imported for it)."""
    spec = importlib.util.find_spec("pyspark")
    folders = (spec.submodule_search_locations if spec else None) or []
    found = next((jar for folder in folders for jar in Path(folder, "jars").glob("ivy-*.jar")), None)
    if found is None:
        raise UsageError("pyspark with its bundled Ivy is not installed here: pip install 'pyspark>=4.0'")
    return found


def _directory(target: Target) -> Path:
    """Return the folder of a target's jars in this user's cache."""
    xdg = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = os.environ.get("COMPACTION_HARNESS_CACHE") or Path(xdg, "compaction-harness")
    return Path(root, "jars", target.version).absolute()


def _lock_digest(digests: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def _is_complete(directory: Path, digests: dict[str, str]) -> bool:
    """Whether the marker was written for this lock and every jar still has the size it had then."""
    try:
        marker = json.loads((directory / _MARKER).read_text(encoding="utf-8"))
        return marker["lock"] == _lock_digest(digests) and all(
            (directory / name).stat().st_size == size for name, size in marker["sizes_bytes"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _mismatch(directory: Path, digests: dict[str, str]) -> str | None:
    """Return what is wrong with the first jar that is not the pinned one, None when all are right."""
    for coordinate, expected in digests.items():
        path = directory / jar_name(coordinate)
        if not path.is_file():
            return f"{coordinate} was not delivered"
        if (found := file_sha256(path)) != expected:
            return f"{coordinate} has the wrong SHA-256: expected {expected}, got {found}"
    return None


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fill(directory: Path, digests: dict[str, str], fetch: Fetch, on_progress: OnProgress) -> None:
    """Fetch beside ``directory``, verify, move the jars into it and mark it complete."""
    directory.mkdir(parents=True, exist_ok=True)
    _drop_stale_staging(directory.parent)
    with tempfile.TemporaryDirectory(prefix=_STAGING, dir=directory.parent) as name:
        staging = Path(name)
        fetch(list(digests), staging, on_progress)
        if wrong := _mismatch(staging, digests):
            raise UsageError(
                f"{wrong}; nothing was installed: "
                "check the repository or proxy that answers for it, then try again"
            )
        names = [jar_name(coordinate) for coordinate in digests]
        sizes_bytes = {jar: (staging / jar).stat().st_size for jar in names}
        marker = {"lock": _lock_digest(digests), "sizes_bytes": sizes_bytes}
        (staging / _MARKER).write_text(json.dumps(marker, indent=1), encoding="utf-8")
        for file in (*names, _MARKER):
            (staging / file).replace(directory / file)


def _drop_stale_staging(parent: Path) -> None:
    """Remove what killed fetches left: no living one is older than the limit of a fetch."""
    for folder in parent.glob(f"{_STAGING}*"):
        if time.time() - folder.stat().st_mtime > 2 * _FETCH_LIMIT_S:
            shutil.rmtree(folder, ignore_errors=True)
