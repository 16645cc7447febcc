"""Storage that is not this host's: a server that speaks S3 (moto), and a small HDFS of Hadoop's own."""

import getpass
import logging
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import requests
from moto.server import ThreadedMotoServer
from pyarrow.fs import FileSelector, LocalFileSystem, S3FileSystem, copy_files

from harness.broker_files.storage import HTTP_ADDRESS
from harness.host import cache, clock, java
from harness.targets.jars import fetch_locked, materialise

LOOPBACK = "127.0.0.1"
BUCKET = "copies"
KEYS = ("a-key", "a-secret")
S3A = "spark.hadoop.fs.s3a."
BOOT_S = 120
END_S = 20
MINI_HDFS = "org.apache.hadoop.test.MiniDFSClusterManager"
HADOOP_JARS = """
    06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c org.apache.hadoop:hadoop-client-minicluster:3.5.0
    b7db3e60c5df1cd37c2995b3e0142e57487260706834e5325bbe0a5e683eedf1 org.apache.hadoop:hadoop-client-runtime:3.5.0
    cc59446ec9ebaceae56fdb8d8c21477766dc5d426325642151c796bec5c4e6b7 org.apache.hadoop:hadoop-client-api:3.5.0
    6d7a744e4027649fbb50895df9497d109f98c766a637062fe8d2eabbb3140ba4 commons-logging:commons-logging:1.3.5
    7b751d952061954d5abfed7181c1f645d336091b679891591d63329c622eb832 org.slf4j:slf4j-api:2.0.17
    d1bb81abfd9e03418306b4e6a3390c8db52c58372e749c2980ac29f0c08278f1 org.junit.jupiter:junit-jupiter-api:5.13.4
    1c25ca641ebaae44ff3ad21ca1b2ef68d0dd84bfeb07c4805ba7840899b77408 org.junit.platform:junit-platform-commons:1.13.4
    48e2df636cab6563ced64dcdff8abb2355627cb236ef0bf37598682ddf742f1b org.opentest4j:opentest4j:1.3.0
"""
"""The jars of a namenode and a datanode in one JVM, with the SHA-256 of each: about 105 MB, fetched once per user."""


class Store(Protocol):
    """The place of copies, and the settings with which they are read again."""

    @property
    def conf(self) -> Mapping[str, str]: ...

    def put(self, folder: Path, name: str) -> str:
        """Copy a folder with all that is in it, and return its URI."""


@dataclass(frozen=True)
class MotoS3:
    """A server of this process; ``lines`` has each request that it answered."""

    url: str
    lines: list[str]

    @property
    def conf(self) -> Mapping[str, str]:
        settings = {
            "endpoint": self.url, "endpoint.region": "us-east-1", "path.style.access": "true",
            "access.key": KEYS[0], "secret.key": KEYS[1],
        }  # fmt: skip
        return {f"{S3A}{name}": value for name, value in settings.items()}

    def put(self, folder: Path, name: str) -> str:
        copy_files(str(folder), f"{BUCKET}/{name}", LocalFileSystem(), self.files())
        return f"s3a://{BUCKET}/{name}"

    def files(self) -> S3FileSystem:
        keys = dict(zip(("access_key", "secret_key"), KEYS, strict=True))
        return S3FileSystem(**keys, endpoint_override=self.url, region="us-east-1", allow_bucket_creation=True)

    def ask_for_keys(self, *, known_only: bool) -> None:
        """Have the server refuse keys that it does not know, and it knows none; or take any."""
        answer = requests.post(f"{self.url}/moto-api/reset-auth", b"0" if known_only else b"inf", timeout=END_S)
        answer.raise_for_status()


@contextmanager
def moto_s3() -> Iterator[MotoS3]:
    """Start a server on a free port with one bucket, empty, and end it."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("werkzeug")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    server = ThreadedMotoServer(LOOPBACK, 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        store = MotoS3(f"http://{host}:{port}", lines)
        store.files().create_dir(BUCKET)
        yield store
    finally:
        server.stop()
        logger.removeHandler(handler)


@dataclass(frozen=True)
class MiniHdfs:
    """A namenode and a datanode. ``address``: host and port of the former's HTTP interface."""

    address: str

    @property
    def conf(self) -> Mapping[str, str]:
        return {HTTP_ADDRESS: self.address}

    def put(self, folder: Path, name: str) -> str:
        for file in LocalFileSystem().get_file_info(FileSelector(str(folder), recursive=True)):
            path = f"/{name}/{Path(file.path).relative_to(folder)}"
            if file.is_file:
                self.ask("PUT", path, "CREATE", Path(file.path).read_bytes())
            else:
                self.ask("PUT", path, "MKDIRS")
        return f"hdfs://namenode/{name}"

    def ask(self, method: str, path: str, operation: str, data: bytes = b"", **more: str) -> None:
        actual = {"op": operation, "user.name": getpass.getuser(), **more}
        where = f"http://{self.address}/webhdfs/v1{path}"
        answer = requests.request(method, where, params=actual, data=data, timeout=END_S)
        answer.raise_for_status()


@contextmanager
def mini_hdfs(work: Path) -> Iterator[MiniHdfs]:
    """Boot an HDFS of one datanode on free ports, and end it."""
    digests = {coordinate: sha256 for sha256, coordinate in map(str.split, HADOOP_JARS.strip().splitlines())}
    classpath = materialise(digests, cache.cache_root() / "jars" / "hadoop-minicluster-3.5.0", fetch_locked).classpath
    actual, log = work / "hdfs-site.xml", work / "hdfs.log"
    flags = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", f"-Dtest.build.data={work}")
    arguments = ("-format", "-datanodes", "1", "-nnport", "0", "-httpport", "0", "-writeConfig", str(actual))
    with log.open("wb") as file:
        command = [str(java.find_java().path), *flags, "-cp", classpath, MINI_HDFS, *arguments]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=work)
    try:
        clock.RealClock().wait_until(lambda: _http_address(actual, process, log), BOOT_S, "the namenode to be up")
        yield MiniHdfs(_http_address(actual, process, log) or "")
    finally:
        process.kill()
        process.wait(END_S)


def _http_address(settings_path: Path, process: subprocess.Popen[bytes], log: Path) -> str | None:
    """Return what the cluster wrote down once it was up, None before."""
    assert process.poll() is None, log.read_text()
    try:
        settings = ET.parse(settings_path).getroot()  # noqa: S314  (written here)
    except (FileNotFoundError, ET.ParseError):
        return None
    return next(one.findtext("value") for one in settings if one.findtext("name") == "dfs.namenode.http-address")
