"""The evidence of a run folder against the list in its manifest: each difference is reported."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from literal import History, appeared, delete, encode, put, replica, write_run
from pyspark.sql import SparkSession

from harness.errors import UsageError
from harness.host import leftovers
from harness.judge.check import prepare, read_afterwards, run_checkers
from harness.run_folder import inventory
from harness.run_folder.inventory import FIELD, EvidenceDifference, comparing, without
from harness.run_folder.manifest import Manifest, open_run_folder
from harness.run_folder.store import AFTER_REJOIN, APPLICATIONS, RunFolder

SCENARIO = {
    "name": "t", "anomaly": "tombstone-divergence", "payload": "value", "topic": "t",
    "replicas": {"0": [1, 2, 3]}, "critical": ["tombstone"],
}  # fmt: skip
LOG = (put(0, "K"), put(1, "L"))
SEGMENT = f"brokers/2/{AFTER_REJOIN}/t-0/{0:020}.log"
APPLICATIONS_DIGEST = "6094a8b4543aebf78e91cbe1fea1635f"
SERVED = f"fetched/2/{AFTER_REJOIN}/t-0"


def run_of(top: Path, *, status: str = "complete") -> Manifest:
    """Write a finished run in which three brokers agree, but not how it ended."""
    seen = tuple(appeared(1, one) for one in LOG)
    folder = write_run(top, History("run", wrote=LOG, after=tuple(replica(b, *LOG) for b in (1, 2, 3)), seen=seen))
    owner = leftovers.owner_of_this_process("run", folder.path)
    content: dict[str, Any] = {
        "run_id": "run", "target": {"name": "kafka-4.4"}, "anomaly": "all", "nemesis": "kill", "absent_brokers": [2],
        "control": "control", "scenarios": [SCENARIO], "status": status, "failure": None, "timings_s": {},
        "owner": {**owner, "pid": 1, "started_s": 0.0},
    }  # fmt: skip
    return Manifest(folder, content)


@pytest.fixture
def begun(tmp_path: Path) -> Manifest:
    return run_of(tmp_path)


@pytest.fixture
def ended(begun: Manifest) -> Manifest:
    begun.finish("complete", {})
    return begun


def differences(manifest: Manifest, *, partial: bool = True) -> tuple[EvidenceDifference, ...]:
    with comparing(manifest.folder, manifest.content, partial=partial) as found:
        return found()


def refusal(manifest: Manifest, *, partial: bool = False) -> str:
    with pytest.raises(UsageError) as caught:
        differences(manifest, partial=partial)
    return str(caught.value)


def change(path: Path) -> None:
    """Give a file other content of the same size."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def test_the_manifest_lists_what_checkers_read(begun: Manifest) -> None:
    path = begun.folder.path
    derived = ("harness.log", "verdict.json", "outcomes.jsonl", "report.html", "topology.svg")
    for name in (*derived, "applications.jsonl", "guard.jsonl"):
        (path / name).write_text(name)
    (path / "logs" / "1").mkdir(parents=True)
    (path / "logs" / "1" / "server.log").write_text("boot")
    begun.finish("complete", {})
    listed = json.loads(begun.folder.manifest_path.read_text())[FIELD]
    evidence = [one for top in ("brokers", "fetched") for one in (path / top).rglob("*") if one.is_file()]
    names = {one.relative_to(path).as_posix() for one in evidence}
    assert set(listed) == names | {"history.jsonl", "observations.jsonl", "applications.jsonl", "guard.jsonl"}
    assert {SEGMENT, f"{SERVED}/state.json", f"brokers/1/{AFTER_REJOIN}/meta.properties"} <= names
    # By coreutils: printf applications.jsonl | b2sum --length 128
    assert listed["applications.jsonl"] == {"size_bytes": 18, "blake2b": APPLICATIONS_DIGEST}


def test_what_comes_later_is_no_difference(ended: Manifest, tmp_path: Path) -> None:
    """Derived files may change, logs grow, folders move, and file systems and desktops add files."""
    path = ended.folder.path
    for name in ("harness.log", "verdict.json", "outcomes.jsonl", "report.html", "applications.jsonl"):
        (path / name).write_text("later")
    (path / "brokers" / "1" / ".DS_Store").write_bytes(b"\0")
    moved = path.rename(tmp_path / "moved")
    assert differences(Manifest(RunFolder(moved), ended.content), partial=False) == ()


def lose(path: Path, *names: str) -> None:
    for name in names:
        (shutil.rmtree if (path / name).is_dir() else os.unlink)(path / name)


def put_a_folder_in_place(path: Path) -> None:
    lose(path, SEGMENT)
    (path / SEGMENT).mkdir()


