"""The table of targets, the locks that pin each row, and the settings that each version's brokers take."""

import re
from dataclasses import replace
from pathlib import Path

import javaproperties
import pytest

from harness.errors import EXIT_USAGE, UsageError
from harness.kafka_api.address import Address
from harness.schedules.timers import FREEZE, TIMERS
from harness.targets import TARGETS, WITH_JARS, Target, find_target
from harness.targets.kafka import SET_BY_HARNESS, SMALL_CLUSTER, Listener, server_properties
from harness.targets.lock import is_pinned, jar_name, lock_name, lock_text, read_lock, user_locks
from harness.targets.settings import BROKER, TOPIC, list_for, note_on, raise_if_unfit
from nemesis import SCRIPTS

AT = Address("127.0.0.1", 1)


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


@pytest.mark.parametrize("name", [*WITH_JARS, "kafka-4.2.1"])
def test_every_locked_version_has_a_list_with_all_settings_of_the_harness(name: str) -> None:
    target = find_target(name)
    settings_list = list_for(target)
    assert settings_list is not None
    assert settings_list.version == target.version
    assert (note_on(target), read_lock(target) is not None) == (None, True)
    for timers in TIMERS.values():
        raise_if_unfit(target, {TOPIC: {**timers.topic, **FREEZE}, BROKER: {**SMALL_CLUSTER, **timers.broker}})
    for nemesis in SCRIPTS.values():
        raise_if_unfit(target, {BROKER: nemesis.broker_settings})


@pytest.mark.parametrize(("scope", "name", "value", "why"), [
    (TOPIC, "nosuch.setting", "1", "Kafka 4.4.0 has no such setting of a topic"),
    (TOPIC, "delete.retenton.ms", "1", "did you mean delete.retention.ms"),
    (TOPIC, "log.cleaner.backoff.ms", "1", "is a setting of a broker: give broker.log.cleaner.backoff.ms"),
    (BROKER, "file.delete.delay.ms", "1", "is a setting of a topic: give topic.file.delete.delay.ms"),
    (TOPIC, "delete.retention.ms", "abc", "delete.retention.ms takes a whole number of 64 bits"),
    (TOPIC, "delete.retention.ms", "9223372036854775808", "a whole number of 64 bits"),
    (TOPIC, "delete.retention.ms", "", "a whole number of 64 bits"),
    (TOPIC, "delete.retention.ms", "-1", "takes 0 or more"),
    (TOPIC, "segment.bytes", "2147483648", "a whole number of 32 bits"),
    (TOPIC, "segment.bytes", "9" * 5000, "a whole number of 32 bits"),
    (TOPIC, "segment.ms", "0", "takes 1 or more"),
    (TOPIC, "min.cleanable.dirty.ratio", "1.1", "takes 0 to 1"),
    (TOPIC, "min.cleanable.dirty.ratio", "nan", "a finite number"),
    (TOPIC, "cleanup.policy", "compact,delte", "takes some of compact, delete"),
    (TOPIC, "message.timestamp.type", "createtime", "takes one of CreateTime, LogAppendTime"),
    (TOPIC, "compression.gzip.level", "0", "takes 1 to 9 or -1"),
    (TOPIC, "preallocate", "yes", "takes true or false"),
    (BROKER, "log.cleaner.enable", "1", "takes true or false"),
    (BROKER, "principal.builder.class", "a b", "takes the name of a class"),
    (BROKER, "node.id", "7", "the harness sets node.id itself"),
    (BROKER, "listener.name.", "7", "no such setting of a broker"),
])  # fmt: skip
def test_invalid_settings_are_rejected(scope: str, name: str, value: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        raise_if_unfit(find_target("kafka-4.4"), {scope: {name: value}})
    assert why in str(refused.value)
    assert str(refused.value).startswith(f"--set '{scope}.{name}={value[:5]}")


def test_valid_settings_are_accepted_and_without_a_list_as_for_redpanda_all_with_a_note() -> None:
    of_topic = {
        "delete.retention.ms": " 600000 ", "min.cleanable.dirty.ratio": "1e-3", "cleanup.policy": "compact, delete",
        "compression.gzip.level": "-1", "preallocate": "TRUE",
    }  # fmt: skip
    of_broker = {
        "listener.name.client.scram-sha-256.sasl.jaas.config": "any text", "config.providers.file.class": "a.b.C",
        "super.users": "User:admin", "group.consumer.migration.policy": "bidirectional",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }  # fmt: skip
    raise_if_unfit(find_target("kafka-4.4"), {TOPIC: of_topic, BROKER: of_broker})
    target = find_target("redpanda-26.2")
    raise_if_unfit(target, {BROKER: {"any_name": "any value"}})
    assert note_on(target) == "--set is not checked: redpanda-26.2 has no list of settings"


@pytest.mark.parametrize(("name", "version", "is_noted"), [
    ("kafka-4.1.1", "4.1.2", True),
    ("kafka-4.2.9", "4.2.2", True),
    ("kafka-3.9.0", "3.9.2", True),
    ("kafka-4.4.0-rc1", "4.4.0", True),
    ("sim-kafka", "4.4.0", False),
    ("sim-kafka-3.9", "3.9.2", False),
    ("sim-redpanda", "4.4.0", False),
])  # fmt: skip
def test_a_version_without_a_list_uses_the_nearest_list(name: str, version: str, *, is_noted: bool) -> None:
    target = find_target(name)
    settings_list, note = list_for(target), note_on(target)
    assert settings_list is not None
    assert settings_list.version == version
    assert (note is not None and version in note and target.version in note) == is_noted


def test_settings_of_the_harness_are_the_overridden_settings() -> None:
    settings = dict.fromkeys((*SET_BY_HARNESS, "num.io.threads"), "the user's")
    listeners, controllers = [Listener("CLIENT", AT)], {1: Listener("CONTROLLER", AT)}
    made = server_properties(node_id=1, listeners=listeners, controllers=controllers, log_dir="/x", settings=settings)
    properties = dict(line.split("=", 1) for line in made.splitlines())
    overridden = {name for name, value in properties.items() if name in settings and value != "the user's"}
    # Other names of the same, which contradict it.
    others = {"broker.id", "log.dir", "metadata.log.dir", "controller.quorum.bootstrap.servers"}
    assert overridden | others | {"security.inter.broker.protocol"} == SET_BY_HARNESS


@pytest.mark.parametrize("folder", ["/home/jürgen/tmp/data", "/a,b/data"])
def test_a_folder_that_brokers_would_take_for_another_is_rejected(folder: str) -> None:
    with pytest.raises(UsageError, match="set TMPDIR"):
        server_properties(node_id=1, listeners=[Listener("CLIENT", AT)], controllers={}, log_dir=folder, settings={})


def test_values_are_what_java_reads() -> None:
    settings = {"a": "back\\slash, ü and 😀"}
    made = server_properties(
        node_id=1, listeners=[Listener("CLIENT", AT)], controllers={}, log_dir="/x", settings=settings
    )
    assert javaproperties.loads(made)["a"] == settings["a"]


def test_a_setting_permits_protocols_of_groups_that_are_early_access() -> None:
    target, name = find_target("kafka-3.9"), "group.coordinator.rebalance.protocols"
    assert target.group_protocols_with({}) == ("classic",)
    assert target.group_protocols_with({name: "Consumer, streams,share"}) == ("consumer", "streams")
