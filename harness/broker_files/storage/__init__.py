"""Where copies of replicas are stored: folders of this host, S3, HDFS.

Each storage is a tree of paths with the part of `pathlib.Path` that readers of segments use; readers need not know
which storage it is. The files are parsed in `harness.broker_files.segments`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from harness.broker_files.storage import s3, webhdfs
from harness.broker_files.storage.remote import RemotePath, Tree
from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

_SCHEMES: Mapping[str, Any] = {
    "s3a": s3.storage_of, "s3": s3.storage_of, "hdfs": webhdfs.storage_of, "webhdfs": webhdfs.storage_of,
}  # fmt: skip


def place(text: str, conf: Mapping[str, str] | None = None) -> Path:
    """Return the path of a text: a folder or file of this host, or ``s3a://``, ``s3://``, ``hdfs://``.

    ``conf`` are Spark's settings, of which those for Hadoop's file systems (``spark.hadoop.…``) apply here too. A path
    elsewhere is a `RemotePath`, with the methods of ``Path`` that reading needs; it sends no request yet. Raises
    `UsageError` for a URI of another kind, and for invalid settings.
    """
    scheme, separator, _ = text.partition("://")
    if not separator:
        return Path(text)
    url = urlsplit(text)
    if scheme == "file":
        return Path(unquote(url.path))
    if scheme not in _SCHEMES:
        raise UsageError(f"{text}: give a folder, or a URI that begins with {'://, '.join(_SCHEMES)}:// or file://")
    # Keys may contain characters with a meaning in URLs, such as #: as in Hadoop, all after the host is the path.
    pure = PurePosixPath("/", text.partition("://")[2].partition("/")[2])
    return cast("Path", RemotePath(Tree(_SCHEMES[scheme](url, conf or {})), pure))


def lineage(path: Path | RemotePath) -> Iterator[Hashable]:
    """Yield an identity of a folder that is independent of the path to it; then the identities of its parent folders.

    For a folder of this host, the device and the inode: symbolic links and bind mounts lead to the same. Elsewhere, the
    place without the scheme: ``s3`` and ``s3a`` lead to the same. Raises OSError for a missing folder.
    """
    if isinstance(path, RemotePath):
        storage: Any = path.tree.storage
        place = replace(storage, root="")
        yield from ((place, pure) for pure in (path.pure, *path.pure.parents))
        return
    real = path.resolve()
    for folder in (real, *real.parents):
        stat = folder.stat()
        yield stat.st_dev, stat.st_ino
