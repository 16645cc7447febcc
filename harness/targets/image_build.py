"""An image with the contract of apache/kafka, made of nothing but what this host has: its Java, and the jars.

Nothing is pulled: no base image, no package. The image holds the Java runtime of this host with the shared libraries
that it is linked to, this host's ``/bin/sh``, the jars, and a start script.
"""

from __future__ import annotations

import io
import re
import tarfile
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from docker.errors import APIError

from harness.errors import HarnessError, UsageError
from harness.host import commands, engine
from harness.targets import images

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from docker import DockerClient

    from harness.host.java import Java
    from harness.targets import Target
    from harness.targets.jars import JarSet

JAVA, LIBS, CONFIG, DEFAULTS = "/opt/java", "/opt/kafka/libs", "/opt/kafka/config", "/etc/kafka/docker"
DATA, MOUNTED = "/var/lib/kafka/data", "/mnt/shared/config"
SHELL = Path("/bin/sh")
USER_ID = 1000
OWNED_DIRS = (CONFIG, DATA, MOUNTED, "/home/appuser")

JAVA_PARTS = ("bin", "conf", "lib", "legal", "release")
LEFT_OUT = re.compile(r".*/(src\.zip|ct\.sym|lib\w*(awt|splash|font|sound|xawt|jawt|lcms|mlib|javajpeg)\w*\.so)")
"""For developers and for screens: a third of its size."""

NAME_SERVICE = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
"""What the C library loads by name to resolve hosts, and no binary is linked to."""

FILES = {
    "/etc/passwd": f"root:x:0:0:root:/:/bin/sh\nappuser:x:{USER_ID}:{USER_ID}::/home/appuser:/bin/sh\n",
    "/etc/group": f"root:x:0:\nappuser:x:{USER_ID}:\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
    # Defaults that the set-up copies where nothing is mounted; logging is slf4j-simple's, to the console.
    **{
        f"{DEFAULTS}/{name}": ""
        for name in (
            "server.properties",
            "log4j.properties",
            "tools-log4j.properties",
            "log4j2.yaml",
            "tools-log4j2.yaml",
        )
    },
}

CHANGES = (
    "ENV CLUSTER_ID=5L6g3nShT-eMCtK--X86sw",
    "EXPOSE 9092",
    "USER appuser",
    f"VOLUME {DATA} {MOUNTED}",
    'CMD ["/etc/kafka/docker/run"]',
)
COMMAND_TIMEOUT_S = 60.0


def build(client: DockerClient, target: Target, jars: JarSet, java: Java) -> images.Image:
    """Make the image and return it; one that it takes the name of is removed, unless containers need it.

    Raises `UsageError` where this host lacks a part, `HarnessError` otherwise.
    """
    if target.build is not None:
        raise UsageError(f"{target.name} is a build of your own: images are built of released versions")
    reference = images.built_here(target)
    before = images.find(client, target, reference)
    repository, tag = reference.split(":")
    label = f"LABEL compaction-harness.target={target.name} compaction-harness.java={java.version_text}"
    with TemporaryFile() as layer:
        with tarfile.open(fileobj=layer, mode="w") as tar:
            _fill(tar, _java_home(java), jars.paths)
        layer.seek(0)
        with engine.errors_as(f"the image {reference} cannot be imported"):
            answer = client.api.import_image_from_data(layer, repository=repository, tag=tag, changes=[*CHANGES, label])
    made = images.find(client, target, reference)
    if made is None:
        raise HarnessError(f"the image {reference} cannot be imported: {answer}")
    if before is not None and before.id != made.id:
        with suppress(APIError):
            client.images.remove(before.id)
    return made


def _fill(tar: tarfile.TarFile, java_home: Path, jars: Iterable[Path]) -> None:
    for folder in ("/tmp",):  # noqa: S108  (the image's own)
        _directory(tar, folder, mode=0o1777)
    for folder in OWNED_DIRS:
        _directory(tar, folder, user_id=USER_ID)
    for name, text in FILES.items():
        _file(tar, name, text.encode())
    _file(tar, f"{DEFAULTS}/run", (files("compose.image") / "run").read_bytes(), mode=0o755)
    for part in JAVA_PARTS:
        for path in _regular(java_home / part):
            if not LEFT_OUT.fullmatch(str(path)):
                _copy(tar, path, f"{JAVA}/{path.relative_to(java_home)}")
    for jar in jars:
        _copy(tar, jar, f"{LIBS}/{jar.name}")
    _copy(tar, SHELL, str(SHELL))
    for library in sorted(_libraries([SHELL, java_home / "bin" / "java", *(java_home / "lib").rglob("*.so")])):
        if not library.is_relative_to(java_home):
            _copy(tar, library, str(library))


def _java_home(java: Java) -> Path:
    settings = commands.run(str(java.path), "-XshowSettings:properties", "-version")
    match = re.search(r"^\s*java\.home = (.+)$", settings, re.MULTILINE)
    if match is None:
        raise UsageError(f"{java.path} does not say where its runtime is (java.home)")
    return Path(match[1])


def _libraries(binaries: Iterable[Path]) -> set[Path]:
    """Return every shared library that these are linked to, the loader too, by the paths where it is looked for."""
    wanted = [str(binary) for binary in binaries if not LEFT_OUT.fullmatch(str(binary))]
    found = {
        Path(path)
        for path in re.findall(
            r"(?:=> |^\t)(/\S+) \(0x", commands.run("ldd", *wanted, timeout_s=COMMAND_TIMEOUT_S), re.MULTILINE
        )
    }
    names = {library.name: library for library in found}
    if "libc.so.6" not in names:
        raise UsageError("images can be built on hosts with the GNU C library only: `ldd` does not name libc.so.6")
    beside = (names["libc.so.6"].parent / name for name in NAME_SERVICE)
    return found | {library for library in beside if library.exists()}


def _regular(path: Path) -> Iterator[Path]:
    """Every file under a path; distributions link some to /etc, and those are followed."""
    if path.is_file():
        yield path
    elif path.is_dir():
        for child in sorted(path.iterdir()):
            yield from _regular(child)


def _copy(tar: tarfile.TarFile, source: Path, name: str) -> None:
    content = source.resolve()
    member = tarfile.TarInfo(name.lstrip("/"))
    member.size = content.stat().st_size
    member.mode = content.stat().st_mode & 0o755 | 0o444
    with content.open("rb") as file:
        tar.addfile(member, file)


def _file(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name.lstrip("/"))
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))


def _directory(tar: tarfile.TarFile, name: str, mode: int = 0o755, user_id: int = 0) -> None:
    member = tarfile.TarInfo(name.lstrip("/"))
    member.type, member.mode, member.uid, member.gid = tarfile.DIRTYPE, mode, user_id, user_id
    tar.addfile(member)
