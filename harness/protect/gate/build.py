"""An agent's jar: compiled here by a compiler that needs no JDK, from parts that are pinned by version and SHA-256.

The compiler (ECJ), the library that changes classes (ASM) and the libraries of Kafka that the gate is compiled against
come from Maven Central, as ``locks/gate.lock`` names them. ASM is in a package of the agent, so that a broker's own
copy of it is never mistaken for it. The same sources and parts give the same bytes. `GATE` is the gate, which
`verify_agent` tries on the classes of any version; `harness.runtimes.power` has another agent.
"""

import hashlib
import importlib.metadata
import importlib.resources
import io
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness import DISTRIBUTION
from harness.errors import HarnessError, UsageError, raised_as
from harness.host.cache import cache_root
from harness.host.java import Java
from harness.targets.jars import JarSet, OnProgress, fetch_locked, materialise
from harness.targets.lock import LOCKS, file_sha256, read_digests

LOCK: Final = "gate.lock"
PACKAGE: Final = "compaction/gate"
JAVA_LEVEL: Final = "11"
"""Kafka 3.9 runs on Java 11, too."""
_ASM: Final = "org/objectweb/asm/"
_NOTICE: Final = """{title}.
Contains ASM (https://asm.ow2.io), BSD 3-Clause Licence, Copyright (c) 2000-2011 INRIA, France Telecom.
"""


@dataclass(frozen=True)
class AgentSource:
    """The sources of an agent: the folder ``java/<package>`` of the Python package ``home``; ``Agent`` has ``premain``.

    ``attributes``: further attributes of the manifest.
    """

    title: str
    home: str
    package: str
    jar_name: str
    attributes: tuple[tuple[str, str], ...] = ()

    @property
    def asm(self) -> str:
        """The package of its copy of ASM.

        Class files have names in constants that begin with their lengths (JVM Specification, 4.4.7): this name has the
        length of the original, so that only the name itself changes. Raises `HarnessError` for a long ``package``.
        """
        package = f"{self.package}/a".ljust(len(_ASM) - 1, "_") + "/"
        if len(package) != len(_ASM):
            raise HarnessError(f"{self.package} has more than 15 characters: its copy of ASM needs a short name")
        return package

    @property
    def sources(self) -> dict[str, bytes]:
        """The sources by file name."""
        folder = importlib.resources.files(self.home).joinpath("java", *self.package.split("/"))
        return {file.name: file.read_bytes() for file in sorted(folder.iterdir(), key=lambda file: file.name)}

    @property
    def manifest(self) -> str:
        """The manifest of the jar."""
        lines = {
            "Manifest-Version": "1.0",
            "Implementation-Title": f"{DISTRIBUTION} {self.title}",
            "Implementation-Version": importlib.metadata.version(DISTRIBUTION),
            "Premain-Class": f"{self.package.replace('/', '.')}.Agent",
            **dict(self.attributes),
            "Can-Retransform-Classes": "true",
        }
        return "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"


VERIFY: Final = "compaction.gate.Verify"
"""The main class of the gate's jar: the JVM verifies each changed class."""
GATE: Final = AgentSource(
    "gate", "harness.protect.gate", PACKAGE, "compaction-gate.jar", attributes=(("Main-Class", VERIFY),)
)
MAX_UNSYNCED: Final = "max-unsynced-ms"
MAX_UNSYNCED_MS: Final = 60_000
"""An option of the gate, and its default (``Options``)."""


@dataclass(frozen=True)
class Agent:
    """The jar of an agent."""

    jar: Path

    @property
    def sha256(self) -> str:
        """The digest of the file."""
        return file_sha256(self.jar)

    def flag(self, options: str = "") -> str:
        """Return the flag that starts a JVM with the agent."""
        return f"-javaagent:{self.jar}={options}" if options else f"-javaagent:{self.jar}"


def gate_options(options: str | None, topic_settings: Mapping[str, str]) -> str:
    """Return the gate's options in a run with such topics.

    A retention below the default of `MAX_UNSYNCED` would end before records are on disk: last high watermarks count.
    """
    options, retention_ms = options or "", int(topic_settings.get("delete.retention.ms", MAX_UNSYNCED_MS))
    if MAX_UNSYNCED in options or retention_ms >= MAX_UNSYNCED_MS:
        return options
    return ",".join([*([options] if options else []), f"{MAX_UNSYNCED}=0"])


def parts(on_progress: OnProgress) -> JarSet:
    """Return compiler and libraries, fetching missing jars. Raises `UsageError` as `jars_for` does."""
    digests = read_digests(LOCKS / LOCK)
    return materialise(digests, cache_root() / "jars" / "gate", fetch_locked, on_progress)


