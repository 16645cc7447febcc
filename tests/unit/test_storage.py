"""Remote paths, and the storage that a URI and settings describe."""

import pickle
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import metadata_logs as logs
import pytest
from fakes.storage import InMemoryFiles, remote_path

from harness.broker_files.segments.folder import end_of_segment, live_segments
from harness.broker_files.storage import AUTHENTICATION, AZURE_KEY, READ_AHEAD_BYTES, S3A, Storage, place
from harness.errors import UsageError

At = Callable[[InMemoryFiles, str], Path]
LOG = "00000000000000000007.log"


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    return partial(remote_path, monkeypatch)


@pytest.fixture
def storage() -> InMemoryFiles:
    return InMemoryFiles({
        f"/b/t-0/{LOG}": b"",
        "/b/t-0/00000000000000000007.snapshot": b"12",
        "/b/t-1/00000000000000000000.log": b"x" * 100,
        "/b/meta.properties": b"\xff",
    })  # fmt: skip


def test_a_path_does_what_reading_takes(storage: InMemoryFiles, at: At) -> None:
    top = at(storage, "/b")
    assert [(path.name, path.is_dir(), path.is_file()) for path in sorted(top.iterdir())] == [
        ("meta.properties", False, True), ("t-0", True, False), ("t-1", True, False),
    ]  # fmt: skip
    log = top / "t-0" / LOG
    assert (str(log), log.stem, log.parent, log.absolute()) == (f"mem://here/b/t-0/{LOG}", LOG[:-4], top / "t-0", log)
    assert [path.name for path in (top / "t-0").glob("*.snapshot")] == ["00000000000000000007.snapshot"]
    assert (top / "t-1" / "00000000000000000000.log").stat().st_size == 100
    assert [(top / name).exists() for name in ("t-0", "t-9", "t-9/x")] == [True, False, False]
    assert (top / "meta.properties").read_text(errors="replace") == "\ufffd"
    assert len({top / "t-0", top / "t-0", top}) == 2
    assert live_segments(top / "t-0").segments[0].log == LOG
    assert end_of_segment(log) == 7
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: 'mem://here/b/t-9'"):
        (top / "t-9").stat()
    with pytest.raises(ValueError, match="is only read"):
        log.open("wb")


def test_folders_are_listed_once_in_a_process(storage: InMemoryFiles, at: At) -> None:
    path = at(storage, "/b/t-0")
    for _ in range(2):
        assert (path / LOG).exists()
    assert storage.listed == ["/b/t-0"]
    sent = pickle.loads(pickle.dumps(path))  # noqa: S301
    assert sent == path
    assert (sent / LOG).exists()
    assert storage.listed == ["/b/t-0", "/b/t-0"]


def test_a_metadata_log(at: At) -> None:
    begin = [logs.topic("t"), logs.partition("t", 0, (1, 2))]
    files = {
        f"/copies/{logs.FOLDER}/{100:020}.log": logs.encode_log([logs.change("t", 0, leader=2)], first_offset=100),
        f"/copies/{logs.FOLDER}/{logs.snapshot_name(100)}": logs.encode_snapshot(begin),
    }
    metadata = logs.read_metadata_log(at(InMemoryFiles(files), f"/copies/{logs.FOLDER}"))
    assert [state.leader for state in metadata.histories["t", 0].states] == [1, 2]
    assert str(metadata.source) == f"mem://here/copies/{logs.FOLDER}"


def test_a_path_with_patterns(storage: InMemoryFiles, at: At) -> None:
    path: Any = at(storage, "/*/t-[01]/*.log")
    assert {str(match) for match in path.matches()} == {
        f"mem://here/b/t-0/{LOG}", "mem://here/b/t-1/00000000000000000000.log"
    }  # fmt: skip
    assert (path / "more").matches() == []


