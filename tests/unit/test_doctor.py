"""What the doctor finds on a machine that lacks something."""

import importlib
import shutil
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import doctor
from harness.doctor import Check, diagnose
from harness.targets import TARGETS


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path / "cache"))


def check(name: str) -> Check:
    """Return the one check whose name starts so."""
    (found,) = [check for check in diagnose() if check.name.startswith(name)]
    return found


def test_every_failure_has_a_remedy() -> None:
    checks = diagnose()
    assert all(check.found and (check.ok or check.remedy) for check in checks)
    assert len({check.name for check in checks}) == len(checks)
    assert check("Python").ok
    assert check("package kafka-python").ok


def test_jars_that_are_not_cached_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in TARGETS:
        assert check(f"jars of {name}").ok
        assert check(f"jars of {name}").remedy == f"harness doctor --fetch {name}"
    monkeypatch.setattr(doctor, "is_cached", lambda _target: True)
    assert check("jars of kafka-3.9").remedy == ""


def test_missing_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = check("Java 17+")
    assert not java.ok
    assert str(tmp_path) in java.found
    assert "openjdk-17-jre-headless" in java.remedy


def test_missing_and_broken_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {
        "crc32c": ModuleNotFoundError("No module named 'crc32c'"),
        "cramjam": OSError("wrong ELF class"),
    }
    real = importlib.import_module

    def load(name: str) -> Any:
        if name in broken:
            raise broken[name]
        return real(name)

    monkeypatch.setattr(importlib, "import_module", load)
    assert not check("package crc32c").ok
    assert check("package crc32c").remedy.endswith("-m pip install crc32c")
    assert check("package cramjam").found == "OSError: wrong ELF class"
    assert check("package rich").ok


def test_little_disk_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=1024**3))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=3 * 1024**3))
    assert not check("free disk").ok
    assert check("free disk").found.startswith("1.0 GiB in ")
    assert not check("available memory").ok
    assert check("available memory").found == "3.0 GiB"


def test_no_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket, "socket", refuse)
    assert not check("loopback").ok
    assert "Cannot assign" in check("loopback").found
