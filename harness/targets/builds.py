"""A user's Kafka: an archive, a distribution, a built checkout, or classes for a known version.

The jars at a path are copied into the user's cache (``builds/<name>/``): they may be built again during a run, and a
run must be resumed and repeated with the same jars. The name of the copy ends with the first digits of a digest over
all jars, so that a changed build has another name.
"""

import hashlib
import json
import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import IO, Final

from harness.errors import UsageError
from harness.host.cache import cache_root
from harness.suggest import quoted
from harness.targets import WITH_JARS, Target
from harness.targets.jars import JarSet, OnProgress, fetch_locked, jars_for, materialise, mismatch, staging_in
from harness.targets.lock import BINDING, file_sha256, jar_name, read_lock

BUILD, PATCH = "build", "patch"
"""Kinds: a complete Kafka, or classes in front of the class path of a known version's brokers."""
RECORD: Final = "build.json"

_VERSION = re.compile(r"\d{1,4}\.\d{1,4}(\.\d{1,4}){0,2}(-[A-Za-z0-9][A-Za-z0-9.-]{0,40})?", re.ASCII)
_VERSION_FILE: Final = "kafka/kafka-version.properties"
"""In the jar of clients: ``version`` and ``commitId`` (`AppInfoParser`)."""
_BROKER, _CLIENTS = "kafka_2.*.jar", "kafka-clients-*.jar"
_NOT_RUN = re.compile(r".*-(test|test-sources|src|sources|scaladoc|javadoc)\.jar")
"""Jars that Kafka's scripts leave out (``should_include_file`` of bin/kafka-run-class.sh)."""
_BINDINGS = re.compile(r"(slf4j-(reload4j|log4j12|simple|jdk14|nop)|log4j-slf4j-impl|logback-classic)-\d.*\.jar")
"""Bindings of slf4j 1 with which brokers log to files; the brokers of a run log to their output."""
_OLD_SLF4J = "slf4j-api-1.*.jar"
_CLASS: Final = ".class"
_PACKAGES: Final = ("kafka", "org")
"""The top folders of Kafka's classes."""


