"""Where copies of replicas are stored: folders of this host, S3, Google Cloud Storage, Azure, HDFS.

A `RemotePath` has the part of `pathlib.Path` that readers of segments use. fsspec reads HDFS over HTTP (WebHDFS), which
every namenode and datanode has; Arrow's file systems read the others. universal-pathlib does not fit: its `exists` and
`iterdir` take a storage that refuses for an empty one, and list a folder again at each call.
"""

# ruff: noqa: D102 (methods of `pathlib.Path`)

from __future__ import annotations

import errno
import getpass
import io
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import cache, partial
from glob import has_magic
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, Final, cast
from urllib.parse import SplitResult, unquote, urlsplit

from harness.errors import UsageError

S3A: Final = "spark.hadoop.fs.s3a."
PATH_STYLE, TLS = "path.style.access", "connection.ssl.enabled"
S3A_SETTINGS: Final = {
    "endpoint": "endpoint_override",
    "endpoint.region": "region",
    "access.key": "access_key",
    "secret.key": "secret_key",
    "session.token": "session_token",
    PATH_STYLE: None,
    TLS: None,
}
"""Names after `S3A`, or after `S3A` and ``bucket.BUCKET.`` for one bucket, which win; and Arrow's names of them."""
HTTP_ADDRESS: Final = "spark.hadoop.dfs.namenode.http-address"
HTTPS_ADDRESS: Final = "spark.hadoop.dfs.namenode.https-address"
AUTHENTICATION: Final = "spark.hadoop.hadoop.security.authentication"
AZURE_KEY: Final = "spark.hadoop.fs.azure.account.key."

RESOLVED: Final = "resolved"
"""Instead of a region: ask AWS for the bucket's region."""
READ_AHEAD_BYTES: Final = 4 << 20
"""The least to request at once where a reader asks for little: each request takes milliseconds."""

_CONNECT_TIMEOUT_S, _REQUEST_TIMEOUT_S = 10, 60


@dataclass(frozen=True)
class Storage:
    """A remote storage; equal ones are one place.

    ``root``: the prefix of a path for users, such as ``s3a://bucket``; ``prefix``: for the file system. ``kind``: a
    file system of `pyarrow.fs`, or ``WebHDFS``; ``options``: of it. ``advice``: what to check if no answer comes.
    """

    root: str = field(compare=False)
    prefix: str
    kind: str
    options: tuple[tuple[str, Any], ...] = field(repr=False)
    advice: str = field(compare=False)


@cache
def file_system_of(storage: Storage) -> Any:
    """Return the file system, as fsspec's: one a process, as threads do not survive the fork of Spark's workers.

    Raises OSError where AWS does not return a bucket's region, and without the package for Kerberos.
    """
    options = dict(storage.options)
    if storage.kind == "WebHDFS":
        from fsspec.implementations.webhdfs import WebHDFS  # noqa: PLC0415

        if options["kerberos"] and find_spec("requests_kerberos") is None:
            raise OSError("Kerberos needs a package: pip install 'compaction-harness[kerberos]'")
        files = WebHDFS(**options, skip_instance_cache=True)
        files.session.request = partial(files.session.request, timeout=(_CONNECT_TIMEOUT_S, _REQUEST_TIMEOUT_S))
        # fsspec does not look at the status of a datanode's answer.
        files.session.hooks["response"].append(_raise_for_error)
        return files
    import pyarrow.fs  # noqa: PLC0415
    from fsspec.implementations.arrow import ArrowFSWrapper  # noqa: PLC0415

    if options.get("region") == RESOLVED:
        options["region"] = pyarrow.fs.resolve_s3_region(storage.prefix)
    return ArrowFSWrapper(getattr(pyarrow.fs, storage.kind)(**options), skip_instance_cache=True)


