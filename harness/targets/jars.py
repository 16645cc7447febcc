"""The jars of a target: pinned by version and SHA-256, fetched once per user, verified.

A lock file per exact version (``locks/kafka-3.9.2.lock``, made by ``harness.targets.lock``) names every
jar; a version without one is resolved when it is first used, and then kept to. Jars come from Maven
Central through the Ivy that pyspark bundles, into ``$XDG_CACHE_HOME/compaction-harness/jars/<version>/``
(``~/.cache`` without XDG_CACHE_HOME; COMPACTION_HARNESS_CACHE names another folder,
COMPACTION_HARNESS_MAVEN_ROOT another repository).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.host.cache import cache_root
from harness.targets import KAFKA, WITH_JARS
from harness.targets.lock import (
    FETCH_LIMIT_S,
    file_sha256,
    is_pinned,
    ivy_dependency,
    jar_name,
    read_lock,
    remember,
    resolve,
    run_ivy,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.targets import Target

OnProgress = Callable[[int, int], None]
Fetch = Callable[[Sequence[str], Path, OnProgress], None]

_MARKER = "complete.json"
_STAGING = ".fetching-"


@dataclass(frozen=True)
class JarSet:
    """The verified jars of one target version.

    ``digests`` maps ``group:artifact:version`` to SHA-256; of a user's own build, the names of its jars.
    ``pinned``: this release names them; otherwise they are what the repository had at the first use.
    ``patch``: a jar in front of the class path of brokers, and of brokers only.
    """

    directory: Path
    digests: dict[str, str]
    pinned: bool = True
    patch: Path | None = None

    @property
    def paths(self) -> list[Path]:
        """The jars of brokers, in the order of the class path."""
        return [*([self.patch] if self.patch else []), *self._common]

    @property
    def classpath(self) -> str:
        """The jars of brokers for ``java -cp``."""
        return os.pathsep.join(map(str, self.paths))

    @property
    def client_classpath(self) -> str:
        """The jars of Java clients for ``java -cp``."""
        return os.pathsep.join(map(str, self._common))

    @property
    def _common(self) -> list[Path]:
        return [self.directory / jar_name(coordinate) for coordinate in self.digests]


def _unheard(_done: int, _total: int) -> None:
    """Nobody listens."""


def jars_for(target: Target, *, on_progress: OnProgress = _unheard, verify: bool = False) -> JarSet:
    """Return the jars of ``target``, fetching those that are missing or damaged.

    ``on_progress(done, total)`` counts Ivy's steps, two a jar: found, then downloaded. A complete cache
    is recognised by file sizes; ``verify`` hashes every jar as well. Bounded: 15 minutes.

    Raises UsageError: a version or jars that are not to be had, a jar that is not the pinned one, a
    cache folder that cannot be written, no Java, no pyspark.
    """
    if target.system != KAFKA:
        raise UsageError(f"{target.name} has no jars: its brokers are containers, of an image that is pulled")
    if target.build is not None:
        from harness.targets.builds import own_jars  # noqa: PLC0415  (which copies by way of this module)

        return own_jars(target, target.build, on_progress=on_progress, verify=verify)
    digests, directory = read_lock(target), _directory(target)
    if digests is None:
        # Nobody has pinned this version: what comes now is remembered.
        with staging_in(directory.parent, directory) as staging:
            digests = resolve(target, staging, _counter(on_progress))
            on_progress(1, 1)
            _install(staging, directory, digests)
            remember(target, digests)
    found = materialise(digests, directory, fetch_locked, on_progress, verify=verify)
    return replace(found, pinned=is_pinned(target))


def jars_for_client(target: Target, *, needed: bool, on_progress: OnProgress = _unheard) -> JarSet | None:
    """Return the jars with the Java client: the brokers' own, or Kafka's newest where those have none.

    None where they are not ``needed``. Raises as `jars_for` does.
    """
    *_, newest = WITH_JARS.values()
    return jars_for(target if target.system == KAFKA else newest, on_progress=on_progress) if needed else None


def is_cached(target: Target) -> bool:
    """Whether ``jars_for`` would return at once."""
    digests = read_lock(target)
    return digests is not None and _is_complete(_directory(target), digests)


def materialise(
    digests: dict[str, str],
    directory: Path,
    fetch: Fetch,
    on_progress: OnProgress = _unheard,
    *,
    verify: bool = False,
) -> JarSet:
    """Make ``directory`` hold the jars of a lock, by way of ``fetch``; as ``jars_for``.

    Verified jars replace the files in place one by one and the marker of completeness comes last: two
    processes that fetch at once write the same bytes, and a broker that has the old jars open keeps them.
    """
    if not _is_complete(directory, digests) or (verify and mismatch(directory, digests)):
        with staging_in(directory.parent, directory) as staging:
            fetch(list(digests), staging, on_progress)
            _install(staging, directory, digests)
    return JarSet(directory, digests)


def fetch_locked(coordinates: Sequence[str], staging: Path, on_progress: OnProgress) -> None:
    """Retrieve exactly these jars into ``staging`` through Ivy, without asking for any POM.

    Raises UsageError with Ivy's reason when one is not to be had.
    """
    modules = [ivy_dependency(coordinate, transitive=False) for coordinate in coordinates]
    run_ivy(modules, staging, _counter(on_progress, len(coordinates)), poms=False)


def _counter(on_progress: OnProgress, jars: int = 0) -> Callable[[str], None]:
    """Return what counts the steps in Ivy's output. Where it is not known how many jars there are, it never ends."""
    found = loaded = 0

    def count(line: str) -> None:
        nonlocal found, loaded
        found += "\tfound " in line
        loaded += "[SUCCESSFUL " in line
        total = 2 * jars or 2 * max(found, loaded) + 1
        on_progress(min(found + loaded, total), total)

    on_progress(0, 2 * jars or 1)
    return count


