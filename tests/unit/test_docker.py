"""Brokers as containers of a fake engine: the files that are copied out of them, and the reports of their ends."""

import os
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from docker.errors import APIError
from fakes.containers import ContainerCluster, packed

from harness.errors import BootError, HarnessError
from harness.host import commands, engine, leftovers
from harness.host.leftovers import Owner
from harness.runtimes import docker
from harness.runtimes.base import Firewalls, LossyLinks, ability

BROKER = 2
DATA, PROPERTIES = "/var/lib/kafka/data", "/mnt/shared/config/server.properties"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerCluster:
    return ContainerCluster("kafka-3.9", tmp_path, monkeypatch, {"log.cleaner.threads": "3"})


def test_compose_gets_brokers_that_are_configured_before_they_start(bench: ContainerCluster, tmp_path: Path) -> None:
    bench.runtime.start_cluster()
    ((words, variables),) = bench.composed
    assert words[:1] == ("compose",)
    assert words[-5:] == ("up", "--no-start", "broker-1", "broker-2", "broker-3")
    ports = {f"HARNESS_PORT_{broker}": str(19000 + broker) for broker in (1, 2, 3)}
    assert variables.items() >= {"HARNESS_RUN_ID": "2026-A-Run", "HARNESS_IMAGE": "sha256:1", **ports}.items()
    assert "${HARNESS_PORT_7" in (tmp_path / "compose.yaml").read_text()
    assert [container.calls for container in bench.brokers.values()] == [["start"]] * 3
    assert set(bench.brokers[BROKER].uploads[PROPERTIES].decode().splitlines()) >= {
        "listeners=CLIENT://0.0.0.0:9092,REPLICA://0.0.0.0:9094",
        "advertised.listeners=CLIENT://127.0.0.1:19002,REPLICA://broker-2:9094",
        "inter.broker.listener.name=REPLICA", "controller.quorum.voters=1@broker-1:9093",
        f"log.dirs={DATA}", "log.cleaner.threads=3",
    }  # fmt: skip
    of_first = bench.brokers[1].uploads[PROPERTIES].decode()
    assert "listeners=CLIENT://0.0.0.0:9092,REPLICA://0.0.0.0:9094,CONTROLLER://0.0.0.0:9093\n" in of_first


def test_copies_are_repeated_until_two_agree_or_too_often(bench: ContainerCluster, tmp_path: Path) -> None:
    metadata = {"partition.metadata": b"version: 0"}
    before = packed({"0.log": b"old", "5.log": b"gone soon", "0.index": b"-", **metadata}, "topic-0")
    after = packed({"0.log": b"cleaned", "0.log.cleaned": b"-", **metadata}, "topic-0")
    bench.brokers[BROKER].archives[f"{DATA}/topic-0"] = [before, b"half an arch", after, after]
    bench.runtime.start_cluster()
    bench.runtime.copy_partition(BROKER, "topic", 0, tmp_path / "copy")
    copied = {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}
    assert copied == {"0.log": b"cleaned", **metadata}
    bench.brokers[BROKER].archives[f"{DATA}/topic-0"] = [packed({"0.log": bytes(n)}, "topic-0") for n in range(40)]
    bench.runtime.start_cluster()
    with pytest.raises(HarnessError, match="the files of topic-0 on broker 2 changed during every copy"):
        bench.runtime.copy_partition(BROKER, "topic", 0, tmp_path / "changing")


def test_a_checkpoint_may_be_missing_and_a_replica_may_not(bench: ContainerCluster, tmp_path: Path) -> None:
    bench.brokers[BROKER].archives[f"{DATA}/meta.properties"] = [packed({"meta.properties": b"version=1"}, ".")]
    bench.runtime.start_cluster()
    with pytest.raises(HarnessError, match=r"broker 2 has no folder of topic-0: .* Could not find the file"):
        bench.runtime.copy_partition(BROKER, "topic", 0, tmp_path / "copy")
    bench.runtime.copy_checkpoints(BROKER, tmp_path / "copy")
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == {"meta.properties": b"version=1"}


