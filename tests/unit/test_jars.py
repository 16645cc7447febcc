"""The cache of jars: when jars are fetched, and the message of a failed download."""

import hashlib
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from harness.errors import EXIT_USAGE, UsageError
from harness.targets import Target, jars
from harness.targets.jars import JarSet, OnProgress, fetch_locked, is_cached, jars_for, materialise
from harness.targets.lock import ivy_reason, jar_name

CONTENTS = {"org.a:one:1.0": b"the first jar", "org.b:two_2.13:2.0-ea": b"the second"}
DIGESTS = {coordinate: hashlib.sha256(content).hexdigest() for coordinate, content in CONTENTS.items()}
TARGET = Target("kafka-0.0", "0.0.1")

UNREACHABLE_LOG = """\
:: problems summary ::
:::: WARNINGS
\t\tmodule not found: at.yawk.lz4#lz4-java;1.10.1
:::: ERRORS
\tServer access error at url http://127.0.0.1:9/lz4.jar (java.net.ConnectException: Connection refused)
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
"""


class Repository:
    """A fake Ivy: copies its jars, and counts the requests."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents, self.fetches = contents, 0

    def __call__(self, coordinates: Sequence[str], staging: Path, on_progress: OnProgress) -> None:
        self.fetches += 1
        for done, coordinate in enumerate(coordinates, 1):
            (staging / jar_name(coordinate)).write_bytes(self.contents[coordinate])
            on_progress(done, len(coordinates))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "jars" / "0.0.1"


def assert_complete(jar_set: JarSet) -> None:
    names = [jar_name(coordinate) for coordinate in CONTENTS]
    assert jar_set.classpath.split(os.pathsep) == [str(jar_set.directory / name) for name in names]
    assert [(jar_set.directory / name).read_bytes() for name in names] == list(CONTENTS.values())
    assert jar_set.digests == DIGESTS
    assert list(jar_set.directory.parent.iterdir()) == [jar_set.directory]


def test_fetches_once(cache: Path) -> None:
    repository, steps = Repository(CONTENTS), list[tuple[int, int]]()
    assert_complete(materialise(DIGESTS, cache, repository, lambda done, total: steps.append((done, total))))
    assert_complete(materialise(DIGESTS, cache, repository))
    assert repository.fetches == 1
    assert steps == [(1, 2), (2, 2)]


JAR, MARKER = "org.a--one--1.0.jar", "complete.json"
CUTS, TEXTS = (None, b"", b"the first"), (b"", b"[]", b'{"lock": 1}', b"{")
DAMAGES = [*((JAR, cut) for cut in CUTS), *((MARKER, text) for text in TEXTS)]


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_a_damaged_jar_is_fetched_again_and_a_marker_is_ignored(cache: Path, name: str, damage: bytes | None) -> None:
    repository = Repository(CONTENTS)
    file = materialise(DIGESTS, cache, repository).directory / name
    file.unlink() if damage is None else file.write_bytes(damage)
    assert_complete(materialise(DIGESTS, cache, repository))
    assert repository.fetches == 2


def test_damage_of_the_same_size_is_found_by_verify(cache: Path) -> None:
    repository = Repository(CONTENTS)
    (materialise(DIGESTS, cache, repository).directory / JAR).write_bytes(b"THE FIRST JAR")
    for verify, fetches in ((False, 1), (True, 2)):
        jar_set = materialise(DIGESTS, cache, repository, verify=verify)
        assert repository.fetches == fetches
    assert_complete(jar_set)


def test_a_new_lock_is_another_set(cache: Path) -> None:
    repository = Repository(CONTENTS)
    materialise(dict(list(DIGESTS.items())[:1]), cache, repository)
    assert_complete(materialise(DIGESTS, cache, repository))


def test_a_wrong_or_missing_jar_is_an_error_and_nothing_is_installed(cache: Path) -> None:
    forged = CONTENTS | {"org.b:two_2.13:2.0-ea": b"something else"}
    got = hashlib.sha256(b"something else").hexdigest()
    expected = DIGESTS["org.b:two_2.13:2.0-ea"]
    with pytest.raises(UsageError, match=rf"org\.b:two_2\.13:2\.0-ea .* expected {expected}, got {got}"):
        materialise(DIGESTS, cache, Repository(forged))
    assert list(cache.iterdir()) == []
    assert list(cache.parent.iterdir()) == [cache]
    with pytest.raises(UsageError, match=r"org\.a:one:1\.0 was not delivered"):
        materialise(DIGESTS, cache, lambda _coordinates, _staging, _on_progress: None)


def test_concurrent_fetches_both_succeed(cache: Path) -> None:
    both_staged, repository = Barrier(2, timeout=10), Repository(CONTENTS)

    def fetch(coordinates: Sequence[str], staging: Path, on_progress: OnProgress) -> None:
        repository(coordinates, staging, on_progress)
        both_staged.wait()

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(materialise, DIGESTS, cache, fetch) for _ in range(2)]
    assert [run.result().digests for run in runs] == [DIGESTS, DIGESTS]
    assert_complete(materialise(DIGESTS, cache, repository))
    assert repository.fetches == 2


def test_staging_folders_of_killed_fetches_are_removed(cache: Path) -> None:
    dead, living = cache.parent / ".fetching-dead", cache.parent / ".fetching-living"
    for folder in (dead, living):
        folder.mkdir(parents=True)
    os.utime(dead, (0, 0))
    materialise(DIGESTS, cache, Repository(CONTENTS))
    assert not dead.exists()
    assert living.exists()


def test_where_the_cache_is_and_that_it_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.targets.lock.read_lock", lambda _target: DIGESTS)
    monkeypatch.setattr(jars, "fetch_locked", Repository(CONTENTS))
    monkeypatch.delenv("COMPACTION_HARNESS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert not is_cached(TARGET)
    assert jars_for(TARGET).directory == tmp_path / "xdg" / "compaction-harness" / "jars" / "0.0.1"
    assert is_cached(TARGET)
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path / "own"))
    assert jars_for(TARGET).directory == tmp_path / "own" / "jars" / "0.0.1"
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written \(Not a directory\).*COMPACTION_HARNESS_CACHE"):
        materialise(DIGESTS, tmp_path / "file" / "0.0.1", Repository(CONTENTS))


@pytest.mark.parametrize(("log", "reason"), [
    (UNREACHABLE_LOG, r"^Server access error at .*Connection refused\)$"),
    ("\tHost mirror.example not found. url=http://mirror.example/x", r"^Host mirror\.example not found"),
    ("\t\tmodule not found: org.a#one;1.0\n:: end", r"^module not found: org\.a#one;1\.0$"),
    ("Error occurred during initialization of VM\nno heap\n\n", "^no heap$"),
    ("", "^Ivy printed nothing$"),
])  # fmt: skip
def test_why_ivy_failed(log: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        raise UsageError(ivy_reason(log.splitlines()))


def fake_ivy(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Put a ``java`` on PATH that is Java 17 when asked, and else runs ``program`` in place of Ivy."""
    java = folder / "java"
    asked = "if '-version' in sys.argv:\n    print('version \"17\"'); sys.exit()\n"
    java.write_text(f"#!{sys.executable}\nimport sys, time\n{asked}{program}\n")
    java.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder))


