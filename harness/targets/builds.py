"""A Kafka of the user's own: an archive, a distribution, a checkout that was built, or classes for a known version.

The jars are copied into the user's cache (``builds/<name>/``) where a path is read: what lies at a path may be built
anew while a run goes on, and a run has to be resumed and repeated on the jars that it began with. From then on the name
stands for the copy. It ends with the first digits of a digest over all jars, so that a changed build has another name.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.host.cache import cache_root
from harness.suggest import quoted
from harness.targets import WITH_JARS
from harness.targets.jars import JarSet, fetch_locked, jars_for, materialise, mismatch, staging_in
from harness.targets.lock import BINDING, file_sha256, jar_name, read_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harness.targets import Target
    from harness.targets.jars import OnProgress

BUILD, PATCH = "build", "patch"
"""Kinds: a whole Kafka, or classes in front of the class path of a known version's brokers."""
RECORD: Final = "build.json"
_DIGEST_CHARACTERS: Final = 8

_VERSION = re.compile(r"\d{1,4}\.\d{1,4}(\.\d{1,4}){0,2}(-[A-Za-z0-9][A-Za-z0-9.-]{0,40})?", re.ASCII)
_VERSION_FILE: Final = "kafka/kafka-version.properties"
"""In the jar of clients: ``version`` and ``commitId`` (`AppInfoParser`)."""
_BROKER, _CLIENTS = "kafka_2.*.jar", "kafka-clients-*.jar"
_NOT_RUN = re.compile(r".*-(test|test-sources|src|sources|scaladoc|javadoc)\.jar")
"""Jars that Kafka's scripts leave out (``should_include_file`` of bin/kafka-run-class.sh)."""
_BINDINGS = re.compile(r"(slf4j-(reload4j|log4j12|simple|jdk14|nop)|log4j-slf4j-impl|logback-classic)-\d.*\.jar")
"""Bindings of slf4j 1, by which brokers log to files; those of a run log to their output."""
_OLD_SLF4J = "slf4j-api-1.*.jar"
_SAME_TIME: Final = (1980, 1, 1, 0, 0, 0)
_CLASS: Final = ".class"


@dataclass(frozen=True)
class Build:
    """A copy of a Kafka of the user's own, or of a patch.

    ``path``: where it was read. ``commit``: Kafka's commit, as the build has it, or "". ``digests``: SHA-256 by the
    name of a jar in `directory` without ``.jar``, in the order of the class path.
    """

    name: str
    kind: str
    version: str
    path: str
    commit: str
    digests: Mapping[str, str]

    @property
    def directory(self) -> Path:
        """The folder of the copy, in this user's cache."""
        return _directory(self.name)


@cache
def read_build(path: Path) -> Build:
    """Copy the Kafka that lies at a path: a ``.tgz``, a folder with ``libs``, or a checkout that was built.

    One process reads a path once. Raises `UsageError` that says what is missing or damaged.
    """
    where = path.expanduser().absolute()
    with _staged() as staging, _errors_as(where):
        for name, content in _jars_of(where):
            if not _NOT_RUN.fullmatch(name):
                with content, (staging / name).open("wb") as copy:
                    shutil.copyfileobj(content, copy, 1 << 20)
        if any(staging.glob(_OLD_SLF4J)):
            for jar in staging.iterdir():
                if _BINDINGS.fullmatch(jar.name):
                    jar.unlink()
        version, commit = _version_of(staging, where)
        digests = {jar.stem: file_sha256(jar) for jar in sorted(staging.iterdir())}
        return _install(staging, _named(BUILD, version, where, commit, digests))