@pytest.mark.parametrize(("status", "state", "expected"), [
    ("exited", {"OOMKilled": False, "ExitCode": 1}, r"broker 2 ended by itself \(exit code 1\)"),
    ("exited", {"OOMKilled": True, "ExitCode": 137}, r"broker 2 ended by itself \(out of memory\)"),
    ("gone", {}, "broker 2 ended: another process must have removed its container"),
], ids=["by itself", "out of memory", "removed"])  # fmt: skip
def test_a_container_that_ended_is_reported_with_the_reason(
    bench: ContainerCluster, status: str, state: dict[str, Any], expected: str
) -> None:
    bench.runtime.start_cluster()
    bench.brokers[BROKER].status = status
    bench.brokers[BROKER].attrs = {"State": state}
    bench.runtime.raise_if_died()  # It has just looked.
    bench.now_s += 1
    with pytest.raises(BootError, match=expected) as raised:
        bench.runtime.raise_if_died()
    assert "started" not in str(raised.value)
    assert status == "gone" or "ERROR no space left" in str(raised.value)


def test_kept_containers_run_on_and_their_logs_are_stored(bench: ContainerCluster, tmp_path: Path) -> None:
    for broker in bench.brokers.values():
        broker.logs = lambda **_: iter([b"one\n", b"two\n"])
    bench.runtime.start_cluster()
    bench.runtime.close(keep=True)
    assert (tmp_path / "logs" / "1" / "server.log").read_text() == "one\ntwo\n"
    assert bench.runtime.is_up(1)


@pytest.mark.parametrize("resumable", [False, True])
def test_a_run_that_can_be_resumed_keeps_its_containers(
    bench: ContainerCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, resumable: bool
) -> None:
    leftovers.write_owner(tmp_path, Owner(1, 0.0, "2026-A-Run", "results", resumable=resumable))
    messages: list[str] = []
    for verb in ("end", "remove"):
        monkeypatch.setattr(engine, verb, lambda *_, verb=verb: messages.append(verb))
    for container in bench.brokers.values():
        container.logs = MagicMock(side_effect=APIError("gone"))
    bench.runtime.start_cluster()
    with pytest.raises(HarnessError, match="the log of broker"):
        bench.runtime.close()
    assert messages == ["end" if resumable else "remove"], "also if a log is not available"
    bench.runtime.close()
    assert len(messages) == 1


def test_a_paused_broker_that_is_killed_and_started_is_up(bench: ContainerCluster) -> None:
    bench.runtime.start_cluster()
    for act in (bench.runtime.pause, bench.runtime.kill):
        act(BROKER)
        assert not bench.runtime.is_up(BROKER)
    bench.runtime.start(BROKER)
    assert bench.runtime.is_up(BROKER)
    assert bench.brokers[BROKER].calls == ["start", "pause", "kill", "wait", "start"]


def test_brokers_of_a_resumed_run_keep_their_ports(bench: ContainerCluster) -> None:
    for broker, container in bench.brokers.items():
        container.attrs = {"HostConfig": {"PortBindings": {"9092/tcp": [{"HostPort": str(20000 + broker)}]}}}
    bench.runtime.adopt()
    assert [bench.runtime.address(broker).port for broker in (1, 2, 3)] == [20001, 20002, 20003]


def test_the_remedy_of_an_overlapping_network_is_told(bench: ContainerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    error = HarnessError("`docker compose up`: could not find an available, non-overlapping IPv4 address pool")
    monkeypatch.setattr(commands, "run", MagicMock(side_effect=error))
    with pytest.raises(BootError, match=r"^the containers cannot be started: the engine has no free subnet .*prune"):
        bench.runtime.start_cluster()


def test_rules_are_set_in_the_network_of_a_broker_and_of_no_other_process(
    bench: ContainerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, ...]] = []
    bench.runtime.start_cluster()
    bench.brokers[BROKER].attrs["State"] = {"Pid": os.getpid()}
    monkeypatch.setattr(commands, "run", lambda *words, **_: ran.append(words))
    with pytest.raises(HarnessError, match=f"process {os.getpid()} of this host is not broker 2"):
        ability(bench.runtime, LossyLinks).lose(BROKER, 0.2)
    assert ran == []
    monkeypatch.setattr(
        docker, "_control_groups", lambda _: f"0::/system.slice/docker-{bench.brokers[BROKER].id}.scope"
    )
    ability(bench.runtime, LossyLinks).lose(BROKER, 0.2)
    assert [words[:3] for words in ran] == [("nsenter", "--target", str(os.getpid()))] * 2
    bench.brokers[BROKER].attrs["NetworkSettings"] = {"Networks": {}}
    with pytest.raises(HarnessError, match="broker 2 is cut off from the run's network, and has no address there"):
        ability(bench.runtime, Firewalls).block([(BROKER, BROKER)])
