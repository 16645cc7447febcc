"""Disks of brokers' own: found where they are mounted, filled to the last byte and freed again."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from harness.host import disk


def test_mounts_below_a_folder_are_found_the_deepest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ("/run", "/work/a", "/work/a/data 2", "/workshop")
    partitions = [SimpleNamespace(mountpoint=place) for place in places]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: partitions)
    assert [str(place) for place in disk.mounted_below(Path("/work"))] == ["/work/a/data 2", "/work/a"]


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


def test_a_disk_is_impossible_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in str(disk.why_impossible())