@dataclass(frozen=True)
class Build:
    """A copy of a user's Kafka, or of a patch.

    ``path``: its source. ``commit``: Kafka's commit in the build, or "". ``digests``: SHA-256 by the name of a jar in
    `directory` without ``.jar``, in the order of the class path.
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
        return cache_root() / "builds" / self.name


@cache
def read_build(path: Path) -> Build:
    """Copy the Kafka at a path: a ``.tgz``, a folder with ``libs``, or a built checkout.

    A process reads a path once. Raises `UsageError` if something is missing or damaged.
    """
    where = path.expanduser().absolute()
    with _staged(where) as staging:
        for name, content in _jars_of(where):
            if not _NOT_RUN.fullmatch(name):
                with content, (staging / name).open("wb") as copy:
                    shutil.copyfileobj(content, copy, 1 << 20)
        if any(staging.glob(_OLD_SLF4J)):
            for jar in staging.iterdir():
                if _BINDINGS.fullmatch(jar.name):
                    jar.unlink()
        return _install(staging, BUILD, where, *_version_of(staging, where))


@cache
def read_patch(version: str, path: Path) -> Build:
    """Copy classes for the front of a version's class path: from a jar, or from a folder with their packages.

    A process reads a path once. Raises `UsageError` for a path without classes.
    """
    where = path.expanduser().absolute()
    with _staged(where) as staging:
        jar = staging / "patch.jar"
        if where.is_dir():
            # The folder may be the root of a disk: only Kafka's packages are read. The same classes give the same jar.
            files = (file for package in _PACKAGES for file in (where / package).rglob("*") if file.is_file())
            with zipfile.ZipFile(jar, "w") as packed:
                for file in sorted(files):
                    name = file.relative_to(where).as_posix()
                    packed.writestr(zipfile.ZipInfo(name), file.read_bytes())
        elif where.is_file():
            shutil.copyfile(where, jar)
        else:
            raise UsageError(f"--patch {where} does not exist: give a folder of classes or a jar")
        if not classes_of(jar):
            raise UsageError(f"--patch {where} has no classes of Kafka: give a jar, or the folder of org/ or kafka/")
        return _install(staging, PATCH, where, version)


def find_build(name: str) -> Build:
    """Return the copy with this name. Raises `UsageError` if this user's cache does not have it."""
    directory = cache_root() / "builds" / name
    try:
        build = Build(**json.loads((directory / RECORD).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"{directory} has no copy of the build {quoted(name)} ({type(error).__name__}): give --target or --patch"
            " the path of the same build again"
        ) from error
    if missing := [name for name in build.digests if not (directory / f"{name}.jar").is_file()]:
        raise UsageError(f"the copy in {directory} has no {missing[0]}.jar: give the path {build.path} again")
    return build


def jars_of_build(target: Target, build: Build, *, on_progress: OnProgress, verify: bool) -> JarSet:
    """Return the jars of a target with a build, as `harness.targets.jars.jars_for` does.

    Also raises `UsageError` for a patch that replaces no class of its version.
    """
    if verify and (wrong := mismatch(build.directory, dict(build.digests))):
        raise UsageError(f"the copy in {build.directory} is damaged: {wrong}; remove it, and give {build.path} again")
    if build.kind == BUILD:
        return JarSet(build.directory, {**build.digests, **_add_binding(build, on_progress)}, pinned=False)
    base = jars_for(replace(target, build=None), on_progress=on_progress, verify=verify)
    (patch,) = (build.directory / jar_name(name) for name in build.digests)
    if classes_of(patch).isdisjoint(name for jar in base.paths for name in classes_of(jar)):
        raise UsageError(
            f"--patch {build.path} replaces no class of Kafka {build.version}, and would change nothing:"
            " give the folder with its packages (org/…)"
        )
    return replace(base, patch=patch)


def _add_binding(build: Build, on_progress: OnProgress) -> dict[str, str]:
    """Copy the binding with which brokers log to their output into a build without a binding; return its digest."""
    if not any(fnmatchcase(jar_name(name), _OLD_SLF4J) for name in build.digests):
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


def _install(staging: Path, kind: str, path: Path, version: str, commit: str = "") -> Build:
    """Name a complete copy, and move its files to its folder, where another process may write the same files."""
    digests = {jar.stem: file_sha256(jar) for jar in sorted(staging.iterdir())}
    every = hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()
    name = f"kafka-{version}-{kind}-{every[:8]}"
    build = Build(name, kind, version, str(path), commit, digests)
    (staging / RECORD).write_text(json.dumps(asdict(build), indent=1), encoding="utf-8")
    build.directory.mkdir(exist_ok=True)
    for file in (*(f"{stem}.jar" for stem in digests), RECORD):
        (staging / file).replace(build.directory / file)
    return build


@contextmanager
def _staged(path: Path) -> Iterator[Path]:
    """Yield a temporary folder. Raises `UsageError` if the file or folder at a path is damaged or cannot be read."""
    with staging_in(cache_root() / "builds") as folder:
        try:
            yield folder
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise UsageError(f"{path} is damaged, or not an archive: {error}") from error
        except OSError as error:
            # Errors of the cache have another message.
            if error.filename is not None and Path(str(error.filename)).is_relative_to(path):
                raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
            raise


def _jars_of(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the jars of a Kafka with their contents. Raises `UsageError` for a missing path."""
    if path.is_file():
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                *_, folder, name = ("", "", *member.name.split("/"))
                content = archive.extractfile(member) if folder == "libs" and name.endswith(".jar") else None
                if content is not None:
                    yield name, content
    elif not path.is_dir():
        raise UsageError(f"{path} does not exist: give the archive, the distribution or the checkout of a Kafka")
    else:
        is_checkout = (path / "gradlew").is_file() or (path / "core" / "build").is_dir()
        for jar in _of_checkout(path) if is_checkout else path.glob("libs/*.jar"):
            yield jar.name, jar.open("rb")


def _of_checkout(path: Path) -> list[Path]:
    """Return the jars with which bin/kafka-run-class.sh starts brokers in a checkout.

    The folder of core's libraries also has copies of the other modules' jars; a module's own jar is at least as new.
    """
    library_folders = sorted(path.glob("core/build/dependant-libs-*"), key=lambda folder: folder.stat().st_mtime)
    jars = [*path.glob(f"clients/build/libs/{_CLIENTS}"), *path.glob(f"core/build/libs/{_BROKER}")]
    if not jars or not library_folders:
        raise UsageError(f"the checkout {path} has no jars of brokers: build it with ./gradlew jar")
    module_jars = {jar.name: jar for depth in ("*", "*/*") for jar in path.glob(f"{depth}/build/libs/*.jar")}
    by_name = {jar.name: jar for jar in (*jars, *library_folders[-1].glob("*.jar"))}
    return [module_jars.get(name, jar) for name, jar in by_name.items()]


def _version_of(folder: Path, path: Path) -> tuple[str, str]:
    """Return version and commit of the Kafka whose jars are in a folder. Raises `UsageError` unless there is one."""
    brokers, clients = (sorted(folder.glob(pattern)) for pattern in (_BROKER, _CLIENTS))
    for jars, title in ((brokers, _BROKER), (clients, _CLIENTS)):
        if not jars:
            raise UsageError(f"{path} has no {title} in libs: it is not a binary distribution of Kafka")
        if len(jars) > 1:
            names = " and ".join(jar.name for jar in jars)
            raise UsageError(f"{path} has more than one version: {names}; build it again after ./gradlew clean")
    try:
        with zipfile.ZipFile(clients[0]) as jar:
            lines = jar.read(_VERSION_FILE).decode(errors="replace").splitlines()
    except KeyError:
        lines = []
    properties = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    version = properties.get("version") or clients[0].stem.removeprefix("kafka-clients-")
    if not _VERSION.fullmatch(version):
        raise UsageError(f"{path} has an unknown version of Kafka: {quoted(version)}")
    commit = properties.get("commitId", "")
    return version, commit if re.fullmatch("[0-9a-f]{7,64}", commit) else ""
