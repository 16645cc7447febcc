"""Disks of brokers' own: found where they are mounted, filled to the last byte and freed again."""

import errno
import os
from pathlib import Path

import pytest

from harness.host import disk


def test_mounts_below_a_folder_are_found_the_deepest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    places = ("/run", "/work/a", "/work/a/data\\0402", "/workshop")
    mounts.write_text("".join(f"tmpfs {place} tmpfs rw 0 0\n" for place in places))
    monkeypatch.setattr(disk, "MOUNTS", mounts)
    root = type(tmp_path)("/work")
    assert [str(place) for place in disk.mounted_below(root)] == ["/work/a/data 2", "/work/a"]


def test_unreadable_mounts_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MOUNTS", tmp_path / "nowhere")
    assert disk.mounted_below(tmp_path) == []


@pytest.mark.needs("mount")
def test_a_disk_is_full_until_it_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "SIZE_MIB", 2)
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


@pytest.mark.needs("mount")
def test_a_disk_is_possible_as_root() -> None:
    assert disk.why_impossible() is None


def test_a_disk_is_impossible_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in str(disk.why_impossible())
