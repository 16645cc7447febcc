"""Storage elsewhere, such as an object store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.broker_files.storage.remote import ReadAt


@dataclass(frozen=True)
class InMemoryStorage:
    """Implements `Storage` of these files, which counts what it is asked for."""

    files: Mapping[str, bytes]
    listed: list[str] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    failure: OSError | None = None
    root: str = "mem://here"
    advice: str = "look there"

    def listing(self, folder: str) -> dict[str, int | None]:
        self.listed.append(folder)
        if self.failure:
            raise self.failure
        top = folder.rstrip("/") + "/"
        inside = {path.removeprefix(top): data for path, data in self.files.items() if path.startswith(top)}
        if not inside:
            raise FileNotFoundError(folder)
        return {name.partition("/")[0]: None if "/" in name else len(data) for name, data in inside.items()}

    def opened(self, path: str) -> tuple[ReadAt, int]:
        if path not in self.files:
            raise FileNotFoundError(path)
        content = self.files[path]

        def read_at(offset: int, buffer: memoryview) -> int:
            self.asked.append(len(buffer))
            part = content[offset : offset + len(buffer)]
            buffer[: len(part)] = part
            return len(part)

        return read_at, len(content)
