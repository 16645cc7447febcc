"""The jars of a target: pinned by version and SHA-256, fetched once per user, verified.

A lock file for each exact version (``locks/kafka-3.9.2.lock``, see `harness.targets.lock`) lists every jar; a
version without a lock file is resolved at its first use, and pinned. Jars come from Maven Central through the Ivy that
pyspark bundles, into ``$XDG_CACHE_HOME/compaction-harness/jars/<version>/`` (``~/.cache`` without XDG_CACHE_HOME;
COMPACTION_HARNESS_CACHE selects another folder, COMPACTION_HARNESS_MAVEN_ROOT another repository). The jars of
applications are pinned in the same way (``locks/streams-4.3.1.lock``).
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.host.cache import cache_root, write_atomically
from harness.targets import KAFKA, TARGETS, Target, line_of
from harness.targets import lock as locks

OnProgress = Callable[[int, int], None]
Fetch = Callable[[Sequence[str], Path, OnProgress], None]

_MARKER = "complete.json"
_STAGING = ".fetching-"


@dataclass(frozen=True)
class JarSet:
    """The verified jars of one target version.

    ``digests``: SHA-256 by ``group:artifact:version``, or by the name of a jar of a user's build. ``pinned``: whether
    they are pinned by this release, not at the first use. ``patch``: a jar in front of the class path of brokers only.
    """

    directory: Path
    digests: dict[str, str]
    pinned: bool = True
    patch: Path | None = None

    @property
    def paths(self) -> list[Path]:
        """The jars of brokers, in the order of the class path."""
        jars = [self.directory / locks.jar_name(coordinate) for coordinate in self.digests]
        return [self.patch, *jars] if self.patch else jars

    @property
    def classpath(self) -> str:
        """The jars of brokers for ``java -cp``."""
        return os.pathsep.join(map(str, self.paths))

    @property
    def client_classpath(self) -> str:
        """The jars of Java clients for ``java -cp``."""
        return replace(self, patch=None).classpath


def jars_for(target: Target, *, on_progress: OnProgress = lambda *_: None, verify: bool = False) -> JarSet:
    """Return the jars of a target, and fetch missing or damaged ones.

    ``on_progress(done, total)`` counts Ivy's steps, two for each jar: found, then downloaded. File sizes show that the
    cache is complete; ``verify`` also hashes every jar. Takes at most 15 minutes.

    Raises `UsageError` for an unavailable version or jar, a jar that is not the pinned one, a cache folder that cannot
    be written, and without Java or pyspark.
    """
    if target.system != KAFKA:
        raise UsageError(f"{target.name} has no jars of Maven Central")
    if target.build is not None:
        from harness.targets.builds import jars_of_build  # noqa: PLC0415  (which imports this module)

        return jars_of_build(target, target.build, on_progress=on_progress, verify=verify)
    digests, directory = locks.read_lock(target), cache_root() / "jars" / target.version
    if digests is None:
        # The version is not pinned yet: pin the jars that the repository has now.
        with staging_in(directory.parent, directory) as staging:
            digests = locks.resolve(target, staging, _counter(on_progress))
            on_progress(1, 1)
            _install(staging, directory, digests)
            write_atomically(locks.user_locks() / locks.lock_name(target), locks.lock_text(digests))
    jars = materialise(digests, directory, fetch_locked, on_progress, verify=verify)
    return replace(jars, pinned=locks.is_pinned(target))


def is_cached(target: Target) -> bool:
    """Return whether ``jars_for`` would return immediately."""
    digests = locks.read_lock(target)
    return digests is not None and _is_complete(cache_root() / "jars" / target.version, digests)


def materialise(
    digests: dict[str, str],
    directory: Path,
    fetch: Fetch,
    on_progress: OnProgress = lambda *_: None,
    *,
    verify: bool = False,
) -> JarSet:
    """Fetch the jars of a lock into ``directory``, if needed, as ``jars_for`` does.

    Verified jars replace the files individually, and the marker of completeness is written last: concurrent processes
    write the same bytes, and a broker that has opened the old jars keeps them.
    """
    if not _is_complete(directory, digests) or (verify and mismatch(directory, digests)):
        with staging_in(directory.parent, directory) as staging:
            fetch(list(digests), staging, on_progress)
            _install(staging, directory, digests)
    return JarSet(directory, digests)


def fetch_locked(coordinates: Sequence[str], staging: Path, on_progress: OnProgress) -> None:
    """Retrieve exactly these jars into ``staging`` through Ivy, without POMs.

    Raises `UsageError` with Ivy's reason if a jar is not available.
    """
    modules = [locks.ivy_dependency(coordinate, transitive=False) for coordinate in coordinates]
    locks.run_ivy(modules, staging, _counter(on_progress, len(coordinates)), poms=False)


def _counter(on_progress: OnProgress, jars: int = 0) -> Callable[[str], None]:
    """Return a function that counts the steps in Ivy's output; without a number of jars the total stays ahead."""
    resolved = loaded = 0

    def count(line: str) -> None:
        nonlocal resolved, loaded
        resolved += "\tfound " in line
        loaded += "[SUCCESSFUL " in line
        total = 2 * jars or 2 * max(resolved, loaded) + 1
        on_progress(min(resolved + loaded, total), total)

    on_progress(0, 2 * jars or 1)
    return count


