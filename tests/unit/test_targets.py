"""The table of targets, and the locks that pin each row."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import EXIT_USAGE, UsageError
from harness.targets import TARGETS, WITH_JARS, Target, find_target
from harness.targets.lock import is_pinned, jar_name, lock_name, lock_text, read_lock, user_locks


def test_known_targets_have_their_names_and_an_unknown_one_gets_the_nearest_and_all() -> None:
    assert find_target("kafka-3.9").version == "3.9.2"
    assert all(name == target.name for name, target in TARGETS.items())
    with pytest.raises(UsageError, match=r"did you mean kafka-3\.9") as caught:
        find_target("kafak-3.9")
    assert all(name in str(caught.value) for name in TARGETS)
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize("target", WITH_JARS.values(), ids=WITH_JARS)
def test_lock_pins_the_broker_and_one_slf4j_binding(target: Target) -> None:
    digests = read_lock(target)
    assert is_pinned(target)
    assert digests is not None
    assert f"org.apache.kafka:kafka_{target.scala}:{target.version}" in digests
    bindings = {f"org.slf4j:slf4j-{name}:1.7.36" for name in ("api", "simple")}
    assert {coordinate for coordinate in digests if coordinate.startswith("org.slf4j:")} == bindings
    assert not any(c.startswith(f"{excluded}:") for c in digests for excluded in target.excluded_modules)
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in digests.values())
    assert list(digests) == sorted(digests)
    assert len({jar_name(coordinate) for coordinate in digests}) == len(digests)


@pytest.mark.parametrize(
    ("line", "patch"), [("kafka-4.1", ".1"), ("kafka-4.4", ".7"), ("kafka-4.0", ".0-rc3"), ("redpanda-25.3", ".4")]
)
def test_an_exact_patch_has_the_settings_of_its_line(line: str, patch: str) -> None:
    name = f"{line}{patch}"
    assert find_target(name) == replace(TARGETS[line], name=name, version=name.partition("-")[2])


@pytest.mark.parametrize("name", ["kafka-9.9.1", "kafka-4.1.", "kafka-4.1.1.1", "4.1.1", "redpanda-25.3.4-cloud"])
def test_unknown_versions_are_rejected(name: str) -> None:
    with pytest.raises(UsageError, match=r"unknown target .*(an exact patch is|newer than the newest)"):
        find_target(name)


def test_the_first_use_of_a_version_writes_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path))
    target = find_target("kafka-4.1.1")
    assert read_lock(target) is None
    user_locks().mkdir()
    (user_locks() / lock_name(target)).write_text(lock_text({"org.b:two:2": "cd", "org.a:one:1": "ab"}))
    assert read_lock(target) == {"org.a:one:1": "ab", "org.b:two:2": "cd"}
    assert not is_pinned(target)
    (lock,) = (tmp_path / "locks").iterdir()
    lock.write_text("spoilt")
    with pytest.raises(UsageError, match=r"kafka-4\.1\.1\.lock is not a list of jars"):
        read_lock(target)