def _directory(target: Target) -> Path:
    """Return the folder of a target's jars in this user's cache."""
    return cache_root() / "jars" / target.version


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


def mismatch(directory: Path, digests: dict[str, str]) -> str | None:
    """Return what is wrong with the first jar that is not the pinned one, None when all are right."""
    for coordinate, expected in digests.items():
        path = directory / jar_name(coordinate)
        if not path.is_file():
            return f"{coordinate} was not delivered"
        if (found := file_sha256(path)) != expected:
            return f"{coordinate} has the wrong SHA-256: expected {expected}, got {found}"
    return None


@contextlib.contextmanager
def staging_in(parent: Path, directory: Path | None = None) -> Iterator[Path]:
    """Give a temporary folder in a folder of the cache, which gets ``directory``, too, where one is given.

    Raises `UsageError` where the cache cannot be written.
    """
    try:
        (directory or parent).mkdir(parents=True, exist_ok=True)
        _drop_stale_staging(parent)
        with tempfile.TemporaryDirectory(prefix=_STAGING, dir=parent, ignore_cleanup_errors=True) as name:
            yield Path(name)
    except OSError as error:
        raise UsageError(
            f"the jar cache {directory or parent} cannot be written ({error.strerror or error}): "
            "make room or set COMPACTION_HARNESS_CACHE to another folder"
        ) from error


def _install(staging: Path, directory: Path, digests: dict[str, str]) -> None:
    """Verify the jars in ``staging``, move them into ``directory`` and mark it complete."""
    if wrong := mismatch(staging, digests):
        raise UsageError(
            f"{wrong}; nothing was installed: check the repository or proxy that answers for it, then try again"
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
        with contextlib.suppress(FileNotFoundError):  # its owner was faster
            if time.time() - folder.stat().st_mtime > 2 * FETCH_LIMIT_S:
                shutil.rmtree(folder, ignore_errors=True)
