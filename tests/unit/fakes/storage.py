"""Storage elsewhere, such as an object store."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class CountingFile(io.BytesIO):
    """A file that keeps how much it was asked for."""

    def __init__(self, content: bytes, asked: list[int]) -> None:
        super().__init__(content)
        self._asked = asked

    def readinto(self, buffer: Any, /) -> int:
        self._asked.append(len(buffer))
        return super().readinto(buffer)


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

    def opened(self, path: str) -> CountingFile:
        if path not in self.files:
            raise FileNotFoundError(path)
        return CountingFile(self.files[path], self.asked)