@dataclass(frozen=True, order=True)
class RemotePath:
    """A path; ``pure`` is absolute. Errors are ``OSError`` with the whole URI and the storage's advice.

    ``listings``: of folders; no folder is listed twice by the paths of a process that come from one path.
    """

    pure: PurePosixPath
    storage: Storage
    listings: dict[PurePosixPath, dict[str, int | None]] = field(default_factory=dict, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[RemotePath], tuple[PurePosixPath, Storage]]:
        return RemotePath, (self.pure, self.storage)

    def __str__(self) -> str:
        return f"{self.storage.root}{self.pure}"

    def __truediv__(self, name: str) -> RemotePath:
        return replace(self, pure=self.pure / name)

    @property
    def name(self) -> str:
        return self.pure.name

    @property
    def stem(self) -> str:
        return self.pure.stem

    @property
    def parent(self) -> RemotePath:
        return replace(self, pure=self.pure.parent)

    def absolute(self) -> RemotePath:
        return self

    def listing(self) -> dict[str, int | None]:
        """Return the content of this folder by name: the size of files in bytes, None for folders."""
        if self.pure not in self.listings:
            path = f"{self.storage.prefix}{self.pure}".rstrip("/") or "/"
            with errors_with_path(self):
                entries = {e["name"].rstrip("/"): e for e in file_system_of(self.storage).ls(path, detail=True)}
                if path in entries:
                    raise NotADirectoryError(errno.ENOTDIR, "Not a directory")
            self.listings[self.pure] = {
                name.rpartition("/")[2]: entry["size"] if entry["type"] == "file" else None
                for name, entry in entries.items()
            }
        return self.listings[self.pure]

    def iterdir(self) -> Iterator[RemotePath]:
        yield from (self / name for name in self.listing())

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """Yield the content of this folder whose names match; a pattern has no folders of its own."""
        yield from (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def matches(self) -> list[RemotePath]:
        """Return the existing paths that match a path with patterns; the path itself where no part is a pattern."""
        if self.parent == self:
            return [self]
        folders = self.parent.matches()
        if not has_magic(self.name):
            return [path for folder in folders if (path := folder / self.name).exists()]
        return [path for folder in folders if folder.is_dir() for path in folder.glob(self.name)]

    def exists(self) -> bool:
        with suppress(FileNotFoundError):
            self._size_bytes()
            return True
        return False

    def is_dir(self) -> bool:
        return self.exists() and self._size_bytes() is None

    def is_file(self) -> bool:
        return self.exists() and self._size_bytes() is not None

    def stat(self) -> SimpleNamespace:
        """Return the size; of a folder, 0."""
        return SimpleNamespace(st_size=self._size_bytes() or 0)

    def open(self, mode: str = "rb", buffering: int = -1) -> Any:
        """Open it to read bytes: with a read-ahead of `READ_AHEAD_BYTES`, or without where ``buffering`` is 0."""
        if mode != "rb":
            raise ValueError(f"mode {mode}: {self} is only read")
        with errors_with_path(self):
            path = f"{self.storage.prefix}{self.pure}"
            raw = _RemoteFile(self, file_system_of(self.storage).open(path, "rb", cache_type="none"))
        return raw if buffering == 0 else io.BufferedReader(raw, READ_AHEAD_BYTES)

    def read_bytes(self) -> bytes:
        with self.open() as file:
            return bytes(file.read())

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def _size_bytes(self) -> int | None:
        """Return the size of a file; None for a folder."""
        try:
            return None if self.parent == self else self.parent.listing()[self.name]
        except (KeyError, FileNotFoundError) as error:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(self)) from error


class _RemoteFile(io.RawIOBase):
    """An open file, unbuffered, whose errors include its path: a reader has the file only."""

    def __init__(self, path: RemotePath, file: Any) -> None:
        self._path, self._file = path, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        with errors_with_path(self._path):
            return int(self._file.readinto(buffer))

    def readall(self) -> bytes:
        with errors_with_path(self._path):
            return bytes(self._file.read())

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._file.seek(offset, whence))


@contextmanager
def errors_with_path(path: RemotePath) -> Iterator[None]:
    """Add the path to errors, and advice except where the file is just missing."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path)) from error
    except OSError as error:
        cause: BaseException = error
        while error.errno is None and cause.__context__ is not None:
            cause = cause.__context__
        reason = " ".join((getattr(cause, "strerror", None) or str(cause)).split())
        raise OSError(error.errno or errno.EIO, f"{reason} ({path.storage.advice})", str(path)) from error


def place(text: str, conf: Mapping[str, str] | None = None) -> Path:
    """Return the path of a text: a folder or file of this host, or a URI with a scheme of `SCHEMES`, a `RemotePath`.

    ``conf`` are Spark's settings, of which those for Hadoop's file systems (``spark.hadoop.…``) apply here too. Raises
    `UsageError` for a URI of another kind, and for invalid settings. Sends no request yet.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Path(text)
    url = urlsplit(text)
    if scheme == "file":
        return Path(unquote(url.path))
    if scheme not in SCHEMES:
        raise UsageError(f"{text}: give a folder, or a URI that begins with {'://, '.join(SCHEMES)}:// or file://")
    # Keys may contain characters with a meaning in URLs, such as #: as in Hadoop, all after the host is the path.
    pure = PurePosixPath("/", rest.partition("/")[2])
    storage = SCHEMES[scheme](url, conf or {})
    return cast("Path", RemotePath(pure, storage))


def lineage(path: Path | RemotePath) -> Iterator[Hashable]:
    """Yield an identity of a folder that is independent of the path to it; then the identities of its parent folders.

    Symbolic links and bind mounts lead to the same device and inode, ``s3`` and ``s3a`` to the same place. Raises
    OSError for a missing folder of this host.
    """
    if isinstance(path, RemotePath):
        yield from ((path.storage, pure) for pure in (path.pure, *path.pure.parents))
    else:
        real = path.resolve()
        yield from ((result.st_dev, result.st_ino) for result in (folder.stat() for folder in (real, *real.parents)))


