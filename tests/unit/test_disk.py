"""Disks of brokers are found below a folder of runs that is reached by a link, too."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from harness.host import disk


def test_a_disk_is_found_by_a_path_with_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = tmp_path / "disk" / "run" / "data"
    mounted.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [SimpleNamespace(mountpoint=str(mounted))])
    assert disk.mounted_below(tmp_path / "link" / "run") == [mounted]
