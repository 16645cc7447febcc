"""A remote storage in memory, which counts the requests."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest

from harness.broker_files import storage


@dataclass
class InMemoryFiles:
    """Implements the part of fsspec's file systems that `harness.broker_files.storage` needs."""

    files: Mapping[str, bytes]
    listed: list[str] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    failure: OSError | None = None

    def ls(self, folder: str, *, detail: bool) -> list[dict[str, Any]]:
        assert detail
        self.listed.append(folder)
        if self.failure:
            raise self.failure
        top = f"{folder.rstrip('/')}/"
        inside = {path.removeprefix(top): data for path, data in self.files.items() if path.startswith(top)}
        if not inside:
            raise FileNotFoundError(folder)
        kinds = {
            name.partition("/")[0]: ("directory", 0) if "/" in name else ("file", len(d)) for name, d in inside.items()
        }
        return [{"name": f"{top}{name}", "type": kind, "size": size} for name, (kind, size) in kinds.items()]

    def open(self, path: str, _mode: str, **_: Any) -> io.BytesIO:
        if path not in self.files:
            raise FileNotFoundError(path)
        asked, content = self.asked, self.files[path]

        class Recorded(io.BytesIO):
            def readinto(self, buffer: Any, /) -> int:
                asked.append(min(len(buffer), len(content) - self.tell()))
                return super().readinto(buffer)

            def read(self, size: int | None = -1, /) -> bytes:
                asked.append(len(content) - self.tell())
                return super().read(size)

        return Recorded(content)


def remote_path(
    monkeypatch: pytest.MonkeyPatch, files: InMemoryFiles, path: str, root: str = "mem://here", prefix: str = ""
) -> Path:
    """Return a path in these files, which are the only ones from now on."""
    monkeypatch.setattr(storage, "file_system_of", lambda _: files)
    stored = storage.Storage(root, prefix, "memory", (), "look there")
    return cast("Path", storage.RemotePath(PurePosixPath(path), stored))