def test_no_more_is_read_than_is_asked_for_or_the_read_ahead(storage: InMemoryFiles, at: At) -> None:
    path = at(storage, "/b/t-1/00000000000000000000.log")
    with path.open("rb", buffering=0) as file:
        assert file.readinto(bytearray(30)) == 30
    assert storage.asked == [30]
    with path.open("rb") as file:
        file.seek(90)
        assert file.read(5) == b"x" * 5
        assert file.read(1) == b"x"
    assert storage.asked == [30, 10]

    content = bytes(range(256)) * (READ_AHEAD_BYTES // 256) + b"end"
    large = InMemoryFiles({"/b/x": content})
    assert at(large, "/b/x").read_bytes() == content
    assert large.asked == [len(content)], "a whole file takes one request"


def test_errors_name_the_path_and_what_to_look_at(at: At) -> None:
    failing = InMemoryFiles({}, failure=OSError("When listing\n  objects: no"))
    with pytest.raises(OSError, match=r"When listing objects: no \(look there\): 'mem://here/b'$"):
        list(at(failing, "/b").iterdir())
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: 'mem://here/b/x'$"):
        at(InMemoryFiles({}), "/b/x").open()


def test_folders_of_this_host_buckets_of_google_and_containers_of_azure() -> None:
    texts = ("a/b", "/a#b", "file:///a/b%20c", "1=a:b")
    assert list(map(place, texts)) == list(map(Path, ("a/b", "/a#b", "/a/b c", "1=a:b")))
    google: Any = place("gs://b/x")
    assert (str(google), google.storage.kind, google.storage.prefix) == ("gs://b/x", "GcsFileSystem", "b")
    assert google.storage.options == (("retry_time_limit", timedelta(seconds=60)),), "not a quarter of an hour"
    host = "account.dfs.core.windows.net"
    azure: Any = place(f"abfss://c@{host}/x", {f"{AZURE_KEY}{host}": "hidden"})
    assert (str(azure), azure.storage.kind, azure.storage.prefix) == (
        f"abfss://c@{host}/x", "AzureFileSystem", "c",
    )  # fmt: skip
    assert dict(azure.storage.options) == {"account_name": "account", "account_key": "hidden"}
    assert "hidden" not in repr(azure.storage)


@pytest.mark.parametrize(("text", "conf", "expected"), [
    ("ftp://b/x", {}, "a URI that begins with s3a://, s3://, hdfs://, webhdfs://, gs://, abfss:// or file://"),
    ("abfss://b/x", {}, "abfss://b/x: name the container and the account"),
    ("s3a:///x", {}, "s3a:///x: name the bucket"),
    ("s3a://b/x", {f"{S3A}path.style.access": "maybe"}, f"{S3A}path.style.access is maybe: give true or false"),
    ("s3a://b/x", {f"{S3A}access.key": "k"}, f"give both {S3A}access.key and {S3A}secret.key, or neither"),
    ("hdfs:///x", {}, "hdfs:///x: name the namenode"),
])  # fmt: skip
def test_what_is_no_place_is_one_sentence(text: str, conf: dict[str, str], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        place(text, conf)
    assert expected in str(caught.value)


def test_a_bucket_and_its_settings() -> None:
    conf = {
        f"{S3A}endpoint": "http://minio:9000", f"{S3A}path.style.access": "true", f"{S3A}access.key": "k",
        f"{S3A}connection.ssl.enabled": "False", f"{S3A}secret.key": "hidden",
        f"{S3A}bucket.other.endpoint": "elsewhere:1",
    }  # fmt: skip
    path: Any = place("s3a://b/x/y#1", conf)
    assert (str(path), str(path.pure)) == ("s3a://b/x/y#1", "/x/y#1")
    storage = path.storage
    options = {name: value for name, value in storage.options if value is not None and "timeout" not in name}
    assert options == {
        "endpoint_override": "minio:9000", "scheme": "http", "force_virtual_addressing": False,
        "access_key": "k", "secret_key": "hidden",
    }  # fmt: skip
    assert (storage.prefix, storage.kind) == ("b", "S3FileSystem")
    assert "hidden" not in repr(storage)
    other: Any = place("s3://other/x", conf)
    assert dict(other.storage.options)["endpoint_override"] == "elsewhere:1"


@pytest.mark.parametrize(("text", "conf", "protocol", "address"), [
    ("hdfs://nn:8020/x", {}, "http", "nn:9870"),
    ("hdfs://cluster/x", {"spark.hadoop.dfs.namenode.http-address": "nn1:50070"}, "http", "nn1:50070"),
    ("hdfs://nn/x", {"spark.hadoop.dfs.namenode.https-address": "nn:9871"}, "https", "nn:9871"),
    ("webhdfs://nn/x", {"spark.hadoop.dfs.namenode.http-address": "other:2"}, "http", "nn:9870"),
    ("webhdfs://nn:1/x", {"spark.hadoop.dfs.namenode.http-address": "other:2"}, "http", "nn:1"),
])  # fmt: skip
def test_namenodes(
    text: str, conf: dict[str, str], protocol: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "me")
    path: Any = place(text, conf)
    host, port = address.split(":")
    options = {"host": host, "port": port, "use_https": protocol == "https", "kerberos": False, "user": "me"}
    storage = path.storage
    assert storage == Storage(text.removesuffix("/x"), "", "WebHDFS", tuple(options.items()), "")
    assert storage.advice.startswith(f"WebHDFS was asked at {protocol}://{address} as me: see")
    kerberos: Any = place(text, {**conf, AUTHENTICATION: "kerberos"})
    assert options | {"kerberos": True, "user": None} == dict(kerberos.storage.options)
