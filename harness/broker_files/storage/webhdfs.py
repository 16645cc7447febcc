"""Files in HDFS, through its HTTP interface (WebHDFS), which every namenode and datanode has: no native library.

The user is HADOOP_USER_NAME, else the user of this process. Kerberos and delegation tokens are not supported.
"""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import requests

from harness.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

    from harness.broker_files.storage.remote import ReadAt

HTTP_ADDRESS = "spark.hadoop.dfs.namenode.http-address"
HTTPS_ADDRESS = "spark.hadoop.dfs.namenode.https-address"
HTTP_PORT = 9870
_TIMEOUT_S = (10.0, 60.0)
_FOLDER = "DIRECTORY"


@dataclass(frozen=True)
class WebHdfs:
    """A namenode. ``address``: of its HTTP interface, ``http://host:port``."""

    root: str
    address: str
    user: str

    @property
    def advice(self) -> str:
        """See `remote.Storage`."""
        return f"WebHDFS was asked at {self.address} as {self.user}: see --spark-conf {HTTP_ADDRESS}, HADOOP_USER_NAME"

    def listing(self, folder: str) -> dict[str, int | None]:
        """See `remote.Storage`; one request."""
        answer = self._ask("LISTSTATUS", folder).json()
        return {
            one["pathSuffix"]: None if one["type"] == _FOLDER else one["length"]
            for one in answer["FileStatuses"]["FileStatus"]
            if one["pathSuffix"]  # empty where the path itself is a file
        }

    def opened(self, path: str) -> tuple[ReadAt, int]:
        """See `remote.Storage`; one request for the size, and one for each read, to a datanode."""

        def read_at(offset: int, buffer: memoryview) -> int:
            content = self._ask("OPEN", path, offset=offset, length=len(buffer)).content
            buffer[: len(content)] = content
            return len(content)

        return read_at, self._ask("GETFILESTATUS", path).json()["FileStatus"]["length"]

    def _ask(self, operation: str, path: str, **parameters: int) -> requests.Response:
        query: dict[str, str | int] = {"op": operation, "user.name": self.user, **parameters}
        try:
            answer = requests.get(f"{self.address}/webhdfs/v1{quote(path)}", query, timeout=_TIMEOUT_S)
        except requests.ConnectionError as error:
            raise OSError(str(_innermost(error))) from error
        if answer.ok:
            return answer
        message = _exception(answer)
        if answer.status_code == requests.codes.not_found and message is not None:
            raise FileNotFoundError(message)
        raise OSError(message or f"HTTP {answer.status_code} {answer.reason}")


def storage_of(url: SplitResult, conf: Mapping[str, str]) -> WebHdfs:
    """Return the namenode of a URI. Raises `UsageError` for a URI without a namenode."""
    user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    root = f"{url.scheme}://{url.netloc}"
    if url.scheme == "webhdfs" and url.netloc:
        return WebHdfs(root, f"http://{url.netloc}", user)
    if HTTPS_ADDRESS in conf:
        return WebHdfs(root, f"https://{conf[HTTPS_ADDRESS]}", user)
    if HTTP_ADDRESS in conf:
        return WebHdfs(root, f"http://{conf[HTTP_ADDRESS]}", user)
    if not url.hostname:
        raise UsageError(f"{root}{url.path}: name the namenode, as in hdfs://HOST:PORT/PATH, or give {HTTP_ADDRESS}")
    return WebHdfs(root, f"http://{url.hostname}:{HTTP_PORT}", user)


def _innermost(error: BaseException) -> BaseException:
    while error.__context__ is not None:
        error = error.__context__
    return error


def _exception(answer: requests.Response) -> str | None:
    """Return Hadoop's error message, None where the answer is not Hadoop's."""
    try:
        exception = answer.json()["RemoteException"]
        return f"{exception['exception']}: {exception['message']}"
    except (ValueError, KeyError, TypeError):
        return None