def _lock_digest(digests: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def _is_complete(directory: Path, digests: dict[str, str]) -> bool:
    """Return whether the marker is for this lock, and every jar has its recorded size."""
    try:
        marker = json.loads((directory / _MARKER).read_text(encoding="utf-8"))
        return marker["lock"] == _lock_digest(digests) and all(
            (directory / name).stat().st_size == size for name, size in marker["sizes_bytes"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def mismatch(directory: Path, digests: dict[str, str]) -> str | None:
    """Return a sentence about the first jar that is not the pinned one, or None."""
    for coordinate, expected in digests.items():
        path = directory / locks.jar_name(coordinate)
        if not path.is_file():
            return f"{coordinate} was not delivered"
        if (actual := locks.file_sha256(path)) != expected:
            return f"{coordinate} has the wrong SHA-256: expected {expected}, got {actual}"
    return None


@contextlib.contextmanager
def staging_in(parent: Path, directory: Path | None = None) -> Iterator[Path]:
    """Yield a temporary folder in the cache, and create ``directory``.

    Removes the folders of killed fetches, which are older than the time limit of a fetch. Raises `UsageError` if the
    cache cannot be written.
    """
    try:
        (directory or parent).mkdir(parents=True, exist_ok=True)
        for folder in parent.glob(f"{_STAGING}*"):
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                if time.time() - folder.stat().st_mtime > 2 * locks.FETCH_LIMIT_S:
                    shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_STAGING, dir=parent, ignore_cleanup_errors=True) as name:
            yield Path(name)
    except OSError as error:
        raise UsageError(
            f"the jar cache {directory or parent} cannot be written ({error.strerror or error}): "
            "free some space, or set COMPACTION_HARNESS_CACHE to another folder"
        ) from error


def _install(staging: Path, directory: Path, digests: dict[str, str]) -> None:
    """Verify the jars in ``staging``, move them into ``directory`` and mark it complete."""
    if wrong := mismatch(staging, digests):
        raise UsageError(f"{wrong}; nothing was installed: check the repository or proxy, then try again")
    names = [locks.jar_name(coordinate) for coordinate in digests]
    sizes_bytes = {jar: (staging / jar).stat().st_size for jar in names}
    marker = {"lock": _lock_digest(digests), "sizes_bytes": sizes_bytes}
    (staging / _MARKER).write_text(json.dumps(marker, indent=1), encoding="utf-8")
    for file in (*names, _MARKER):
        (staging / file).replace(directory / file)


@dataclass(frozen=True)
class Release:
    """An application on top of a cluster: its modules, and its release for each line of Kafka.

    ``modules``: ``group:artifact`` names, all of one version. ``exceptions``: the nearest older release, which the
    manifest and each observation state, for lines that have none of the same version, by the name of the line.
    """

    name: str
    title: str
    modules: tuple[str, ...]
    exceptions: Mapping[str, str]

    def version_for(self, target: Target) -> str:
        """Return the release for a target. Raises `UsageError` for a target without a release."""
        if target.system != KAFKA:
            raise UsageError(f"{self.title} was not tried on {target.name}: give a target of Kafka, such as kafka-4.4")
        line = line_of(target.name)
        return self.exceptions.get(line, TARGETS[line].version)


_STREAMS_EXCEPTIONS: Final = {"kafka-4.4": "4.3.1"}
"""Maven Central has no kafka-streams 4.4.0."""
_CONNECT_EXCEPTIONS: Final = {**_STREAMS_EXCEPTIONS, "kafka-4.2": "4.2.0"}
"""Maven Central has no connect-runtime 4.4.0, and of 4.2 only 4.2.0 with all its dependencies."""

_CONNECT: Final = ("org.apache.kafka:connect-runtime", "org.apache.kafka:connect-file")

RELEASES: Final = {
    "streams": Release("streams", "Kafka Streams", ("org.apache.kafka:kafka-streams",), _STREAMS_EXCEPTIONS),
    "connect": Release("connect", "Kafka Connect", _CONNECT, _CONNECT_EXCEPTIONS),
}


def jars_of(name: str, target: Target, on_progress: OnProgress) -> JarSet:
    """Return the application's jars for a target, and fetch missing ones.

    Raises `UsageError` as `jars_for` does, and for a target without such an application.
    """
    full = f"{name}-{RELEASES[name].version_for(target)}"
    digests = locks.read_digests(locks.LOCKS / f"{full}.lock")
    return materialise(digests, cache_root() / "jars" / full, fetch_locked, on_progress)
