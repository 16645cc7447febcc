"""The host: bounded waits, commands that report in their own words, disks of brokers' own, and held ports."""

import errno
import fcntl
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from harness.errors import HarnessError, TimeLimitError, UsageError, WaitTimeoutError
from harness.host import commands, disk, ports
from harness.host.clock import RealClock
from harness.models.clock import VirtualClock


def test_a_wait_returns_the_first_true_value_or_fails_with_its_description() -> None:
    values = iter([0, None, "there"])
    assert RealClock().wait_until(lambda: next(values), 5, "it") == "there"
    assert RealClock().wait_until(lambda: True, 0, "it") is True
    with pytest.raises(WaitTimeoutError, match=r"timed out after 0\.1 s waiting for the moon"):
        RealClock().wait_until(lambda: False, 0.1, "the moon")
    with pytest.raises(TimeLimitError, match="waiting for the moon"):
        RealClock(time_limit_s=0.1).wait_until(lambda: False, 60, "the moon")


@pytest.mark.parametrize("clock_of", [RealClock, VirtualClock])
def test_a_routine_repeats_until_it_is_stopped(clock_of: Any) -> None:
    clock, done = clock_of(), list[int]()
    routine = clock.every(0.001, lambda: done.append(1), "counting")
    clock.wait_until(lambda: len(done) > 2, 5, "three of them")
    routine.stop()
    routine.raise_if_failed()
    stopped_at = len(done)
    with pytest.raises(WaitTimeoutError):
        clock.wait_until(lambda: len(done) > stopped_at, 0.1, "one more")


@pytest.mark.parametrize(("clock_of", "error", "words"), [
    (RealClock, ValueError("no"), "no"), (VirtualClock, ValueError("no"), "no"),
    (RealClock, TimeoutError(), "TimeoutError"),
])  # fmt: skip
def test_the_error_of_a_routine_is_reported_with_its_name(clock_of: Any, error: Exception, words: str) -> None:
    def fail() -> None:
        raise error

    clock = clock_of()
    routine = clock.every(0.001, fail, "counting")
    with pytest.raises(HarnessError, match=f"^counting failed: {words}$"):
        clock.wait_until(routine.raise_if_failed, 5, "it to fail")
    routine.stop()


def test_the_output_of_a_command_is_returned_and_one_that_is_missing_or_too_slow_is_an_error() -> None:
    assert commands.run("sh", "-c", "echo $WORD; echo warned >&2", variables={"WORD": "printed"}) == "printed\n"
    assert commands.run("sh", "-c", "echo version >&2") == "version\n", "as java does"
    assert commands.find("no-such-command") is None
    with pytest.raises(HarnessError, match=r"no-such-command"):
        commands.run("no-such-command")
    with pytest.raises(HarnessError, match=r"timed out after 0.1 seconds"):
        commands.run("sleep", "60", timeout_s=0.1)


@pytest.mark.parametrize(("script", "message"), [
    ("echo 'the network'; echo 'the network overlaps' >&2; exit 1", r"`sh -c .*`: the network overlaps$"),
    ("exit 3", r"exit code 3$"),
])  # fmt: skip
def test_a_failed_command_is_reported_with_the_reason(script: str, message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        commands.run("sh", "-c", script)


def test_mounts_below_a_folder_or_a_link_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = ("/run", "/work/a", "/work/a/data 2", "/workshop")
    partitions = [SimpleNamespace(mountpoint=place) for place in places]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: partitions)
    assert [str(place) for place in disk.mounted_below(Path("/work"))] == ["/work/a/data 2", "/work/a"]
    mounted = tmp_path / "disk" / "run" / "data"
    mounted.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [SimpleNamespace(mountpoint=str(mounted))])
    assert disk.mounted_below(tmp_path / "link" / "run") == [mounted]


@pytest.mark.needs("mount")
def test_a_disk_is_full_until_it_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "SIZE_MIB", 2)
    assert disk.why_impossible() is None
    folder = tmp_path / "broker" / "data"
    disk.mount(folder)
    try:
        (folder / "log").write_text("kept")
        disk.fill(folder)
        with pytest.raises(OSError, match="No space left") as full:
            (folder / "other").write_bytes(b"\0")
        assert full.value.errno == errno.ENOSPC
        disk.free(folder)
        (folder / "other").write_bytes(b"\0" * (1 << 20))
        assert (folder / "log").read_text() == "kept"
    finally:
        disk.unmount_below(tmp_path)
    assert disk.mounted_below(tmp_path) == []
    assert list(folder.iterdir()) == []


def test_output_that_is_not_text_is_no_failure() -> None:
    assert commands.run("printf", r"\377") == "\N{REPLACEMENT CHARACTER}"


def test_a_disk_is_impossible_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in str(disk.why_impossible())


def test_a_port_of_a_broker_that_is_down_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path))
    monkeypatch.setattr(ports, "_HELD", {})
    (port,) = ports.free_ports(1)
    assert ports.free_ports(1, base=port) == [port], "the run's own"
    # Another process has its own table.
    monkeypatch.setattr(ports, "_HELD", {})
    with pytest.raises(UsageError, match=f"port {port} on 127.0.0.1 is taken"):
        ports.free_ports(1, base=port)
    with (tmp_path / "ports" / str(port)).open() as lock, pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (tmp_path / "file").touch()
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path / "file"))
    assert len(ports.free_ports(3)) == 3, "a cache that cannot be written holds no port"
