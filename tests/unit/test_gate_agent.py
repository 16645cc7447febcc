"""The agent's jar: how it is built, which brokers it fits, and what a broker's own cleaner does with it."""

import os
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from java_cases import agent, classpath_of, compile_java, run_java

from harness.errors import HarnessError, UsageError
from harness.host.java import find_java
from harness.protect.gate import build
from harness.protect.gate.build import GATE, PACKAGE, VERIFY, build_agent, export, libraries, verify_agent
from harness.protect.gate.events import HELD, INSTALLED, RELEASED, parse_line
from harness.targets import WITH_JARS

CASES = Path(__file__).parent / "gate_cases"
HOOKS = {"cleanableUpTo", "goingOn", "swapping", "image", "applying", "beforeFetch", "truncation"}
OF_MARKERS = {"cleaning", "horizon"}
FAKE = "package kafka.server; public class ReplicaManager {{ {members} }}"
FETCHES = "public long initialFetchOffset(Object log) { return 0; }"


@pytest.mark.parametrize("options", ["", "hold=markers,topics=orders-*,give-up-after-ms=60000"])
@pytest.mark.parametrize("target", WITH_JARS)
def test_the_agent_fits_every_version(target: str, options: str) -> None:
    tried = verify_agent(find_java(), agent().jar, classpath_of(target), options)
    assert (tried.fits, tried.reason) == (True, "")
    found = {hook for _, hook in tried.hooks}
    assert found - {"refuseZooKeeper"} == HOOKS | (OF_MARKERS if options else set())
    assert ("refuseZooKeeper" in found) is (target == "kafka-3.9")


@pytest.mark.parametrize(("members", "lack"), [
    ("", "ReplicaManager.initialFetchOffset -> beforeFetch was inserted 0 times instead of 1"),
    (FETCHES, "ReplicaManager.applyDelta -> applying was inserted 0 times"),
])  # fmt: skip
def test_a_version_with_other_methods_is_refused_before_its_main_class(tmp_path: Path, members: str, lack: str) -> None:
    source = tmp_path / "ReplicaManager.java"
    source.write_text(FAKE.format(members=members))
    compile_java(tmp_path, source)
    classpath = os.pathsep.join([str(tmp_path), classpath_of("kafka-4.4")])
    tried = verify_agent(find_java(), agent().jar, classpath)
    assert (tried.fits, tried.hooks) == (False, ())
    assert lack in tried.reason


def test_what_is_no_broker_and_wrong_options_are_refused() -> None:
    done = run_java(VERIFY, str(agent().jar), flags=(agent().flag(),))
    assert done.returncode == 1
    assert "this broker cannot be protected, and does not start" in done.stderr
    assert "none of [org.apache.kafka.storage.internals.log.LogCleanerManager" in done.stderr
    tried = verify_agent(find_java(), agent().jar, classpath_of("kafka-4.4"), "hold=some")
    assert (tried.fits, tried.reason) == (False, "hold=some: give all or markers")


def test_a_broker_with_zookeeper_is_refused(tmp_path: Path) -> None:
    compile_java(tmp_path, CASES / "StartWithZooKeeper.java")
    classpath = os.pathsep.join([str(tmp_path), classpath_of("kafka-3.9")])
    done = run_java("compaction.gate.StartWithZooKeeper", classpath, flags=(agent().flag(),))
    assert done.returncode == 1
    assert "the gate needs KRaft, and this broker runs with ZooKeeper" in done.stderr


def test_the_same_sources_give_the_same_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = agent()
    cached_parts = build.parts(lambda _done, _total: None)
    monkeypatch.setattr(build, "parts", lambda _on_progress: cached_parts)
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path))
    again = build_agent(find_java(), lambda _done, _total: None)
    assert again.jar != first.jar
    assert again.sha256 == first.sha256


def test_the_jar_has_one_package_and_only_classes_whose_references_are_checked_use_kafka() -> None:
    with zipfile.ZipFile(agent().jar) as jar:
        classes = [name for name in jar.namelist() if name.endswith(".class")]
        assert all(name.startswith(f"{PACKAGE}/") for name in classes)
        assert not [name for name in classes if b"org/objectweb" in jar.read(name)]
    packages = (b"import org.apache.kafka", b"import org.slf4j")
    users = {name for name, text in GATE.sources.items() if any(package in text for package in packages)}
    assert users == {"ImageReader.java", "Log.java"}


def test_the_jar_is_copied_and_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    export(agent(), tmp_path / "new" / "gate.jar")
    assert (tmp_path / "new" / "gate.jar").read_bytes() == agent().jar.read_bytes()
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        export(agent(), tmp_path / "file" / "gate.jar")
    with pytest.raises(UsageError, match="has no jars"):
        libraries(tmp_path)


def test_the_copy_of_asm_has_a_name_of_the_same_length() -> None:
    assert len(GATE.asm) == len("org/objectweb/asm/")
    with pytest.raises(HarnessError, match="more than 15 characters"):
        _ = replace(GATE, package="compaction/gates").asm


TARGET = "kafka-4.4"
WRITTEN = "a=1 a=2 b=1 b=null c=1 COMMIT@5 d=1 COMMIT@7 c=2"
CLEANED = "a=2 d=1 COMMIT@7 c=2"


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    classes = tmp_path_factory.mktemp("classes")
    compile_java(classes, CASES / "RealCleaner.java", CASES / "BrokerLog.java", libraries=classpath_of(TARGET))
    return os.pathsep.join([str(classes), classpath_of(TARGET)])


@pytest.mark.parametrize(("options", "held", "passes"), [
    ("", WRITTEN, "aborted, aborted, aborted, swap aborted"),
    ("hold=markers", "a=2 b=null COMMIT@5 d=1 COMMIT@7 c=2", "aborted, aborted, aborted, swap aborted"),
    ("except=orders", CLEANED, "complete, complete, complete, swap complete"),
])  # fmt: skip
def test_what_a_cleaner_leaves(classpath: str, tmp_path: Path, options: str, held: str, passes: str) -> None:
    flags = (agent().flag(options), f"-Dfolder={tmp_path.resolve()}")
    done = run_java("compaction.gate.RealCleaner", classpath, flags=flags)
    assert done.returncode == 0, done.stderr
    events = [event for line in done.stderr.encode().splitlines() if (event := parse_line(line, 2))]
    expected = [] if options.startswith("except") else [HELD, RELEASED] * 3 + [HELD]
    assert [event["event"] for event in events] == [INSTALLED, *expected]
    assert done.stdout.splitlines() == [
        f"written: {WRITTEN}",
        f"held: {held}",
        "deletable while held: true",
        "jmx: 0 current" if options.startswith("except") else "jmx: 1 orders-0[2] current",
        f"released: {CLEANED}",
        f"passes: {passes}",
        "errors: 0",
    ]