def _s3(url: SplitResult, conf: Mapping[str, str]) -> Storage:
    """Return a bucket, with the settings of Hadoop's S3A; without keys, AWS's own chain is used."""
    bucket = _bucket(url)
    settings = {name: conf.get(f"{S3A}bucket.{bucket}.{name}", conf.get(f"{S3A}{name}")) for name in S3A_SETTINGS}
    for name in (PATH_STYLE, TLS):
        if (value := settings[name]) is not None and value.lower() not in {"true", "false"}:
            raise UsageError(f"{S3A}{name} is {value}: give true or false")
    if bool(settings["access.key"]) != bool(settings["secret.key"]):
        raise UsageError(f"{url.geturl()}: give both {S3A}access.key and {S3A}secret.key, or neither")
    is_off = {name: (settings[name] or "").lower() == "false" for name in (PATH_STYLE, TLS)}
    options: dict[str, Any] = {ours: settings[name] for name, ours in S3A_SETTINGS.items() if ours}
    options |= {"connect_timeout": _CONNECT_TIMEOUT_S, "request_timeout": _REQUEST_TIMEOUT_S}
    options["scheme"] = "http" if is_off[TLS] else "https"
    if endpoint := settings["endpoint"]:
        scheme, _, address = endpoint.rpartition("://")
        options |= {"endpoint_override": address.rstrip("/"), "scheme": scheme or options["scheme"]}
        options["force_virtual_addressing"] = is_off[PATH_STYLE]
    elif not (options["region"] or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")):
        options["region"] = RESOLVED
    advice = f"{endpoint or 'AWS'} was asked: see --spark-conf {S3A}endpoint, .access.key, .secret.key"
    return Storage(f"{url.scheme}://{bucket}", bucket, "S3FileSystem", tuple(options.items()), advice)


def _gcs(url: SplitResult, _: Mapping[str, str]) -> Storage:
    advice = "Google Cloud Storage was asked with the application default credentials"
    # The client's own limit is a quarter of an hour for each request, also without credentials.
    options = (("retry_time_limit", timedelta(seconds=_REQUEST_TIMEOUT_S)),)
    return Storage(f"{url.scheme}://{_bucket(url)}", url.netloc, "GcsFileSystem", options, advice)


def _azure(url: SplitResult, conf: Mapping[str, str]) -> Storage:
    """Return a container of Azure Data Lake Storage, with its account's key, or Azure's default credentials."""
    container, at, host = url.netloc.partition("@")
    if not at:
        example = f"{url.scheme}://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"
        raise UsageError(f"{url.geturl()}: name the container and the account, as in {example}")
    options = (("account_name", host.partition(".")[0]), ("account_key", conf.get(f"{AZURE_KEY}{host}")))
    advice = f"{host} was asked: see --spark-conf {AZURE_KEY}{host}"
    return Storage(f"{url.scheme}://{url.netloc}", container, "AzureFileSystem", options, advice)


def _bucket(url: SplitResult) -> str:
    if not url.netloc:
        raise UsageError(f"{url.scheme}://{url.path}: name the bucket, as in {url.scheme}://BUCKET/PATH")
    return url.netloc


def _webhdfs(url: SplitResult, conf: Mapping[str, str]) -> Storage:
    """Return a namenode. The user is HADOOP_USER_NAME, else the user of this process; or Kerberos's own."""
    root, protocol, address = f"{url.scheme}://{url.netloc}", "http", f"{url.hostname}:9870"
    if url.scheme == "webhdfs" and url.netloc:
        address = url.netloc if ":" in url.netloc else address
    elif HTTPS_ADDRESS in conf:
        protocol, address = "https", conf[HTTPS_ADDRESS]
    elif HTTP_ADDRESS in conf:
        address = conf[HTTP_ADDRESS]
    elif not url.hostname:
        raise UsageError(f"{root}{url.path}: name the namenode, as in hdfs://HOST:PORT/PATH, or give {HTTP_ADDRESS}")
    host, _, port = address.rpartition(":")
    kerberos = conf.get(AUTHENTICATION) == "kerberos"
    user = None if kerberos else os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    options = {"host": host, "port": port, "use_https": protocol == "https", "kerberos": kerberos, "user": user}
    asked = f"WebHDFS was asked at {protocol}://{address} as {user or 'the user of Kerberos'}"
    advice = f"{asked}: see --spark-conf {HTTP_ADDRESS}, HADOOP_USER_NAME"
    return Storage(root, "", "WebHDFS", tuple(options.items()), advice)


def _raise_for_error(answer: Any, **_: Any) -> None:
    """Raise OSError with Hadoop's error message, if the answer has it. A client of Kerberos negotiates after a 401."""
    if answer.ok or answer.status_code == HTTPStatus.UNAUTHORIZED:
        return
    with suppress(ValueError, KeyError, TypeError):
        exception = answer.json()["RemoteException"]
        message = f"{exception['exception']}: {exception['message']}"
        raise (FileNotFoundError if answer.status_code == HTTPStatus.NOT_FOUND else OSError)(message)
    answer.raise_for_status()


SCHEMES: Final[Mapping[str, Callable[[SplitResult, Mapping[str, str]], Storage]]] = {
    "s3a": _s3,
    "s3": _s3,
    "hdfs": _webhdfs,
    "webhdfs": _webhdfs,
    "gs": _gcs,
    "abfss": _azure,
}