def build_agent(java: Java, on_progress: OnProgress, source: AgentSource = GATE) -> Agent:
    """Return the agent, compiled if the cache has none. Raises `UsageError` for missing parts, `HarnessError`."""
    lock = (LOCKS / LOCK).read_bytes()
    text = b"".join(name.encode() + content for name, content in source.sources.items())
    digest = hashlib.sha256(lock + text + (source.asm + source.manifest).encode()).hexdigest()
    jar = cache_root() / "gate" / digest[:16] / source.jar_name
    if not jar.is_file():
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jar.parent) as folder:
            draft = Path(folder) / source.jar_name
            draft.write_bytes(_packed(source, _compiled(java, parts(on_progress), Path(folder), source)))
            draft.replace(jar)
    return Agent(jar)


def export(agent: Agent, output: Path) -> None:
    """Copy the jar to ``output``. Raises `UsageError` where that cannot be written."""
    with raised_as(UsageError, f"{output} cannot be written", OSError):
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(agent.jar, output)


def _compiled(java: Java, jars: JarSet, folder: Path, source: AgentSource) -> dict[str, bytes]:
    files, classes = folder / "source", folder / "classes"
    files.mkdir()
    for name, content in source.sources.items():
        (files / name).write_bytes(content)
    compile_java(java, jars, sorted(files.iterdir()), classes, jars.classpath)
    compiled = {path.relative_to(classes).as_posix(): path.read_bytes() for path in classes.rglob("*.class")}
    with zipfile.ZipFile(_part(jars, "asm")) as library:
        names = [name for name in library.namelist() if name.startswith(_ASM) and name.endswith(".class")]
        compiled |= {name: library.read(name) for name in names}
    old, new = _ASM.encode(), source.asm.encode()
    return {name.replace(_ASM, source.asm): content.replace(old, new) for name, content in compiled.items()}


def compile_java(
    java: Java, jars: JarSet, files: Sequence[Path], classes: Path, classpath: str, *, level: str = JAVA_LEVEL
) -> None:
    """Compile source files with the compiler among ``jars`` into the folder ``classes``. Raises `HarnessError`."""
    # Not --release: that takes signatures which only a JDK has.
    levels = ("-source", level, "-target", level, "-encoding", "UTF-8")
    failure = f"{files[0].name} cannot be compiled"
    options = ("-proc:none", "-nowarn", *levels, "-cp", classpath, "-d", classes)
    done = run_java(java, "-jar", _part(jars, "ecj"), *options, *files, failure=failure)
    if done.returncode != 0:
        raise HarnessError(f"{failure}:\n{done.stdout}{done.stderr}")


def run_java(java: Java, *arguments: str | Path, failure: str) -> subprocess.CompletedProcess[str]:
    """Run a short program, whatever its exit code. Raises `HarnessError` with ``failure`` where it does not end."""
    command = [java.path, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *arguments]
    with raised_as(HarnessError, failure, OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
        )


def _part(jars: JarSet, artifact: str) -> Path:
    paths = {coordinate.split(":")[1]: path for coordinate, path in zip(jars.digests, jars.paths, strict=True)}
    return paths[artifact]


def _packed(source: AgentSource, classes: dict[str, bytes]) -> bytes:
    notice = _NOTICE.format(title=f"{DISTRIBUTION}: the {source.title}")
    content = {"META-INF/MANIFEST.MF": source.manifest.encode(), "META-INF/NOTICE": notice.encode()}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as jar:
        for name, data in (*content.items(), *sorted(classes.items())):
            jar.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


_HOOK: Final = "hook\t"


@dataclass(frozen=True)
class Verification:
    """``hooks``: the hooked methods with the methods that they call; ``reason``: why a hook does not fit."""

    fits: bool
    hooks: tuple[tuple[str, str], ...]
    reason: str = ""


def verify_agent(java: Java, jar: Path, classpath: str, options: str = "") -> Verification:
    """Verify that the gate fits a version of Kafka: a broker's classes are loaded and changed, but no broker starts.

    The agent itself does all checks before the main class starts, and ends the JVM where a check fails. Raises
    `HarnessError` where Java cannot be run.
    """
    done = run_java(java, Agent(jar).flag(options), "-cp", classpath, VERIFY, failure="the gate cannot be tried")
    rows = [line.removeprefix(_HOOK).split("\t") for line in done.stdout.splitlines() if line.startswith(_HOOK)]
    failure = _reason(done.stderr) or f"java ended with exit code {done.returncode}"
    fits = done.returncode == 0
    return Verification(fits, tuple((row[0], row[1]) for row in rows), "" if fits else failure)


def libraries(folder: Path) -> str:
    """Return the class path of a Kafka installation's ``libs`` folder. Raises `UsageError` if it has no jars."""
    if not (jars := sorted(folder.glob("*.jar"))):
        raise UsageError(f"{folder} has no jars: give the folder libs of an installation of Kafka")
    return ":".join(map(str, jars))


def _reason(stderr: str) -> str:
    """Return the first line of the JVM's output with a reason, without the class of the exception."""
    lines = [line.strip().removeprefix("Caused by: ") for line in stderr.splitlines()]
    reason = next((line for mark in ("compaction-gate:", "Error", "Exception") for line in lines if mark in line), "")
    return reason.partition("compaction-gate: ")[2] or reason
