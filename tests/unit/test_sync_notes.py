"""Notes of an agent in a JVM about synced files: the notes give exactly the content of the disk."""

import os
import subprocess
from pathlib import Path

import pytest
from java_cases import classpath_of, compile_java

from harness.host.java import find_java
from harness.protect.gate.build import Agent, build_agent
from harness.runtimes import power

CASES = Path(__file__).parent / "power_cases"
EMPTY = "t-9/0.log"
_PATHS = (find_java().path, *Path("/usr/lib/jvm").glob("*/bin/java"))
JAVAS = sorted({path.resolve() for path in _PATHS if path.exists()})
"""Before JDK 21, another class syncs files."""


def agent() -> Agent:
    return build_agent(find_java(), lambda _done, _total: None, power.SYNC_NOTES)


def run(java: Path, classpath: str, *arguments: str | Path, flags: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [java, "-XX:TieredStopAtLevel=1", *flags, "-cp", classpath, *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
@pytest.mark.parametrize("java", JAVAS, ids=lambda path: path.parts[-3])
def test_what_was_synced_is_noted(java: Path, target: str, tmp_path: Path) -> None:
    compile_java(tmp_path / "classes", CASES / "Writes.java")
    (tmp_path / "real").mkdir()
    data, log = tmp_path / "data", tmp_path / "synced"
    data.symlink_to(tmp_path / "real")
    (data / "t-9").mkdir()
    (data / EMPTY).write_bytes(b"before")
    power.begin_notes(log, data)
    classpath = os.pathsep.join([str(tmp_path / "classes"), classpath_of(target)])
    done = run(java, classpath, "Writes", data, flags=[agent().flag(f"{log}={data}")])
    assert done.returncode == 0, done.stderr
    assert power.read_synced(log.read_text()) == {
        EMPTY: 6, "t-0/0.log": 100, "t-0/truncated.log": 40, "checkpoint": 20, "t-0/5.log.swap": 65,
        "u-0.deleted/0.log": 8,
    }  # fmt: skip
    assert (data / "t-0" / "never.log").stat().st_size == 10


def test_a_broker_whose_syncs_cannot_be_noted_does_not_start(tmp_path: Path) -> None:
    """Kafka's classes are absent here, so their calls are not noted."""
    compile_java(tmp_path, CASES / "Writes.java")
    done = run(find_java().path, str(tmp_path), "Writes", tmp_path, flags=[agent().flag(f"{tmp_path}/log={tmp_path}")])
    assert done.returncode == 1
    assert "sync-notes: not installed: java.lang.ClassNotFoundException: org.apache.kafka" in done.stderr
    assert not (tmp_path / "t-0").exists()


def test_the_gate_is_another_jar() -> None:
    assert build_agent(find_java(), lambda _done, _total: None).jar.name != agent().jar.name
