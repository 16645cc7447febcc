"""The effect of a power failure on a broker's files, and the notes of an agent in a JVM about synced files."""

import os
from pathlib import Path

import pytest
from java_cases import agent, classpath_of, compile_java, run_java
from sample_logs import small_batch as batch

from harness.errors import HarnessError
from harness.host.java import find_java
from harness.runtimes import power
from harness.runtimes.power import Cut, LostRecords, cut_unsynced, find_unsynced

LOG = "t-0/00000000000000000007.log"


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ("", {}),
        ("sync 10 t-0/a|sync 25 t-0/a", {"t-0/a": 25}),
        ("sync 25 a|sync 10 a", {"a": 25}),
        ("sync 25 a|truncate 10 a", {"a": 10}),
        ("sync 25 a|truncate 90 a", {"a": 25}),
        ("truncate 10 a", {}),
        ("sync 25 a|truncate 10 a|sync 12 a", {"a": 12}),
        ("sync 25 a|remove a", {}),
        ("remove a", {}),
        ("sync 8 a.tmp|rename a.tmp a", {"a": 8}),
        ("sync 9 a|sync 8 a.tmp|rename a.tmp a", {"a": 8}),
        ("sync 9 a|rename a.tmp a", {}),
        ("sync 1 t-0/a|sync 2 t-0/b|sync 3 t-01/a|rename t-0 t-0.x", {"t-0.x/a": 1, "t-0.x/b": 2, "t-01/a": 3}),
        ("sync 5 a.cleaned|rename a.cleaned a.swap|rename a a.deleted|rename a.swap a|remove a.deleted", {"a": 5}),
        ("sync 0 a", {"a": 0}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_notes_give_the_synced_lengths(notes: str, expected: dict[str, int]) -> None:
    text = "".join("\t".join(note.split(" ")) + "\n" for note in notes.split("|") if note)
    assert power.read_synced(text) == expected
    assert power.read_synced(f"{text}sync\t99\tt-0") == expected, "a line that was not written whole"


@pytest.mark.parametrize("line", ["written\t3\ta", "sync\tmuch\ta", "sync\t3", "rename\ta", ""])
def test_malformed_notes_are_rejected(line: str) -> None:
    with pytest.raises(HarnessError, match="have a wrong line 2"):
        power.read_synced(f"sync\t3\ta\n{line}\n")


def write(data: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(content)


def sizes(data: Path) -> dict[str, int]:
    return {path.relative_to(data).as_posix(): path.stat().st_size for path in data.rglob("*") if path.is_file()}


def test_files_are_cut_to_their_synced_lengths(tmp_path: Path) -> None:
    first, second, third = batch(7), batch(8, 9, 10), batch(11, 12)
    earlier, index, snapshot = (f"t-0/{name}" for name in (f"{0:020}.log", f"{7:020}.txnindex", f"{7:020}.snapshot"))
    write(tmp_path, {
        LOG: first + second + third, earlier: batch(*range(7)), index: bytes(68), snapshot: b"never synced",
        "checkpoint": b"shorter than what was synced",
    })  # fmt: skip
    synced = {LOG: len(first), earlier: len(batch(*range(7))), index: 34, "checkpoint": 1000}
    size = len(first + second + third)
    expected = [Cut(LOG, size, len(first), LostRecords("t", 0, 8, 12, 5)), Cut(snapshot, 12, 0), Cut(index, 68, 34)]
    assert list(find_unsynced(tmp_path, synced)) == expected
    before = sizes(tmp_path)
    assert cut_unsynced(tmp_path, synced) == expected
    assert sizes(tmp_path) == before | {file_cut.file: file_cut.to_bytes for file_cut in expected}
    assert (tmp_path / LOG).read_bytes() == first
    assert cut_unsynced(tmp_path, synced) == []


@pytest.mark.parametrize(
    ("to_bytes", "lost"),
    [(len(batch(7)), (8, 10, 3)), (len(batch(7)) + 1, (8, 10, 3)), (len(batch(7)) - 1, (7, 10, 4)), (0, (7, 10, 4))],
    ids=["at its end", "in the next", "in the first", "never"],
)
def test_a_batch_that_is_cut_is_lost(to_bytes: int, lost: tuple[int, int, int], tmp_path: Path) -> None:
    first, second = batch(7), batch(8, 9, 10)
    write(tmp_path, {LOG: first + second})
    (file_cut,) = cut_unsynced(tmp_path, {LOG: to_bytes})
    assert file_cut.lost == LostRecords("t", 0, *lost)
    assert file_cut.as_json() == {
        "file": LOG, "from_bytes": len(first + second), "to_bytes": to_bytes,
        "topic": "t", "partition": 0, "first_offset": lost[0], "last_offset": lost[1], "records": lost[2],
    }  # fmt: skip


def test_a_segment_that_was_never_synced_is_lost_before_the_next_one(tmp_path: Path) -> None:
    following = "t-0/00000000000000000010.log"
    others = {"t-0/00000000000000000000.log": batch(0), "t-1/00000000000000000008.log": batch(8)}
    write(tmp_path, {LOG: batch(7, 8, 9), following: b"", f"{LOG}.deleted": b"", **others})
    (file_cut,) = cut_unsynced(tmp_path, {**{name: len(content) for name, content in others.items()}, following: 0})
    assert file_cut.lost == LostRecords("t", 0, 7, 9, 3, next_segment=10)
    assert file_cut.as_json()["next_segment"] == 10


def test_files_that_are_not_cut_and_an_incomplete_append_without_records(tmp_path: Path) -> None:
    indexes = (LOG.replace("log", suffix) for suffix in ("index", "timeindex", "index.cleaned", "timeindex.deleted"))
    write(tmp_path, {"__cluster_metadata-0/00000000000000000000.log": batch(0), **dict.fromkeys(indexes, bytes(10))})
    assert cut_unsynced(tmp_path, {}) == []
    write(tmp_path, {LOG: batch(7) + batch(8)[:-1]})
    assert list(find_unsynced(tmp_path, {LOG: len(batch(7))})) == [
        Cut(LOG, len(batch(7) + batch(8)) - 1, len(batch(7)), None)
    ]


@pytest.mark.parametrize(("file", "partition"), [
    (LOG, ("t", 0)),
    (f"{LOG}.swap", ("t", 0)),
    (f"{LOG}.cleaned", None),
    (f"{LOG}.deleted", None),
    ("t-0.f00-delete/00000000000000000007.log", None),
    ("a-topic-12/00000000000000000007.log", ("a-topic", 12)),
])  # fmt: skip
def test_only_files_a_broker_loads_have_records(file: str, partition: tuple[str, int] | None, tmp_path: Path) -> None:
    write(tmp_path, {file: batch(7)})
    (file_cut,) = cut_unsynced(tmp_path, {})
    assert (file_cut.lost and file_cut.lost.topic_partition) == partition


def test_notes_begin_with_the_existing_files(tmp_path: Path) -> None:
    data, log = tmp_path / "data", tmp_path / "synced"
    write(data, {LOG: batch(7), "meta.properties": b"version=1\n"})
    log.write_text("sync\t99\tgone\n")
    power.begin_notes(log, data)
    assert power.read_synced(log.read_text()) == sizes(data)


CASES = Path(__file__).parent / "power_cases"
EMPTY = "t-9/0.log"
_PATHS = (find_java().path, *Path("/usr/lib/jvm").glob("*/bin/java"))
JAVAS = sorted({path.resolve() for path in _PATHS if path.exists()})
"""Before JDK 21, another class syncs files."""


@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
@pytest.mark.parametrize("java", JAVAS, ids=lambda path: path.parts[-3])
def test_what_was_synced_is_noted(java: Path, target: str, tmp_path: Path) -> None:
    compile_java(tmp_path / "classes", CASES / "Writes.java")
    (tmp_path / "real").mkdir()
    data, log = tmp_path / "data", tmp_path / "synced"
    data.symlink_to(tmp_path / "real")
    (data / "t-9").mkdir()
    (data / EMPTY).write_bytes(b"before")
    power.begin_notes(log, data)
    classpath = os.pathsep.join([str(tmp_path / "classes"), classpath_of(target)])
    done = run_java("Writes", classpath, data, java=java, flags=(agent(power.SYNC_NOTES).flag(f"{log}={data}"),))
    assert done.returncode == 0, done.stderr
    assert power.read_synced(log.read_text()) == {
        EMPTY: 6, "t-0/0.log": 100, "t-0/truncated.log": 40, "checkpoint": 20, "t-0/5.log.swap": 65,
        "u-0.deleted/0.log": 8,
    }  # fmt: skip
    assert (data / "t-0" / "never.log").stat().st_size == 10


def test_a_broker_whose_syncs_cannot_be_noted_does_not_start(tmp_path: Path) -> None:
    """Kafka's classes are absent here, so their calls are not noted."""
    compile_java(tmp_path, CASES / "Writes.java")
    flag = agent(power.SYNC_NOTES).flag(f"{tmp_path}/log={tmp_path}")
    done = run_java("Writes", str(tmp_path), tmp_path, flags=(flag,))
    assert done.returncode == 1
    assert "sync-notes: not installed: java.lang.ClassNotFoundException: org.apache.kafka" in done.stderr
    assert not (tmp_path / "t-0").exists()


def test_the_gate_is_another_jar() -> None:
    assert agent().jar.name != agent(power.SYNC_NOTES).jar.name
