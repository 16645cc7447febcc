"""Build the patch: Kafka's sources from Maven Central, the diff, the compilers, and its unit tests.

    python results/upstream/patch/build.py OUTPUT     the classes in OUTPUT/classes, for ``harness run --patch``

Takes a JDK 17 (``javac``), ``patch``, and the harness on the Python path. Jars are checked against ``parts.lock``: a
line ``sha256  group:artifact:version[:classifier]``. The exit code is 0 where every unit test passed. Kafka's sources
stay in OUTPUT and do not belong to this repository.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

HERE: Final = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

from harness.errors import HarnessError  # noqa: E402
from harness.host.cache import cache_root  # noqa: E402
from harness.targets import find_target  # noqa: E402
from harness.targets.jars import jars_for  # noqa: E402
from harness.targets.lock import file_sha256, jar_name, run_ivy  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TARGET: Final = "kafka-4.3"
DIFF: Final = HERE / "compaction-waits.diff"
SOURCE_ROOTS: Final = {
    "kafka-storage": "storage/src/main/java",
    "kafka-metadata": "metadata/src/main/java",
    "kafka_2.13": "core/src/main/scala",
}
"""The path of a module's sources in Kafka's repository. The diff has paths of the repository."""
SCALA_COMPILER: Final = "org.scala-lang:scala-compiler:2.13.18"
JUNIT: Final = "org.junit.platform:junit-platform-console-standalone:1.13.4"


def main(output: Path) -> int:
    """Build into ``output``; return the exit code of the unit tests."""
    jars = fetch_parts()
    kafka = jars_for(find_target(TARGET)).classpath
    source, classes, tests = (output / name for name in ("source", "classes", "test-classes"))
    changed = unpack(jars, source)
    run(["patch", "--strip=1", "--fuzz=0", "--no-backup-if-mismatch", f"--input={DIFF.resolve()}"], cwd=source)
    # Java calls nothing of the changed Scala, so that its compiler comes first.
    java, scala = ([source / one for one in changed if one.endswith(suffix)] for suffix in (".java", ".scala"))
    javac(java, classes, [kafka])
    compiler = os.pathsep.join(
        [str(jars[SCALA_COMPILER]), *(str(Path(one)) for one in kafka.split(os.pathsep) if "scala-lang" in one)]
    )
    run([
        "java", "-Xss4m", "-cp", compiler, "scala.tools.nsc.Main", "-nowarn", "-release", "17", "-d", classes,
        "-classpath", os.pathsep.join([str(classes), kafka]), *scala,
    ])  # fmt: skip
    test_jars = [str(path) for name, path in jars.items() if name.endswith(":test")]
    libraries = [str(classes), *test_jars, str(jars[JUNIT]), kafka]
    javac(sorted((HERE / "test").rglob("*.java")), tests, libraries)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    console: list[str | Path] = ["java", quiet, "-jar", jars[JUNIT], "execute"]
    console += ["--disable-banner", "--disable-ansi-colors", "--details=tree", "--fail-if-no-tests"]
    selected = ["--scan-class-path", str(tests), "--reports-dir", str(output / "reports")]
    classpath = os.pathsep.join([str(tests), *libraries])
    return subprocess.run([*console, *selected, "--class-path", classpath], check=False).returncode


def fetch_parts() -> Mapping[str, Path]:
    """Return the jars of ``parts.lock`` by coordinate, fetching those that are missing.

    Raises `HarnessError` for one that is not the pinned one, `UsageError` where they cannot be had.
    """
    lines = [line.split() for line in (HERE / "parts.lock").read_text().splitlines()]
    digests = {coordinate: sha256 for sha256, coordinate in lines}
    folder = cache_root() / "jars" / "upstream-patch"
    folder.mkdir(parents=True, exist_ok=True)
    for coordinate, sha256 in digests.items():
        path = folder / jar_name(coordinate)
        if not path.is_file() or file_sha256(path) != sha256:
            fetch(coordinate, path)
        if (found := file_sha256(path)) != sha256:
            raise HarnessError(f"{coordinate} has the wrong SHA-256: expected {sha256}, got {found}")
    return {coordinate: folder / jar_name(coordinate) for coordinate in digests}


def fetch(coordinate: str, path: Path) -> None:
    """Retrieve one jar from Maven Central, without its dependencies."""
    group, artifact, version, *classifier = coordinate.split(":")
    namespace = 'xmlns:m="http://ant.apache.org/ivy/maven"'
    wanted = f'<artifact {namespace} name="{artifact}" type="jar" ext="jar" m:classifier="{{}}" />'
    dependency = (
        f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="false">'
        f"{''.join(wanted.format(one) for one in classifier)}</dependency>"
    )
    with tempfile.TemporaryDirectory(dir=path.parent) as staging:
        run_ivy([dependency], Path(staging), lambda _: None, poms=False)
        (jar,) = Path(staging).glob("*.jar")
        jar.replace(path)


def unpack(jars: Mapping[str, Path], source: Path) -> Sequence[str]:
    """Write the sources that the diff changes, by their paths in Kafka's repository; return these paths."""
    changed = [line[len("+++ b/") :] for line in DIFF.read_text().splitlines() if line.startswith("+++ b/")]
    for module, root in SOURCE_ROOTS.items():
        (jar,) = (path for name, path in jars.items() if name.endswith(":sources") and f":{module}:" in name)
        with zipfile.ZipFile(jar) as packed:
            for one in changed:
                if one.startswith(f"{root}/"):
                    (source / one).parent.mkdir(parents=True, exist_ok=True)
                    (source / one).write_bytes(packed.read(one[len(root) + 1 :]))
    return changed


def javac(files: Sequence[Path], classes: Path, libraries: Sequence[str]) -> None:
    """Compile Java sources into ``classes``."""
    run(["javac", "-nowarn", "--release", "17", "-cp", os.pathsep.join(libraries), "-d", classes, *files])


def run(command: Sequence[str | Path], *, cwd: Path | None = None) -> None:
    """Run a program. Raises `HarnessError` with its output where it fails."""
    done = subprocess.run(command, cwd=cwd, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise HarnessError(f"{Path(command[0]).name} failed:\n{done.stdout}")


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]).absolute()))
