"""Kafka's own unit tests of a class, run on patched classes: the detector ``unit-tests`` of ``kafka_mutants.py``.

Maven Central has the compiled tests of some versions (``kafka-storage-4.3.1-test.jar``), but not of 4.4.0. They are
fetched once into the cache of jars, and run by JUnit's console launcher, without Kafka's build. A test that also fails
on stock classes says nothing about a mutant: each process runs the tests of a class on stock classes once.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import urllib.error
import urllib.request
import zipfile
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

from harness.host.cache import cache_root
from harness.targets import find_target
from harness.targets.jars import jars_for

MAVEN_ROOT = os.environ.get("COMPACTION_HARNESS_MAVEN_ROOT", "https://repo1.maven.org/maven2")
MODULES = ("kafka_2.13", "kafka-storage", "kafka-clients", "kafka-server-common", "kafka-group-coordinator",
           "kafka-coordinator-common", "kafka-transaction-coordinator", "kafka-server", "kafka-metadata",
           "kafka-raft", "kafka-storage-api")  # fmt: skip
LIBRARIES = (
    "org.junit.platform:junit-platform-console-standalone:1.13.1",
    "org.mockito:mockito-core:5.14.2",
    "org.mockito:mockito-junit-jupiter:5.14.2",
    "net.bytebuddy:byte-buddy:1.15.4",
    "net.bytebuddy:byte-buddy-agent:1.15.4",
    "org.objenesis:objenesis:3.3",
    "org.hamcrest:hamcrest:3.0",
    "net.jqwik:jqwik-api:1.9.2",
    "net.jqwik:jqwik-engine:1.9.2",
    "org.bouncycastle:bcpkix-jdk18on:1.78.1",
    "org.bouncycastle:bcprov-jdk18on:1.78.1",
)
TESTED_BY = {
    "Cleaner": "LogCleanerTest",
    "CleanedTransactionMetadata": "LogCleanerTest",
    "LogToClean": "LogCleanerManagerTest",
    "SkimpyOffsetMap": "OffsetMapTest",
    "ProducerAppendInfo": "ProducerStateManagerTest",
    "ProducerStateEntry": "ProducerStateManagerTest",
}
"""Tests of classes that have no class of tests with their own name."""
ONE_TEST_S = 60
ALL_TESTS_S = 600


class TestRun(NamedTuple):
    """The names of the failed tests, the number of tests, the output, and whether it ended before `ALL_TESTS_S`."""

    failed: set[str]
    tests: int
    printed: bytes
    ended: bool


def jar(path: str, folder: Path) -> Path | None:
    """Return a jar of Maven Central, and fetch it into a folder if it is missing; None if there is no such jar."""
    file = folder / Path(path).name
    if not file.exists():
        try:
            with urllib.request.urlopen(f"{MAVEN_ROOT}/{path}", timeout=60) as answer:  # noqa: S310
                folder.mkdir(parents=True, exist_ok=True)
                draft = file.with_suffix(f".{os.getpid()}")
                draft.write_bytes(answer.read())
                draft.replace(file)
        except urllib.error.HTTPError as error:
            if error.code == 404:  # noqa: PLR2004
                return None
            raise
    return file


@cache
def test_jars(version: str) -> tuple[Path, ...]:
    """Return the jars with Kafka's compiled tests; nothing for a version without them on Maven Central."""
    folder = cache_root() / "jars" / f"tests-{version}"
    paths = (f"org/apache/kafka/{module}/{version}/{module}-{version}-test.jar" for module in MODULES)
    return tuple(filter(None, (jar(path, folder) for path in paths)))


def libraries() -> list[Path]:
    """Return the jars that tests need."""
    paths = []
    for library in LIBRARIES:
        group, artifact, version = library.split(":")
        path = f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"
        paths.append(jar(path, cache_root() / "jars" / "tests"))
    return list(filter(None, paths))


@cache
def tests_of(mutated: str, version: str) -> tuple[str, ...]:
    """Return the classes with tests of a class, by its simple name; none if there are none."""
    outer = mutated.partition("$")[0]
    file = f"{TESTED_BY.get(outer, f'{outer}Test')}.class"
    names = {name for path in test_jars(version) for name in zipfile.ZipFile(path).namelist()}
    return tuple(sorted(name.removesuffix(".class").replace("/", ".") for name in names if Path(name).name == file))


def run_tests(target: str, tests: tuple[str, ...], patch: Path | None = None) -> TestRun:
    """Run classes of tests, on patched classes."""
    version = find_target(target).version
    jars = [*([patch] if patch else []), *test_jars(version), *libraries(), *jars_for(find_target(target)).paths]
    with tempfile.TemporaryDirectory(prefix="kafka-unit-tests-") as folder:
        command = ["java", "-Xmx1g", f"-Djava.io.tmpdir={folder}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                   "-cp", os.pathsep.join(map(str, jars)), "org.junit.platform.console.ConsoleLauncher", "execute",
                   *(f"--select-class={name}" for name in tests), "--details=none", "--disable-banner",
                   f"--config=junit.jupiter.execution.timeout.default={ONE_TEST_S}s",
                   f"--reports-dir={folder}/reports"]  # fmt: skip
        output = Path(folder, "output")
        with output.open("wb") as file:
            try:
                subprocess.run(
                    command, cwd=folder, stdout=file, stderr=subprocess.STDOUT, timeout=ALL_TESTS_S, check=False
                )
                ended = True
            except subprocess.TimeoutExpired:
                ended = False
        cases = [case for path in Path(folder, "reports").glob("*.xml") for case in ET.parse(path).iter("testcase")]  # noqa: S314
        failed = {name_of(case) for case in cases if case.find("failure") is not None or case.find("error") is not None}
        return TestRun(failed, len(cases), output.read_bytes(), ended)


def name_of(case: ET.Element) -> str:
    """Return the class and the method of a test; its parameters are left out."""
    return f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name', '').partition('(')[0]}"


@cache
def stock(target: str, tests: tuple[str, ...]) -> TestRun:
    """Return the run of tests on stock classes."""
    return run_tests(target, tests)