SIZE, OTHER = len(encode(LOG)), "has other content than the run wrote"
NO_FETCHED, NO_OBSERVATIONS = "fetched is missing (6 files)", "observations.jsonl is missing"
ADDED = SEGMENT.replace(f"{0:020}", f"{9:020}")
DAMAGES: list[tuple[Callable[[Path], object], list[str]]] = [
    (lambda path: lose(path, "fetched"), [NO_FETCHED]),
    (lambda path: lose(path, "observations.jsonl"), [NO_OBSERVATIONS]),
    (lambda path: lose(path, "fetched", "observations.jsonl"), [NO_FETCHED, NO_OBSERVATIONS]),
    (lambda path: lose(path, f"brokers/2/{AFTER_REJOIN}"), [f"brokers/2/{AFTER_REJOIN} is missing (6 files)"]),
    (lambda path: lose(path, SEGMENT), [f"{SEGMENT} is missing"]),
    (put_a_folder_in_place, [f"{SEGMENT} is missing"]),
    (lambda path: os.truncate(path / SEGMENT, 10), [f"{SEGMENT} has 10 bytes, not the {SIZE} that the run wrote"]),
    (lambda path: shutil.copy(path / SEGMENT, path / ADDED), [f"{ADDED} was not written by the run"]),
    (lambda path: change(path / SEGMENT), [f"{SEGMENT} {OTHER}"]),
    (lambda path: change(path / SERVED / "state.json"), [f"{SERVED}/state.json {OTHER}"]),
    (lambda path: change(path / "history.jsonl"), [f"history.jsonl {OTHER}"]),
]


@pytest.mark.parametrize(("damage", "named"), DAMAGES, ids=["; ".join(named) for _, named in DAMAGES])
def test_what_differs_is_named(ended: Manifest, damage: Callable[[Path], object], named: list[str]) -> None:
    damage(ended.folder.path)
    message = refusal(ended)
    assert message.startswith(f"the run folder is damaged: {ended.folder.path}: {'; '.join(named)}")
    hint = "no replica can be judged" if "history" in named[0] else "`harness check --partial` judges the rest"
    assert hint in message
    if "history" not in named[0]:
        assert [str(one) for one in differences(ended)] == named


def test_some_of_many_are_named(ended: Manifest) -> None:
    for path in ended.folder.path.glob("brokers/*/*/*"):
        if path.is_file():
            path.unlink()
    assert "; and 7 more; " in refusal(ended)


