"""Copies in S3 and HDFS: the same verdict as from a folder, and one sentence for what goes wrong."""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from expected import STUCK_LSO, TOMBSTONE_DIVERGENCE
from generate import LEGAL, generate
from pyspark.sql import SparkSession
from sandbox import Sandbox
from stores import BUCKET, KEYS, S3A, MiniHdfs, MotoS3, Store, mini_hdfs, moto_s3

from checkers.evidence.tables import load_copies
from checkers.reduction.reduce import reduce_copies
from harness.audit.judge_copies import assemble, judge_reduced, judge_whole
from harness.broker_files.copies.copies import Copies, find_copies
from harness.broker_files.storage import HTTP_ADDRESS
from harness.cli.audit import parse_brokers
from harness.errors import EXIT_ANOMALY, UsageError
from harness.json_codec import to_json
from harness.judge.verdict import ANOMALY
from harness.spark.source import register

CASES = ((STUCK_LSO, 0), (TOMBSTONE_DIVERGENCE, 0), (LEGAL, 1))
"""Two whose replicas have diverged, and a sound one."""
Places = dict[tuple[str, str], list[str]]
HERE, IN_S3, IN_HDFS, MIXED = "here", "s3", "hdfs", "mixed"


@pytest.fixture(scope="module")
def s3() -> Iterator[MotoS3]:
    with moto_s3() as store:
        yield store


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    with mini_hdfs(tmp_path_factory.mktemp("hdfs")) as store:
        yield store


@pytest.fixture(scope="module")
def conf(s3: MotoS3, hdfs: MiniHdfs) -> dict[str, str]:
    return {**s3.conf, **hdfs.conf}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, s3: MotoS3, hdfs: MiniHdfs) -> Places:
    """Return what ``--broker`` is given for each case and place."""
    stores: dict[str, Store | None] = {HERE: None, IN_S3: s3, IN_HDFS: hdfs}
    found: Places = {}
    for kind, seed in CASES:
        name, folders = f"{kind}-{seed}", generate(seed, kind).write(tmp_path_factory.mktemp("cases"))
        for where, store in stores.items():
            uris = {b: store.put(folder, f"{name}/{b}") if store else folder for b, folder in folders.items()}
            found[name, where] = [f"{broker}={uri}" for broker, uri in uris.items()]
        kinds = list(stores)
        found[name, MIXED] = [found[name, kinds[number % 3]][number] for number in range(len(folders))]
    return found


def copies_of(brokers: list[str], conf: Mapping[str, str], run_id: str = "a", topic: str = "*") -> Copies:
    return find_copies(parse_brokers(brokers, conf), [topic], run_id)


def test_the_verdict_is_that_of_folders(spark: SparkSession, places: Places, conf: dict[str, str]) -> None:
    copies = {key: copies_of(brokers, conf, "-".join(key)) for key, brokers in places.items()}
    whole = judge_whole(load_copies(spark, list(copies.values())))
    reduced = judge_reduced(reduce_copies(spark, list(copies.values()), tasks=2))
    for rows in (whole, reduced):
        assert rows["raised"] == []
        actual = {key: to_json(assemble(one, rows, timings_s={})) for key, one in copies.items()}
        for (name, where), verdict in actual.items():
            assert without_places(verdict) == without_places(actual[name, HERE]), (name, where)
        found = {name for (name, _), verdict in actual.items() if verdict["verdict"] == ANOMALY}
        assert found == {f"{kind}-{seed}" for kind, seed in CASES if kind != LEGAL}
        assert all(one["exposure"]["replicas"] for verdict in actual.values() for one in verdict["scenarios"])


def without_places(verdict: dict[str, Any]) -> dict[str, Any]:
    """Return a verdict without its run, and its notes without the paths of log directories."""
    notes = [re.sub(r"\S+(?=/meta\.properties| has no meta\.properties)", "…", note) for note in verdict["notes"]]
    return {name: value for name, value in {**verdict, "notes": notes}.items() if name != "run_id"}


