"""Paths on remote storage: the few methods of ``pathlib.Path`` that reading copies needs."""

from __future__ import annotations

import errno
import io
import re
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import PurePosixPath

_PATTERN = re.compile(r"[*?\[]")
READ_AHEAD_BYTES: Final = 4 << 20
"""The least to request at once where a reader asks for little: each request takes milliseconds."""


ReadAt: TypeAlias = "Callable[[int, memoryview], int]"
"""Reads a file from an offset on into a buffer that ends before the file does; returns the number of bytes."""


class Storage(Protocol):
    """A remote storage: a frozen dataclass, so that equal ones are one place.

    Every method raises ``OSError`` for any failure.
    """

    @property
    def root(self) -> str:
        """The prefix of a path, such as ``s3a://bucket``."""
        ...

    @property
    def advice(self) -> str:
        """What a user should check where the storage cannot be reached."""
        ...

    def listing(self, folder: str) -> dict[str, int | None]:
        """Return the content of a folder by name: the size of files in bytes, None for folders."""
        ...

    def opened(self, path: str) -> tuple[ReadAt, int]:
        """Open a file for reading; return its size in bytes, too."""
        ...


class Tree:
    """A storage with its listings cached: no folder is listed twice.

    Another process that receives the tree starts with an empty cache.
    """

    def __init__(self, storage: Storage) -> None:
        """Begin with an empty cache."""
        self.storage = storage
        self._listings: dict[str, Mapping[str, int | None]] = {}

    def __reduce__(self) -> tuple[type[Tree], tuple[Storage]]:
        return Tree, (self.storage,)

    def listing(self, folder: str) -> Mapping[str, int | None]:
        """Return as `Storage.listing` does."""
        if folder not in self._listings:
            self._listings[folder] = self.storage.listing(folder)
        return self._listings[folder]


@dataclass(frozen=True)
class Stat:
    """The known fields of ``os.stat_result``."""

    st_size: int


@dataclass(frozen=True, eq=False)
class RemotePath:
    """A path; ``pure`` is absolute. Errors are ``OSError`` with the whole URI and the storage's advice."""

    tree: Tree
    pure: PurePosixPath

    def __str__(self) -> str:
        return f"{self.tree.storage.root}{self.pure}"

    def __lt__(self, other: RemotePath) -> bool:
        return str(self) < str(other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.tree, self.pure / name)

    @property
    def name(self) -> str:
        """The last part."""
        return self.pure.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self.pure.stem

    @property
    def parent(self) -> RemotePath:
        """Its folder."""
        return RemotePath(self.tree, self.pure.parent)

    def absolute(self) -> RemotePath:
        """Return itself."""
        return self

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the content of this folder."""
        yield from (self / name for name in self._listed(self))

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield the content of this folder whose names match; a pattern has no folders of its own."""
        yield from (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def matches(self) -> list[RemotePath]:
        """Return the existing paths that match a path with patterns; the path itself where no part is a pattern."""
        if self.parent == self:
            return [self]
        folders = self.parent.matches()
        if not _PATTERN.search(self.name):
            return [path for folder in folders if (path := folder / self.name).exists()]
        return [path for folder in folders if folder.is_dir() for path in folder.glob(self.name)]

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        return self._among_siblings() == (True, None)

    def is_file(self) -> bool:
        """Whether it is a file."""
        is_there, size_bytes = self._among_siblings()
        return is_there and size_bytes is not None

    def exists(self) -> bool:
        """Whether it exists."""
        return self._among_siblings()[0]

    def stat(self) -> Stat:
        """Return its size; of a folder, 0."""
        is_there, size_bytes = self._among_siblings()
        if not is_there:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(self))
        return Stat(size_bytes or 0)

    def open(self, mode: str = "rb", buffering: int = -1) -> Any:
        """Open it to read bytes: with a read-ahead of `READ_AHEAD_BYTES`, or without where ``buffering`` is 0."""
        if mode != "rb":
            raise ValueError(f"mode {mode}: {self} is only read")
        with errors_with_path(self):
            raw = _RemoteFile(self, *self.tree.storage.opened(str(self.pure)))
        return raw if buffering == 0 else io.BufferedReader(raw, READ_AHEAD_BYTES)

    def read_bytes(self) -> bytes:
        """Return the whole content."""
        with self.open() as file:
            content: bytes = file.read()
        return content

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the whole content as text."""
        return self.read_bytes().decode(encoding, errors)

    def _listed(self, folder: RemotePath) -> Mapping[str, int | None]:
        with errors_with_path(folder):
            return self.tree.listing(str(folder.pure))

    def _among_siblings(self) -> tuple[bool, int | None]:
        """Return whether the path exists, and its entry in the folder's listing."""
        if self.parent == self:
            return True, None
        try:
            siblings = self._listed(self.parent)
        except FileNotFoundError:
            return False, None
        return self.name in siblings, siblings.get(self.name)


class _RemoteFile(io.RawIOBase):
    """An open file, unbuffered, whose errors include its path: a reader has the file only."""

    def __init__(self, path: RemotePath, read_at: ReadAt, size_bytes: int) -> None:
        self._path, self._read_at, self._size_bytes, self._position = path, read_at, size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")[: max(self._size_bytes - self._position, 0)]
        if view:
            with errors_with_path(self._path):
                count = self._read_at(self._position, view)
            self._position += count
            return count
        return 0

    def readall(self) -> bytes:
        """Return the rest of the file; Python's own method sends a request for each 8 KiB."""
        return b"".join(iter(lambda: self.read(READ_AHEAD_BYTES) or b"", b""))

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}
        self._position = starts[whence] + offset
        return self._position


@contextmanager
def errors_with_path(path: RemotePath) -> Iterator[None]:
    """Add the path to errors, and advice except where the file is just missing."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path)) from error
    except OSError as error:
        reason = " ".join((error.strerror or str(error)).split())
        raise OSError(error.errno or errno.EIO, f"{reason} ({path.tree.storage.advice})", str(path)) from error
