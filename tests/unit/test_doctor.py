"""The checks of `harness doctor` on a machine with missing parts."""

import importlib
import importlib.metadata
import json
import re
import shutil
import socket
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import psutil
import pytest
from click.testing import CliRunner
from documentation import ROOT

from harness import doctor
from harness.cli.machine import doctor as command
from harness.doctor import Check, diagnose
from harness.errors import EXIT_USAGE, UsageError
from harness.host import engine
from harness.host.java import find_java
from harness.runtimes import local
from harness.runtimes.base import Need
from harness.spark import background
from harness.spark.background import archive_path
from harness.targets import WITH_JARS


@pytest.fixture(autouse=True)
def _own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Avoid creating a namespace and asking an engine in every diagnosis."""
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    for need in Need:
        monkeypatch.setitem(local.WHY_UNAVAILABLE, need, lambda: None)


def check(name: str) -> Check:
    (found,) = [check for check in diagnose() if check.name.startswith(name)]
    return found


def test_every_failure_has_a_remedy() -> None:
    checks = diagnose()
    assert all(check.found and (check.ok or check.remedy) for check in checks)
    assert len({check.name for check in checks}) == len(checks)
    assert check("Python").ok
    assert check("packages").ok


def test_the_table_is_folded_and_fits_a_hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(local.WHY_UNAVAILABLE, Need.CLOCK, lambda: "there is no library " * 20)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=0))
    shown = CliRunner().invoke(command, []).stdout.splitlines()
    assert max(map(len, shown)) <= 100
    statuses = [line.split()[0] for line in shown if line[0] != " "]
    assert statuses == sorted(statuses, key=["missing", "ok", "optional", "1"].index)
    assert sum("package" in line for line in shown) == sum("jars" in line for line in shown) == 1
    assert re.fullmatch(r"1 missing, \d+ ok, \d+ optional: install what is missing", shown[-1])


@pytest.mark.parametrize("name", doctor.TOP_LEVEL)
def test_a_folder_that_hides_a_package_is_reported(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._top_level().ok
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    shadowed = doctor._top_level()
    assert (shadowed.status, shadowed.found) == ("missing", f"shadowed: {name} ({tmp_path / name})")
    assert "uv tool install compaction-harness" in shadowed.remedy


def test_another_distribution_with_a_package_of_that_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python package of Docker Compose 1 is named compose, too."""
    owners = {**importlib.metadata.packages_distributions(), "compose": ["compaction-harness", "docker-compose"]}
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: owners)
    assert check("top-level names").found.endswith(", also of docker-compose)")
    assert diagnose()[-1].name == "loopback ports", "nothing more is asked"


def test_the_top_level_packages_are_those_of_the_wheel() -> None:
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {pattern.removesuffix("*") for pattern in found} == set(doctor.TOP_LEVEL)
    page = (ROOT / "docs/how-to/install.md").read_text()
    assert all(f"`{name}`" in page for name in doctor.TOP_LEVEL)


def test_jars_that_are_not_cached_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = check("jars to fetch")
    assert (missing.status, missing.remedy) == ("optional", "harness doctor --fetch kafka-3.9")
    assert all(name in missing.found for name in WITH_JARS)
    monkeypatch.setattr(doctor, "is_cached", lambda _target: True)
    assert check("cached jars").found == ", ".join(WITH_JARS)


def test_a_class_archive_that_is_not_there_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = check("class archive")
    assert (archive.ok, archive.found) == (True, f"none: {background.SWITCH} is 0")
    assert archive.remedy == "harness doctor --fetch kafka-3.9"
    monkeypatch.delenv(background.SWITCH)
    assert check("class archive").found == "none: the first run makes it in the background"
    path = archive_path(find_java())
    path.write_bytes(b"x" * (3 << 20))
    assert check("class archive") == Check("class archive of Spark", ok=True, found=f"{path} (3 MiB)", remedy="")


def test_missing_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    ran = CliRunner().invoke(command, ["--format", "json"], standalone_mode=False)
    (java,) = [each for each in json.loads(ran.stdout)["checks"] if each["name"] == "Java 17+"]
    assert (ran.return_value, java["ok"]) == (EXIT_USAGE, False)
    assert str(tmp_path) in java["found"]
    assert "openjdk-17-jre-headless" in java["remedy"]


def test_missing_and_broken_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"crc32c": ModuleNotFoundError("No module named 'crc32c'"), "cramjam": OSError("wrong ELF class")}
    real = importlib.import_module

    def load(name: str) -> Any:
        if name in broken:
            raise broken[name]
        return real(name)

    monkeypatch.setattr(importlib, "import_module", load)
    assert check("package crc32c").remedy.endswith("-m pip install crc32c")
    assert check("package cramjam").found == "OSError: wrong ELF class"
    assert check("packages").ok


def test_little_disk_and_memory_and_no_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=1024**3))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=3 * 1024**3))
    disk, memory = check("free disk"), check("available memory")
    assert (disk.ok, disk.found[:11], memory.ok, memory.found) == (False, "1.0 GiB in ", False, "3.0 GiB")
    monkeypatch.setenv("TMPDIR", "/missing")
    assert check("free disk").found.startswith("TMPDIR is /missing, where no file can be created")
    monkeypatch.setattr(socket, "socket", MagicMock(side_effect=OSError(99, "Cannot assign requested address")))
    loopback = check("loopback")
    assert (loopback.ok, "Cannot assign" in loopback.found) == (False, True)


def test_every_package_that_is_installed_with_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    required = [line for line in importlib.metadata.requires("compaction-harness") or () if "extra" not in line]
    assert check("packages").found == f"{len(required)} can be imported"
    monkeypatch.setattr(importlib.metadata, "requires", lambda _name: ["no-such-package>=1"])
    package = check("package no-such-package")
    assert (package.ok, "No package metadata was found" in package.found) == (False, True)


def test_faults_that_cannot_be_had_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (check(Need.CLOCK).found, check(Need.CLOCK).remedy) == ("available", "")
    for need in Need:
        monkeypatch.setitem(local.WHY_UNAVAILABLE, need, lambda: "run as root")
        assert (check(need).ok, check(need).found) == (True, "run as root")
    assert check(Need.CLOCK).remedy == "needed only for --runtime local --nemesis clock-skew"
    assert check(Need.FIREWALL).remedy.startswith(
        "needed only for --runtime local --nemesis bridge, lossy, one-way, ring, split"
    )


def test_containers_that_cannot_be_had_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_compose", MagicMock(side_effect=UsageError("apt-get install docker-compose")))
    for name, value in (("container engine", "start it"), ("compose", "apt-get install"), ("images", "start it")):
        assert value in check(name).found
        assert (check(name).ok, check(name).remedy) == (True, "needed only for --runtime docker")


def test_images_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "connect", lambda: SimpleNamespace(version=lambda: {"Version": "20.10"}))
    monkeypatch.setattr("harness.targets.images.find", lambda _client, target: target.name == "kafka-4.4" or None)
    assert check("container engine").found == "20.10 answers"
    assert check("images at hand").found == "kafka-4.4"
    assert check("images at hand").remedy == "harness images build kafka-3.9, or let a run pull it"
