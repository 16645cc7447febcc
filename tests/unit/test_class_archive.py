"""Spark's class archive: its name, the process that makes it, and the files that remain after a failure."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from harness.errors import HarnessError
from harness.host.cache import alone_in
from harness.host.java import Java
from harness.spark import background
from harness.spark.launch import SparkJobs

JOBS = SparkJobs("no_such_module:rehearse", workers="no_such_module")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    path.mkdir()
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(path))
    monkeypatch.delenv(background.SWITCH)
    return path


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a jar of a Spark of the test's own."""
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "a.jar").write_bytes(b"a")
    monkeypatch.setattr(background, "spark_home", lambda: tmp_path / "pyspark")
    return jars / "a.jar"


@pytest.fixture
def java(tmp_path: Path) -> Java:
    return Java(tmp_path / "jre" / "bin" / "java", "17.0.1")


def writes(_java: Java, _jobs: SparkJobs, draft: Path) -> None:
    draft.write_bytes(b"classes")


def make(java: Java, wait_s: float = 0.0) -> Path | None:
    return background.make_archive(java, JOBS, wait_s=wait_s)


def test_an_archive_is_for_one_java_one_spark_and_its_flags(
    java: Java, jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = (java, Java(java.path, "17.0.2"), Java(tmp_path / "other" / "bin" / "java", "17.0.1"))
    paths = {background.archive_path(of) for of in (java, *others)}
    monkeypatch.setattr(background, "JVM_FLAGS", ("-XX:+UseParallelGC",))
    paths.add(background.archive_path(java))
    os.utime(jar, ns=(0, 0))
    paths.add(background.archive_path(java))
    jar.with_name("b.jar").write_bytes(b"b")
    paths.add(background.archive_path(java))
    assert len(paths) == 6


def test_what_precedes_an_upgrade_goes(java: Java, jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_write_archive", writes)
    old, elsewhere = make(java), make(Java(tmp_path / "other" / "bin" / "java", "17.0.1"))
    jar.write_bytes(b"newer")
    new = make(java)
    assert old and elsewhere and new  # noqa: PT018  (for mypy)
    assert (old.exists(), new.read_bytes(), elsewhere.exists()) == (False, b"classes", True)
    assert make(java) == new


@pytest.mark.usefixtures("jar")
def test_a_making_that_was_cut_off_leaves_no_archive_and_the_next_one_removes_the_rest(
    java: Java, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_cut_off(_java: Java, _jobs: SparkJobs, draft: Path) -> None:
        draft.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(background, "_write_archive", is_cut_off)
    with pytest.raises(KeyboardInterrupt):
        make(java)
    assert not background.archive_path(java).exists()
    assert background.why_not_started(background.archive_path(java)) is None
    monkeypatch.setattr(background, "_write_archive", writes)
    make(java)
    assert background.archive_path(java).read_bytes() == b"classes"
    assert list((cache / background.DRAFTS).iterdir()) == []


@pytest.mark.usefixtures("jar")
def test_two_at_once_make_one(java: Java, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, made = threading.Event(), threading.Event(), []

    def slowly(_java: Java, _jobs: SparkJobs, draft: Path) -> None:
        begun.set()
        assert go_on.wait(30)
        draft.write_bytes(b"classes")

    monkeypatch.setattr(background, "_write_archive", slowly)
    first = threading.Thread(target=lambda: made.append(make(java)))
    first.start()
    assert begun.wait(30)
    assert background.is_being_made()
    assert background.why_not_started(background.archive_path(java)) == "it is being made"
    assert make(java) is None
    second = threading.Thread(target=lambda: made.append(make(java, 30.0)))
    second.start()
    go_on.set()
    for thread in (first, second):
        thread.join(30)
    assert made == [background.archive_path(java)] * 2
    assert not background.is_being_made()


def test_a_jvm_that_writes_none_is_not_asked_again(java: Java, jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = background.archive_path(java)
    monkeypatch.setattr(background, "_write_archive", lambda *_: background.note_failure(path, "no such flag"))
    with pytest.raises(HarnessError, match="no such flag"):
        make(java)
    assert "could not be made" in str(background.why_not_started(path))
    # Another Spark may do better.
    jar.write_bytes(b"newer")
    assert background.why_not_started(background.archive_path(java)) is None


@pytest.mark.parametrize(("name", "answer", "why"), [
    ("os.access", False, "cannot be written"),
    ("shutil.disk_usage", SimpleNamespace(free=1 << 20), "are free in"),
    ("psutil.virtual_memory", SimpleNamespace(available=1 << 20), "of memory are available"),
    ("", None, "is 0"),
])  # fmt: skip
@pytest.mark.usefixtures("jar")
def test_none_is_made_without_room_or_where_the_user_forbids_it(
    java: Java, monkeypatch: pytest.MonkeyPatch, name: str, answer: Any, why: str
) -> None:
    if name:
        monkeypatch.setattr(f"harness.spark.background.{name}", lambda *_: answer)
    else:
        monkeypatch.setenv(background.SWITCH, "0")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("started all the same"))
    assert why in str(background.why_not_started(background.archive_path(java)))
    assert background.find_archive(java, JOBS) is None


def test_the_archive_is_made_at_once_the_rest_at_the_lowest_priority_and_all_of_it_has_an_end() -> None:
    """Run in a separate session, as the background process does: a lowered priority cannot be raised again."""
    code = (
        "import os, signal; from harness.spark import background; background.find_java = lambda: None\n"
        "def idles(): return os.sched_getscheduler(0) == os.SCHED_IDLE\n"
        "background.make_archive = lambda *_, **__: print(idles(), signal.alarm(9))\n"
        "background.compile_all = lambda: print(idles(), signal.alarm(0) > 0)\n"
        "background.main(None); print(background.AUTOGROUP.exists() and background.AUTOGROUP.read_text())"
    )
    lines = subprocess.check_output([sys.executable, "-c", code], text=True, start_new_session=True).splitlines()
    is_idle_already = os.sched_getscheduler(0) == os.SCHED_IDLE
    assert lines[:2] == [f"{is_idle_already} {background.LIMIT_S}", "True True"]
    # A kernel without autogroups reports nothing.
    assert lines[2] == "False" or lines[2].endswith("nice 19")


def test_a_lock_ends_with_its_process_and_a_folder_that_cannot_be_made_locks_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from harness.host.cache import alone_in\n"
        "with alone_in(Path(sys.argv[1]), 0.0): print('mine', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "folder")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        with alone_in(tmp_path / "folder", 0.0) as is_mine:
            assert not is_mine
        psutil.Process(other.pid).kill()
        other.wait()
    with alone_in(tmp_path / "folder", 0.0) as is_mine:
        assert is_mine
    (tmp_path / "file").touch()
    with alone_in(tmp_path / "file" / "folder", 0.0) as is_mine:
        assert not is_mine
