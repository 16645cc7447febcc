"""Spark's class archive, made by a real JVM next to a first command: its owner, and its remains."""

from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from sandbox import Sandbox, command_line, wait_until

from harness.errors import EXIT_ANOMALY
from harness.spark import background

MAKING_S = 280
"""With the lowest priority, next to other tests."""
RUN = ("run", "--target", "sim-kafka", "--anomaly", "stuck-lso")


@pytest.fixture
def cache(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(background.SWITCH)
    path = sandbox.root / "cache"
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(path))
    return path


def makers(sandbox: Sandbox) -> list[psutil.Process]:
    return [one for one in sandbox.processes() if "harness.spark.background" in command_line(one)]


def archive_opened_by(process: psutil.Process) -> str | None:
    """Return the name of the archive that a JVM has mapped."""
    with suppress(OSError):
        for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
            if line.endswith(".jsa") and "/spark-" in line:
                return Path(line.split(maxsplit=5)[-1]).name
    return None


@pytest.mark.timeout(2 * MAKING_S)
def test_the_second_command_has_what_was_made_beside_the_first(sandbox: Sandbox, cache: Path) -> None:
    sandbox.call(*RUN, code=EXIT_ANOMALY)
    wait_until(lambda: list(cache.glob("spark-*.jsa")), MAKING_S, "the archive")
    (made,) = cache.glob("spark-*.jsa")
    wait_until(lambda: not makers(sandbox), MAKING_S, "the maker to end")
    sandbox.wait_until_nothing_is_left()
    assert list((cache / background.DRAFTS).iterdir()) == []

    going = sandbox.start(*RUN)
    wait_until(lambda: made.name in map(archive_opened_by, sandbox.processes()), MAKING_S, "a JVM with the archive")
    assert makers(sandbox) == []
    assert going.end().code == EXIT_ANOMALY


@pytest.mark.timeout(MAKING_S)
def test_a_maker_that_is_killed_leaves_nothing_but_the_way_free(sandbox: Sandbox, cache: Path) -> None:
    going = sandbox.start(*RUN)
    wait_until(lambda: makers(sandbox), MAKING_S, "the maker")
    (maker,) = makers(sandbox)
    wait_until(lambda: any(one.name() == "java" for one in maker.children(recursive=True)), MAKING_S, "its JVM")
    # Its record exists before the record of its JVM, but the maker writes it only once it has begun.
    spared = f"its run is in progress (process {maker.pid})"
    wait_until(lambda: spared in sandbox.call("clean").stdout, MAKING_S, "clean to name the maker")
    maker.kill()
    assert going.end().code == EXIT_ANOMALY
    sandbox.wait_until_nothing_is_left()
    assert list(cache.glob("spark-*.jsa")) == []
    assert not background.is_being_made()