def test_contents_of_big_runs_are_compared_later(ended: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    change(ended.folder.path / SEGMENT)
    monkeypatch.setattr(inventory, "HEAD_START_S", 0)
    monkeypatch.setattr(inventory, "wait", lambda futures, _: type("Waited", (), {"not_done": set(futures)}))
    with comparing(ended.folder, ended.content) as found, pytest.raises(UsageError, match="has other content"):
        found()


def test_without_a_history_nobody_is_called_wrong(ended: Manifest) -> None:
    (ended.folder.path / "history.jsonl").unlink()
    folders = (f"--broker {broker}={ended.folder.path}/brokers/{broker}/{AFTER_REJOIN}" for broker in (1, 2, 3))
    assert refusal(ended, partial=True).endswith(
        f"history.jsonl is missing: without the clients' history, no replica can be judged; "
        f"compare the replicas with each other: harness audit disk --topic '*' {' '.join(folders)}"
    )


@pytest.mark.parametrize("status", ["running", "failed"])
def test_an_interrupted_run_without_a_list_needs_its_history_only(tmp_path: Path, status: str) -> None:
    run = run_of(tmp_path, status=status)
    shutil.rmtree(run.folder.path / "brokers")
    (run.folder.path / "observations.jsonl").unlink()
    assert differences(run, partial=False) == ()
    (run.folder.path / "history.jsonl").unlink()
    os.mkfifo(run.folder.path / "history.jsonl")
    assert "history.jsonl is missing" in refusal(run)


@pytest.mark.parametrize(
    "listed", [None, [], {"history.jsonl": 1}, {"history.jsonl": {"size_bytes": "x", "blake2b": ""}}]
)
def test_a_list_that_is_none(begun: Manifest, listed: Any) -> None:
    begun.content[FIELD] = listed
    assert "has no list of files as evidence" in refusal(begun)


def test_a_manifest_with_other_content(ended: Manifest) -> None:
    manifest = ended.folder.manifest_path
    folder, content = open_run_folder(ended.folder.path)
    assert (folder.path, content) == (ended.folder.path, json.loads(manifest.read_text()))
    manifest.write_text(manifest.read_text().replace('"nemesis": "kill"', '"nemesis": "none"'))
    with pytest.raises(UsageError, match=r"manifest\.json has other content than the run wrote"):
        open_run_folder(ended.folder.path)
    manifest.unlink()
    os.mkfifo(manifest)
    with pytest.raises(UsageError, match=r"it has no manifest\.json"):
        open_run_folder(ended.folder.path)


def test_a_run_that_goes_on_lists_its_evidence_anew(ended: Manifest) -> None:
    before = ended.content[FIELD]
    ended.go_on()
    assert FIELD not in json.loads(ended.folder.manifest_path.read_text())
    with ended.folder.history_path.open("a") as file:
        file.write("{}\n")
    ended.finish("complete", {})
    after = json.loads(ended.folder.manifest_path.read_text())[FIELD]
    assert after["history.jsonl"]["size_bytes"] == before["history.jsonl"]["size_bytes"] + 3
    assert differences(ended, partial=False) == ()


@pytest.mark.parametrize(("path", "left_out", "concerned"), [
    ("observations.jsonl", "observations.jsonl", ["t", "u"]),
    ("fetched", "fetched", ["t", "u"]),
    ("brokers/2/after-rejoin", "brokers/2/after-rejoin", ["t", "u"]),
    ("brokers/2/after-rejoin/meta.properties", "brokers/2/after-rejoin/meta.properties", ["t", "u"]),
    ("brokers/2/after-rejoin/t-0", "brokers/2/after-rejoin/t-0", ["t"]),
    ("brokers/2/after-rejoin/t-0/0.log", "brokers/2/after-rejoin/t-0", ["t"]),
    ("fetched/2/after-rejoin/u-11/state.json", "fetched/2/after-rejoin/u-11", ["u"]),
    ("applications.jsonl", "applications.jsonl", []),
])  # fmt: skip
def test_what_is_left_out_and_whom_it_concerns(path: str, left_out: str, concerned: list[str]) -> None:
    """A replica with a missing file is omitted: otherwise the records of the file would seem to be missing."""
    for is_extra in (False, True):
        difference = EvidenceDifference(path, "is different", is_extra=is_extra)
        assert difference.left_out == (path if is_extra else left_out), "what the run did not write is left out alone"
        topics = [topic for topic in ("t", "u") if difference.concerns(topic, ("t", "u", "control"))]
        assert topics == ([] if is_extra else concerned)


def test_an_application_that_differs_is_not_reported(begun: Manifest) -> None:
    (begun.folder.path / "applications.jsonl").write_text('{"step": "found"}\n')
    begun.finish("complete", {})
    assert len(read_afterwards(begun.folder, APPLICATIONS)) == 1
    change(begun.folder.path / "applications.jsonl")
    assert read_afterwards(without(begun.folder, differences(begun)), APPLICATIONS) == []


DELETED = (put(0, "K"), delete(1, "K"), put(2, "L"))


@pytest.mark.parametrize("is_served", [True, False], ids=["served", "not served"])
def test_a_replica_with_a_lost_segment_is_not_accused(spark: SparkSession, tmp_path: Path, *, is_served: bool) -> None:
    replicas = tuple(replica(broker, *DELETED) for broker in (1, 2, 3))
    folder = write_run(tmp_path, History("run", wrote=DELETED, after=replicas))
    manifest = Manifest(folder, {"status": "complete", "scenarios": [SCENARIO]})
    # K's last record on broker 2 is in a separate segment.
    segment = folder.path / SEGMENT
    lost = segment.with_name(f"{1:020}.log")
    segment.write_bytes(encode(DELETED[:1]))
    lost.write_bytes(encode(DELETED[1:]))
    manifest.list_evidence()
    lost.write_bytes(encode(DELETED[2:]))
    if not is_served:
        shutil.rmtree(folder.path / SERVED)
    sound = without(folder, differences(manifest))
    accused = run_checkers(prepare(spark, [folder]))
    assert [finding.broker for finding in accused.findings] == [2], "the lost segment shows, as it is read"
    judged = run_checkers(prepare(spark, [sound]))
    assert (judged.findings, judged.doubts, judged.raised) == ([], [], {})


def test_a_former_verdict_is_kept_where_it_differs(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.keep_former_verdict({"verdict": "clean"}) is None
    folder.write_json(folder.verdict_path, {"verdict": "anomaly"})
    assert folder.keep_former_verdict({"verdict": "anomaly"}) is None
    os.utime(folder.verdict_path, (1_000_000_000, 1_000_000_000))
    for name in ("verdict-2001-09-09T01-46-40Z.json", "verdict-2001-09-09T01-46-40Z-2.json"):
        assert folder.keep_former_verdict({"verdict": "unknown"}) == tmp_path / name
        assert json.loads((tmp_path / name).read_text()) == {"verdict": "anomaly"}
    folder.verdict_path.write_text('{"verd')
    kept = folder.keep_former_verdict({"verdict": "unknown"})
    assert kept
    assert kept.read_text() == '{"verd'
    folder.verdict_path.unlink()
    os.mkfifo(folder.verdict_path)
    assert folder.keep_former_verdict({"verdict": "unknown"}) is None
