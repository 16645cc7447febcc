"""Container images of a target: the official image, or an image that is built on this host.

`build_image` builds an image with the contract of apache/kafka, and pulls no base image or package. The image contains
this host's Java runtime with the shared libraries that it is linked to, this host's ``/bin/sh``, the jars, and a start
script.
"""

import io
import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryFile

from docker import DockerClient
from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException

from harness.errors import HarnessError, UsageError
from harness.host import commands, engine
from harness.host.java import Java
from harness.suggest import quoted
from harness.targets import KAFKA, Target
from harness.targets.jars import JarSet

BUILT_HERE = "compaction-harness/kafka"

JAVA, LIBS, CONFIG, DEFAULTS = "/opt/java", "/opt/kafka/libs", "/opt/kafka/config", "/etc/kafka/docker"
DATA, MOUNTED = "/var/lib/kafka/data", "/mnt/shared/config"
SHELL = Path("/bin/sh")
USER_ID = 1000
FOLDERS = {"/tmp": (0o1777, 0), **dict.fromkeys((CONFIG, DATA, MOUNTED, "/home/appuser"), (0o755, USER_ID))}  # noqa: S108
"""The mode and the owner of each folder in the image."""

JAVA_PARTS = ("bin", "conf", "lib", "legal")
LEFT_OUT = re.compile(r".*/(src\.zip|ct\.sym|lib\w*(awt|splash|font|sound|xawt|jawt|lcms|mlib|javajpeg)\w*\.so)")
"""Files for developers and for screens: a third of Java's size."""