def test_unreachable_and_silent_repositories(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ivy(tmp_path, monkeypatch, f"print({UNREACHABLE_LOG!r}); sys.exit(1)")
    with pytest.raises(UsageError, match=r"cannot be fetched: Server access .*COMPACTION_HARNESS_MAVEN_ROOT") as e:
        materialise(DIGESTS, cache, fetch_locked)
    assert e.value.exit_code == EXIT_USAGE
    assert "\n" not in str(e.value)
    monkeypatch.setattr("harness.targets.lock._SILENCE_LIMIT_S", 0.2)
    fake_ivy(tmp_path, monkeypatch, "time.sleep(60)")
    with pytest.raises(UsageError, match="sent nothing for"):
        materialise(DIGESTS, cache, fetch_locked)


def test_progress_and_retrieval_by_ivys_lines(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"""
for coordinate, content in {CONTENTS!r}.items():
    group, artifact, version = coordinate.split(":")
    print(f"\\tfound {{group}}#{{artifact}};{{version}} in maven")
    print(f"\\t[SUCCESSFUL ] {{group}}#{{artifact}};{{version}}!{{artifact}}.jar (1ms)")
    open(coordinate.replace(":", "--") + ".jar", "wb").write(content)
assert 'rev="2.0-ea" transitive="false"' in open("ivy.xml").read()
assert 'root="http://mirror.example/"' in open("ivysettings.xml").read()
"""
    fake_ivy(tmp_path, monkeypatch, program)
    monkeypatch.setenv("COMPACTION_HARNESS_MAVEN_ROOT", "http://mirror.example/")
    steps: list[tuple[int, int]] = []
    materialise(DIGESTS, cache, fetch_locked, lambda done, total: steps.append((done, total)))
    assert steps == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