@cache
def read_patch(version: str, path: Path) -> Build:
    """Copy classes that go in front of a version's: those of a jar, or of a folder that has their packages.

    One process reads a path once. Raises `UsageError` for a path without classes.
    """
    where = path.expanduser().absolute()
    with _staged() as staging, _errors_as(where):
        jar = staging / "patch.jar"
        if where.is_dir():
            _pack(where, jar)
        elif where.is_file():
            shutil.copyfile(where, jar)
        else:
            raise UsageError(f"{where} does not exist: give a folder of classes or a jar")
        if not classes_of(jar):
            raise UsageError(f"{where} has no classes: give a jar, or the folder that their packages (org/…) are in")
        digest = file_sha256(jar)
        build = _named(PATCH, version, where, "", {"patch": digest})
        jar.rename(staging / f"{build.name}.jar")
        return _install(staging, replace(build, digests={build.name: digest}))


def find_build(name: str) -> Build:
    """Return the copy of that name. Raises `UsageError` where this user's cache has none."""
    directory = _directory(name)
    try:
        build = Build(**json.loads((directory / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"{directory} has no copy of the build {quoted(name)} ({type(error).__name__}): give --target or --patch"
            " the path of the same build again"
        ) from error
    if missing := [one for one in build.digests if not (directory / f"{one}.jar").is_file()]:
        raise UsageError(f"the copy in {directory} lacks {missing[0]}.jar: give the path {build.path} again")
    return build


def own_jars(target: Target, build: Build, *, on_progress: OnProgress, verify: bool) -> JarSet:
    """Return the jars of a target that has a build, as `harness.targets.jars.jars_for` does.

    Raises `UsageError`, too, for a patch that replaces no class of its version, which would change nothing.
    """
    if verify and (wrong := mismatch(build.directory, dict(build.digests))):
        raise UsageError(f"the copy in {build.directory} is damaged: {wrong}; remove it, and give {build.path} again")
    if build.kind == BUILD:
        bindings = _add_binding(build, on_progress)
        return JarSet(build.directory, {**build.digests, **bindings}, pinned=False)
    base = jars_for(replace(target, build=None), on_progress=on_progress, verify=verify)
    (patch,) = (build.directory / jar_name(one) for one in build.digests)
    if classes_of(patch).isdisjoint(name for jar in base.paths for name in classes_of(jar)):
        raise UsageError(
            f"--patch {build.path}: none of its classes is one of Kafka {build.version}, and it would change nothing:"
            " give the folder that their packages (org/…) are in"
        )
    return replace(base, patch=patch)


def _add_binding(build: Build, on_progress: OnProgress) -> dict[str, str]:
    """Copy the binding by which brokers log to their output into a build that lacks one; return its digest."""
    if not any(fnmatchcase(jar_name(one), _OLD_SLF4J) for one in build.digests):
        return {}
    *_, newest = WITH_JARS.values()
    digests = {BINDING: (read_lock(newest) or {})[BINDING]}
    fetched = materialise(digests, cache_root() / "jars" / "binding", fetch_locked, on_progress)
    copy = build.directory / jar_name(BINDING)
    if not copy.is_file():
        draft = copy.with_suffix(f".{os.getpid()}")
        shutil.copyfile(fetched.paths[0], draft)
        draft.replace(copy)
    return digests


def classes_of(jar: Path) -> set[str]:
    """Return the names of the classes in a jar, such as ``kafka/Kafka.class``."""
    with zipfile.ZipFile(jar) as packed:
        return {name for name in packed.namelist() if name.endswith(_CLASS) and not name.startswith("META-INF/")}


def _directory(name: str) -> Path:
    return cache_root() / "builds" / name


def _named(kind: str, version: str, path: Path, commit: str, digests: Mapping[str, str]) -> Build:
    """Return a build whose name has the digest of its jars."""
    every = hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()
    return Build(f"kafka-{version}-{kind}-{every[:_DIGEST_CHARACTERS]}", kind, version, str(path), commit, digests)


def _install(staging: Path, build: Build) -> Build:
    """Move a complete copy to its place, unless the same is there; another process may be faster."""
    (staging / RECORD).write_text(json.dumps(asdict(build), indent=1), encoding="utf-8")
    directory = build.directory
    try:
        find_build(build.name)
    except UsageError:
        shutil.rmtree(directory, ignore_errors=True)
        try:
            staging.rename(directory)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise
            find_build(build.name)
    return build


@contextmanager
def _staged() -> Iterator[Path]:
    with staging_in(cache_root() / "builds") as parent:
        folder = parent / "copy"
        folder.mkdir()
        yield folder


@contextmanager
def _errors_as(path: Path) -> Iterator[None]:
    """Raise `UsageError` where what lies at a path is damaged or cannot be read."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise UsageError(f"{path} is damaged, or no archive of its kind: {error}") from error
    except OSError as error:
        # Errors of the cache have a sentence of their own.
        if error.filename is not None and Path(str(error.filename)).is_relative_to(path):
            raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
        raise


def _jars_of(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the jars of a Kafka with their contents. Raises `UsageError` for anything else."""
    if path.is_file():
        yield from _in_archive(path)
    elif not path.is_dir():
        raise UsageError(f"{path} does not exist: give the archive, the distribution or the checkout of a Kafka")
    elif (path / "gradlew").is_file() or (path / "core" / "build").is_dir():
        yield from _in_files(_of_checkout(path))
    else:
        yield from _in_files(path.glob("libs/*.jar"))


def _in_files(jars: Iterable[Path]) -> Iterator[tuple[str, IO[bytes]]]:
    for jar in jars:
        yield jar.name, jar.open("rb")


def _in_archive(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            *_, folder, name = ("", "", *member.name.split("/"))
            content = archive.extractfile(member) if folder == "libs" and name.endswith(".jar") else None
            if content is not None:
                yield name, content


def _of_checkout(path: Path) -> list[Path]:
    """Return the jars by which bin/kafka-run-class.sh starts brokers in a checkout.

    The libraries of core are beside copies of the other modules' jars. A module's own jar is the newer one where it was
    built by itself.
    """
    beside = sorted(path.glob("core/build/dependant-libs-*"), key=lambda one: one.stat().st_mtime)[-1:]
    found = [*path.glob(f"clients/build/libs/{_CLIENTS}"), *path.glob(f"core/build/libs/{_BROKER}")]
    if not found or not beside:
        raise UsageError(f"the checkout {path} has no jars of brokers: build it with ./gradlew jar")
    own = {jar.name: jar for depth in ("*", "*/*") for jar in path.glob(f"{depth}/build/libs/*.jar")}
    return [own.get(jar.name, jar) for jar in {one.name: one for one in (*found, *beside[0].glob("*.jar"))}.values()]


def _version_of(folder: Path, path: Path) -> tuple[str, str]:
    """Return version and commit of the Kafka whose jars are in a folder. Raises `UsageError` for none, or several."""
    brokers, clients = (sorted(folder.glob(pattern)) for pattern in (_BROKER, _CLIENTS))
    for jars, title in ((brokers, _BROKER), (clients, _CLIENTS)):
        if not jars:
            raise UsageError(f"{path} has no {title} in libs: it is no binary distribution of Kafka")
        if len(jars) > 1:
            names = " and ".join(jar.name for jar in jars)
            raise UsageError(f"{path} has more than one version: {names}; build it anew after ./gradlew clean")
    try:
        with zipfile.ZipFile(clients[0]) as jar:
            lines = jar.read(_VERSION_FILE).decode(errors="replace").splitlines()
    except KeyError:
        lines = []
    properties = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    version = properties.get("version") or clients[0].stem.removeprefix("kafka-clients-")
    if not _VERSION.fullmatch(version):
        raise UsageError(f"{path} has no version of Kafka that is known: {quoted(version)}")
    commit = properties.get("commitId", "")
    return version, commit if re.fullmatch("[0-9a-f]{7,64}", commit) else ""


def _pack(folder: Path, jar: Path) -> None:
    """Pack the files of a folder; the same files make the same jar."""
    with zipfile.ZipFile(jar, "w") as packed:
        for file in sorted(one for one in folder.rglob("*") if one.is_file()):
            packed.writestr(zipfile.ZipInfo(file.relative_to(folder).as_posix(), _SAME_TIME), file.read_bytes())
