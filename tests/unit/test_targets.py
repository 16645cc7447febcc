"""The table of targets, and the locks that pin each row."""

import re

import pytest

from harness.errors import EXIT_USAGE, UsageError
from harness.targets import TARGETS, Target, find_target
from harness.targets.lock import jar_name, read_lock


def test_known_targets() -> None:
    assert find_target("kafka-3.9").version == "3.9.2"
    assert find_target("kafka-4.4").excluded_modules == ("org.apache.kafka:kafka-tools-api",)
    assert all(name == target.name for name, target in TARGETS.items())


def test_unknown_target_names_the_nearest_and_all() -> None:
    with pytest.raises(UsageError, match=r"did you mean kafka-3\.9") as caught:
        find_target("kafak-3.9")
    assert all(name in str(caught.value) for name in TARGETS)
    assert caught.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_lock_pins_the_broker_and_one_slf4j_binding(target: Target) -> None:
    digests = read_lock(target)
    assert f"org.apache.kafka:kafka_{target.scala}:{target.version}" in digests
    assert {c for c in digests if c.startswith("org.slf4j:")} == {
        "org.slf4j:slf4j-api:1.7.36",
        "org.slf4j:slf4j-simple:1.7.36",
    }
    assert not any(c.startswith(f"{excluded}:") for c in digests for excluded in target.excluded_modules)
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in digests.values())
    assert list(digests) == sorted(digests)
    assert len({jar_name(coordinate) for coordinate in digests}) == len(digests)


def test_version_without_a_lock() -> None:
    with pytest.raises(UsageError, match=r"no jars are pinned for kafka-9.9 9\.9\.1"):
        read_lock(Target("kafka-9.9", "9.9.1"))