NAME_SERVICE = ("libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
"""Libraries that the C library loads by name to resolve hosts, to which no binary is linked."""

FILES = {
    "/etc/passwd": f"root:x:0:0:root:/:/bin/sh\nappuser:x:{USER_ID}:{USER_ID}::/home/appuser:/bin/sh\n",
    "/etc/group": f"root:x:0:\nappuser:x:{USER_ID}:\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
    # The set-up copies these defaults if nothing is mounted; slf4j-simple logs to the console.
    **{
        f"{DEFAULTS}/{name}": ""
        for name in ("server.properties", *(a + b for a in ("", "tools-") for b in ("log4j.properties", "log4j2.yaml")))
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


@dataclass(frozen=True)
class Image:
    """An image of the engine: its name, its id, and its digests in registries."""

    reference: str
    id: str
    digests: tuple[str, ...]


def _official(target: Target) -> str:
    return f"apache/kafka:{target.version}" if target.system == KAFKA else f"redpandadata/redpanda:v{target.version}"


def find(client: DockerClient, target: Target, reference: str | None = None) -> Image | None:
    """Return the engine's image of a target, by default the official one, else the built one; None without an image."""
    built = [f"{BUILT_HERE}:{target.version}"] if target.system == KAFKA else []
    for name in [reference] if reference else [_official(target), *built]:
        try:
            image = client.images.get(name)
        except ImageNotFound:
            continue
        except APIError as error:
            raise UsageError(f"--image {quoted(name)}: the container engine refuses it: {error.explanation}") from error
        return Image(name, str(image.id), tuple(image.attrs["RepoDigests"] or ()))
    return None


def obtain(client: DockerClient, target: Target, reference: str | None = None) -> Image:
    """Return the image of a target, pulled if needed. Raises `UsageError` with another way to get an image."""
    if image := find(client, target, reference):
        return image
    reference = reference or _official(target)
    remedy = (
        f"build one from the brokers' jars with `harness images build {target.name}`"
        if target.system == KAFKA
        else "pull it on a host that can reach a registry, and copy it with `docker save` and `docker load`"
    )
    try:
        client.images.pull(reference)
    except (DockerException, RequestException) as error:
        why = f"{reference} cannot be pulled ({error.explanation if isinstance(error, APIError) else error})"
        raise UsageError(f"{target.name} has no local image, and {why}; {remedy}") from error
    if image := find(client, target, reference):
        return image
    raise UsageError(f"the container engine pulled {reference} and does not have it")


def build_image(client: DockerClient, target: Target, jars: JarSet, java: Java) -> Image:
    """Build the image and return it; an older image with its name is removed, unless containers need it.

    Raises `UsageError` if this host does not have a part, `HarnessError` for other errors.
    """
    if target.build is not None:
        raise UsageError(f"{target.name} is your build: images are only built of released versions")
    reference = f"{BUILT_HERE}:{target.version}"
    before = find(client, target, reference)
    label = f"LABEL compaction-harness.target={target.name} compaction-harness.java={java.version_text}"
    with TemporaryFile() as layer:
        with tarfile.open(fileobj=layer, mode="w") as tar:
            _fill(tar, _java_home(java), jars.paths)
        layer.seek(0)
        with engine.errors_as(f"the image {reference} cannot be imported"):
            answer = client.api.import_image_from_data(
                layer, repository=BUILT_HERE, tag=target.version, changes=[*CHANGES, label]
            )
    made = find(client, target, reference)
    if made is None:
        raise HarnessError(f"the image {reference} cannot be imported: {answer}")
    if before is not None and before.id != made.id:
        with suppress(APIError):
            client.images.remove(before.id)
    return made


def _fill(tar: tarfile.TarFile, java_home: Path, jars: Iterable[Path]) -> None:
    for folder, (mode, user_id) in FOLDERS.items():
        member = tarfile.TarInfo(folder.lstrip("/"))
        member.type, member.mode, member.uid, member.gid = tarfile.DIRTYPE, mode, user_id, user_id
        tar.addfile(member)
    for name, text in FILES.items():
        add_file(tar, name, text.encode())
    add_file(tar, f"{DEFAULTS}/run", (files("compose.image") / "run").read_bytes(), mode=0o755)
    for path in _java_files(java_home):
        _copy(tar, path, f"{JAVA}/{path.relative_to(java_home)}")
    for jar in jars:
        _copy(tar, jar, f"{LIBS}/{jar.name}")
    binaries = [SHELL, java_home / "bin" / "java", *(java_home / "lib").rglob("*.so")]
    for path in sorted({SHELL, *_libraries(binaries)}):
        if not path.is_relative_to(java_home):
            _copy(tar, path, str(path))


def _java_home(java: Java) -> Path:
    settings = commands.run(str(java.path), "-XshowSettings:properties", "-version")
    match = re.search(r"^\s*java\.home = (.+)$", settings, re.MULTILINE)
    if match is None:
        raise UsageError(f"{java.path} does not say where its runtime is (java.home)")
    return Path(match[1])


def _libraries(binaries: Iterable[Path]) -> set[Path]:
    paths = [str(binary) for binary in binaries if not LEFT_OUT.fullmatch(str(binary))]
    listing = commands.run("ldd", *paths, timeout_s=COMMAND_TIMEOUT_S)
    libraries = {Path(path) for path in re.findall(r"(?:=> |^\t)(/\S+) \(0x", listing, re.MULTILINE)}
    by_name = {library.name: library for library in libraries}
    if "libc.so.6" not in by_name:
        raise UsageError("images can be built on hosts with the GNU C library only: `ldd` does not list libc.so.6")
    name_service = (by_name["libc.so.6"].parent / name for name in NAME_SERVICE)
    return libraries | {library for library in name_service if library.exists()}


def _java_files(java_home: Path) -> Iterator[Path]:
    """Yield the runtime's files in the image, also behind links, by which distributions refer to /etc."""
    yield java_home / "release"
    for part in JAVA_PARTS:
        for folder, _, names in os.walk(java_home / part, followlinks=True):
            paths = (Path(folder, name) for name in sorted(names))
            yield from (path for path in paths if path.is_file() and not LEFT_OUT.fullmatch(str(path)))


def _copy(tar: tarfile.TarFile, source: Path, name: str) -> None:
    add_file(tar, name, source.read_bytes(), mode=source.stat().st_mode & 0o755 | 0o444)


def add_file(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    """Add a file with this content to an archive."""
    member = tarfile.TarInfo(name.lstrip("/"))
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))
