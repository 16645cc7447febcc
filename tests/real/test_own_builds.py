"""Kafkas of the user's own on real brokers: one class of the released sources changed, compiled, and run."""

import json
import re
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from sandbox import Sandbox

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.host.java import find_java
from harness.protect.gate.build import compile_java, parts
from harness.targets import find_target
from harness.targets.jars import jars_for
from harness.targets.lock import run_ivy

PACKAGE = "org/apache/kafka/storage/internals/log"
MARK = "a build of one's own: "
JAVA_LEVEL = "17"


@dataclass(frozen=True)
class Change:
    """One class of a version, which prints a line where it is loaded."""

    version: str
    name: str

    @property
    def line(self) -> str:
        return f"{MARK}{self.name} {self.version}"

    def source(self) -> str:
        """Return the changed source of the jar with sources on Maven Central."""
        sources = (
            f'<dependency org="org.apache.kafka" name="kafka-storage" rev="{self.version}" transitive="false">'
            '<artifact xmlns:m="http://ant.apache.org/ivy/maven" name="kafka-storage" type="jar" ext="jar"'
            ' m:classifier="sources" /></dependency>'
        )
        with tempfile.TemporaryDirectory() as staging:
            run_ivy([sources], Path(staging), lambda _: None, poms=False)
            (jar,) = Path(staging).glob("*.jar")
            with zipfile.ZipFile(jar) as packed:
                text = packed.read(f"{PACKAGE}/{self.name}.java").decode()
        head = rf"(?m)^(public (?:final )?class {self.name}\b[^{{]*{{)$"
        changed, count = re.subn(head, rf'\1 static {{ System.err.println("{self.line}"); }}', text)
        assert count == 1, text[:2000]
        return changed

    def compiled(self, folder: Path) -> Path:
        """Return a folder with the classes of the changed source."""
        source, classes = folder / f"{self.name}.java", folder / "classes"
        source.write_text(self.source())
        kafka = jars_for(find_target(f"kafka-{self.version}")).classpath
        compile_java(find_java(), parts(lambda *_: None), [source], classes, kafka, level=JAVA_LEVEL)
        assert (classes / PACKAGE / f"{self.name}.class").is_file()
        return classes


def assert_ran_on(change: Change, run_dir: Path) -> None:
    """Every broker loaded the changed class."""
    for broker in (1, 2, 3):
        assert change.line in (run_dir / "logs" / str(broker) / "server.log").read_text(), broker


def test_a_patch_in_front_of_a_release(sandbox: Sandbox, tmp_path: Path) -> None:
    change = Change("4.3.1", "LogCleanerManager")
    classes = change.compiled(tmp_path)
    words = ("--patch", str(classes), "--anomaly", "stuck-lso", "--client", "java", "--format", "json")
    ran = sandbox.run("kafka-4.3", *words).end(EXIT_ANOMALY)
    name = ran.verdict["target"]["name"]
    assert re.fullmatch(r"kafka-4\.3\.1-patch-[0-9a-f]{8}", name)
    run_dir = sandbox.latest(name, "stuck-lso")
    assert_ran_on(change, run_dir)
    # The client has the classes of the release.
    assert MARK not in (run_dir / "client.log").read_text()
    manifest = json.loads((run_dir / "manifest.json").read_text())
    assert f"--target {name} " in manifest["command"]
    assert (manifest["build"]["path"], list(manifest["build"]["digests"])) == (str(classes), ["patch"])


def test_a_night_on_a_distribution(sandbox: Sandbox, tmp_path: Path) -> None:
    change = Change("3.9.2", "ProducerStateManager")
    classes = change.compiled(tmp_path)
    archive = tmp_path / "kafka_2.13-3.9.2.tgz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for jar in jars_for(find_target("kafka-3.9")).paths:
            _, name, version = jar.stem.split("--")
            packed = _with_classes(jar, tmp_path, classes) if name == "kafka-storage" else jar
            tar.add(packed, f"kafka_2.13-3.9.2/libs/{name}-{version}.jar")
    chosen = ("--targets", str(archive), "--anomalies", "stuck-lso", "--format", "json")
    ran = sandbox.call("nightly", *chosen, code=EXIT_CLEAN)
    (cell,) = json.loads(ran.stdout)["cells"]
    assert (cell["status"], cell["version"]) == ("as expected", "3.9.2")
    assert re.fullmatch(r"kafka-3\.9\.2-build-[0-9a-f]{8}", cell["cell"]["target"])
    (run_dir,) = cell["runs"]
    assert_ran_on(change, sandbox.results / run_dir)
    site = sandbox.root / "site"
    assert sandbox.call("report", "--out", str(site)).code == EXIT_CLEAN
    assert f"kafka 3.9.2 build {cell['cell']['target'][-8:]}" in (site / "index.html").read_text()


def _with_classes(jar: Path, folder: Path, classes: Path) -> Path:
    """Return a copy of a jar in which compiled classes replace the classes of the same names."""
    copy = folder / jar.name
    changed = {path.relative_to(classes).as_posix(): path for path in classes.rglob("*.class")}
    with zipfile.ZipFile(jar) as before, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as after:
        for name in before.namelist():
            if name not in changed:
                after.writestr(name, before.read(name))
        for name, path in changed.items():
            after.write(path, name)
    return copy
