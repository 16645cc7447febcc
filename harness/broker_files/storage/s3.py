"""Objects in S3 and compatible storage, through Arrow's file system, with the settings of Hadoop's S3A.

Without keys, AWS's own chain is used: environment variables, profiles, roles of the host.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

    from harness.broker_files.storage.remote import ReadAt

SETTINGS = {
    "endpoint": "endpoint",
    "endpoint.region": "region",
    "access.key": "access_key",
    "secret.key": "secret_key",
    "session.token": "session_token",
    "path.style.access": "path_style",
    "connection.ssl.enabled": "tls",
}
"""Names after ``spark.hadoop.fs.s3a.``, or after ``spark.hadoop.fs.s3a.bucket.BUCKET.`` for one bucket, which win."""

_PREFIX = "spark.hadoop.fs.s3a."
_IS_FLAG = ("path_style", "tls")
_FLAGS = {"true": True, "false": False}
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_CONNECT_TIMEOUT_S = 10
_REQUEST_TIMEOUT_S = 60


@dataclass(frozen=True)
class S3:
    """A bucket, and how to reach it. ``endpoint`` None is AWS; ``path_style`` None is what suits the endpoint."""

    root: str
    bucket: str
    endpoint: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    path_style: bool | None = None
    tls: bool = True

    @property
    def advice(self) -> str:
        """See `remote.Storage`."""
        return f"{self.endpoint or 'AWS'} was asked: see --spark-conf {_PREFIX}endpoint, .access.key, .secret.key"

    def listing(self, folder: str) -> dict[str, int | None]:
        """See `remote.Storage`; a request returns a thousand names."""
        from pyarrow.fs import FileSelector  # noqa: PLC0415

        entries = _file_system(self).get_file_info(FileSelector(f"{self.bucket}{folder}"))
        return {one.base_name: one.size if one.is_file else None for one in entries}

    def opened(self, path: str) -> tuple[ReadAt, int]:
        """See `remote.Storage`; one request for the size, and one for each read."""
        file = _file_system(self).open_input_file(f"{self.bucket}{path}")

        def read_at(offset: int, buffer: memoryview) -> int:
            file.seek(offset)
            return int(file.readinto(buffer))

        return read_at, file.size()


def storage_of(url: SplitResult, conf: Mapping[str, str]) -> S3:
    """Return the bucket of a URI. Raises `UsageError` for a URI without a bucket, and for invalid flags."""
    bucket = url.netloc
    if not bucket:
        raise UsageError(f"{url.scheme}://{url.path}: name the bucket, as in {url.scheme}://BUCKET/PATH")
    options: dict[str, Any] = {}
    for name, ours in SETTINGS.items():
        value = conf.get(f"{_PREFIX}bucket.{bucket}.{name}", conf.get(f"{_PREFIX}{name}"))
        if value is not None:
            options[ours] = _flag(name, value) if ours in _IS_FLAG else value
    if bool(options.get("access_key")) != bool(options.get("secret_key")):
        raise UsageError(f"{url.geturl()}: give both {_PREFIX}access.key and {_PREFIX}secret.key, or neither")
    return S3(f"{url.scheme}://{bucket}", bucket, **options)


def _flag(name: str, text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise UsageError(f"{_PREFIX}{name} is {text}: give true or false")
    return _FLAGS[text.lower()]


@cache
def _file_system(storage: S3) -> Any:
    """Return Arrow's file system: one a process. Raises OSError where AWS does not return a bucket's region."""
    # Its threads do not survive a fork: the process that forks Spark's workers has none.
    from pyarrow.fs import S3FileSystem, resolve_s3_region  # noqa: PLC0415

    options: dict[str, Any] = {
        "access_key": storage.access_key,
        "secret_key": storage.secret_key,
        "session_token": storage.session_token,
        "region": storage.region,
        "scheme": "https" if storage.tls else "http",
    }
    if storage.endpoint is not None:
        url = urlsplit(storage.endpoint if "://" in storage.endpoint else f"//{storage.endpoint}")
        options |= {"endpoint_override": url.netloc, "force_virtual_addressing": storage.path_style is False}
        if url.scheme:
            options["scheme"] = url.scheme
    elif storage.region is None and not any(os.environ.get(name) for name in _REGIONS):
        options["region"] = resolve_s3_region(storage.bucket)
    return S3FileSystem(**options, connect_timeout=_CONNECT_TIMEOUT_S, request_timeout=_REQUEST_TIMEOUT_S)
