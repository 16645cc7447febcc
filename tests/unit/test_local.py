"""Brokers as processes: what they are started with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from harness.clock import RealClock
from harness.errors import BootError
from harness.runtimes.local import LocalRuntime, LocalSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BOUND_S = 30.0


@pytest.fixture
def runtime(tmp_path: Path) -> Callable[[str], LocalRuntime]:
    """Make a runtime whose java is a shell script."""

    def make(script: str) -> LocalRuntime:
        java = tmp_path / "java"
        java.write_text(f"#!/bin/sh\n{script}\n")
        java.chmod(0o755)
        return LocalRuntime(LocalSpec("a-run", tmp_path / "work", tmp_path / "logs", java, "jars", {}))

    return make


def test_brokers_get_the_environment_of_the_beginning(
    runtime: Callable[[str], LocalRuntime], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One that inherits it while pyspark's thread changes it fails to start: execve answers EFAULT.
    monkeypatch.setenv("HARNESS_TEST", "before")
    subject = runtime('echo "told $HARNESS_TEST"')
    monkeypatch.setenv("HARNESS_TEST", "after")
    subject.start_cluster()
    logs = [tmp_path / "logs" / str(broker) / "server.log" for broker in subject.brokers]
    RealClock().wait_until(lambda: all(log.read_text() for log in logs), BOUND_S, "three lines")
    subject.close()
    assert [log.read_text() for log in logs] == ["told before\n"] * 3
    assert os.environ["HARNESS_TEST"] == "after"


def test_only_the_controller_has_a_controller_listener(runtime: Callable[[str], LocalRuntime], tmp_path: Path) -> None:
    subject = runtime("true")
    subject.start_cluster()
    subject.close()
    texts = {b: (tmp_path / "work" / f"broker-{b}" / "server.properties").read_text() for b in subject.brokers}
    assert {b for b, text in texts.items() if "process.roles=broker,controller\n" in text} == {1}
    assert {b for b, text in texts.items() if ",CONTROLLER://" in text} == {1}
    lines = [line for text in texts.values() for line in text.splitlines()]
    (voters,) = {line.removeprefix("controller.quorum.voters=") for line in lines if "quorum.voters" in line}
    assert voters.startswith("1@127.0.0.1:")
    assert "," not in voters


def test_storage_that_cannot_be_formatted_is_told_with_the_reason(runtime: Callable[[str], LocalRuntime]) -> None:
    with pytest.raises(BootError, match=r"broker \d: its storage cannot be formatted:\n.*no space"):
        runtime("echo no space >&2; exit 1").start_cluster()