def test_audits_of_all_three(
    sandbox: Sandbox, places: Places, conf: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = [word for broker in places[f"{STUCK_LSO}-0", MIXED] for word in ("--broker", broker)]
    config = sandbox.root / "harness.toml"
    config.write_text("\n".join(["[spark.conf]", *(f'"{name}" = "{value}"' for name, value in conf.items())]))
    monkeypatch.setenv("HARNESS_CONFIG", str(config))
    ran = sandbox.call("audit", "disk", "--topic", "*", *brokers, "--format", "json", code=EXIT_ANOMALY)
    (planted,) = generate(0, STUCK_LSO).expected
    actual = [(one["anomaly"], one["broker"], one["offset"]) for one in ran.verdict["findings"]]
    assert actual == [(planted.anomaly, planted.broker, planted.offset)]
    sandbox.wait_until_nothing_is_left()


def test_a_broker_with_several_disks(s3: MotoS3, conf: dict[str, str], tmp_path: Path) -> None:
    cases = (generate(seed, LEGAL) for seed in range(100))
    case = next(one for one in cases if not one.bare and all(len(copies) > 1 for copies in one.copies.values()))
    local, remote = [], []
    for broker, folder in case.write(tmp_path).items():
        disks = [tmp_path / f"{broker}-{number}" for number in (0, 1)]
        for number, disk in enumerate(disks):
            shutil.copytree(folder, disk)
            for other in [path for path in disk.glob("*-*") if path.is_dir() and not path.name.endswith(f"-{number}")]:
                shutil.rmtree(other)
            local.append(f"{broker}={disk}")
            remote.append(f"{broker}={s3.put(disk, f'disks/{disk.name}')}")
    pattern = f"{LEGAL}*"
    there, here = (copies_of(brokers, conf, topic=pattern).replicas for brokers in (remote, local))
    read, expected = ([(one.broker, one.place, one.segments) for one in replicas] for replicas in (there, here))
    assert read == expected
    assert len(there) == sum(map(len, case.copies.values()))


def test_the_data_source_reads_them_too(spark: SparkSession, places: Places, conf: dict[str, str]) -> None:
    register(spark)

    def rows(where: str) -> list[Any]:
        folder = places[f"{LEGAL}-1", where][0].partition("=")[2]
        source = spark.read.format("kafka-segments").options(**conf)
        return sorted(source.load(f"{folder}/{LEGAL}.*").drop("file").collect())

    assert rows(HERE)
    assert rows(IN_S3) == rows(IN_HDFS) == rows(HERE)


def test_each_folder_is_listed_once(s3: MotoS3, places: Places, conf: dict[str, str]) -> None:
    brokers = places[f"{LEGAL}-1", IN_S3]
    del s3.lines[:]
    copies = copies_of(brokers, conf)
    assert all(path.stat().st_size >= 0 for one in copies.replicas for path in one.logs)
    listed = [line for line in s3.lines if "list-type=2" in line]
    assert len(listed) == len(brokers) + len(copies.replicas)
    # The other requests are for the files with topic ids.
    assert len(s3.lines) - len(listed) <= 2 * len(copies.replicas)


def refused(brokers: list[str], conf: Mapping[str, str]) -> str:
    with pytest.raises(UsageError) as caught:
        copies_of(brokers, conf)
    (sentence,) = str(caught.value).splitlines()
    return sentence


@pytest.mark.parametrize(("uri", "expected"), [
    (f"s3a://{BUCKET}/away", f"broker 4 cannot be read: s3a://{BUCKET}/away: No such file or directory$"),
    ("s3://no-bucket/x", "broker 4 cannot be read: s3://no-bucket/x: .*The specified bucket does not exist"),
    ("hdfs://namenode/away", "broker 4 cannot be read: hdfs://namenode/away: No such file or directory$"),
])  # fmt: skip
def test_what_is_not_there_is_one_sentence(uri: str, expected: str, conf: dict[str, str]) -> None:
    assert re.search(expected, refused([f"4={uri}"], conf))


def test_refusals_are_named(s3: MotoS3, hdfs: MiniHdfs, conf: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    s3.ask_for_keys(known_only=True)
    try:
        sentence = refused([f"1=s3a://{BUCKET}/x"], conf)
    finally:
        s3.ask_for_keys(known_only=False)
    assert re.search(rf"broker 1 cannot be read: s3a://{BUCKET}/x: .*Access.* \({s3.url} was asked: see", sentence)
    assert KEYS[1] not in sentence
    hdfs.ask("PUT", "/private", "MKDIRS", permission="700")
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    sentence = refused(["1=hdfs://namenode/private"], conf)
    assert re.search(r"/private: AccessControlException: Permission denied.* \(WebHDFS .* as somebody: see", sentence)


@pytest.mark.parametrize(("uri", "setting", "expected"), [
    (f"s3a://{BUCKET}/x", f"{S3A}endpoint", "onnect.* \\(http://127.0.0.1:1 was asked"),
    ("hdfs://nn:8020/x", HTTP_ADDRESS, "Connection refused \\(WebHDFS was asked at http://127.0.0.1:1"),
])  # fmt: skip
def test_nobody_there_is_reported(uri: str, setting: str, expected: str, s3: MotoS3) -> None:
    address = "127.0.0.1:1" if setting == HTTP_ADDRESS else "http://127.0.0.1:1"
    sentence = refused([f"2={uri}"], {**s3.conf, setting: address})
    assert re.search(rf"the folder of broker 2 cannot be read: {uri}: .*{expected}", sentence)
