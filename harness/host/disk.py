"""A separate disk for a broker's data, small enough to be filled: a file system in memory, mounted on its folder."""

import errno
import os
import tempfile
from pathlib import Path

import psutil

from harness.errors import HarnessError
from harness.host import commands

SIZE_MIB = 256
FILLER = "filler"
CHUNK = b"\0" * (1 << 20)


def mount(folder: Path) -> None:
    """Mount a disk of `SIZE_MIB` on the folder. Raises `HarnessError` with the reason of a failure."""
    folder.mkdir(parents=True, exist_ok=True)
    commands.run("mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "compaction-harness", str(folder))


def unmount_below(folder: Path) -> None:
    """Unmount every disk on the folder or below it. Raises `HarnessError`."""
    for place in mounted_below(folder):
        # Lazily, as a process that is about to end may still have a file open.
        commands.run("umount", "--lazy", str(place))


def mounted_below(folder: Path) -> list[Path]:
    """Return the mount points on the folder or below it, the deepest first. They are listed without symbolic links."""
    folder = folder.resolve()
    places = (Path(partition.mountpoint) for partition in psutil.disk_partitions(all=True))
    return sorted((place for place in places if place.is_relative_to(folder)), reverse=True)


def fill(folder: Path) -> None:
    """Fill the folder's disk completely."""
    with (folder / FILLER).open("ab", buffering=0) as file:
        for chunk in (CHUNK, CHUNK[:4096]):
            try:
                while file.write(chunk):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def free(folder: Path) -> None:
    """Delete the file that filled the folder's disk."""
    (folder / FILLER).unlink(missing_ok=True)


def why_impossible() -> str | None:
    """Mount and unmount a disk; return the reason why that is impossible, or None."""
    if os.geteuid() != 0:
        return "mounting a file system needs root: run as root"
    with tempfile.TemporaryDirectory() as probe:
        try:
            mount(Path(probe))
            unmount_below(Path(probe))
        except HarnessError as error:
            return str(error)
    return None
