"""Brokers as containers, before a made-up engine: what is copied out of them, and how their ends are told."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from docker.errors import APIError, NotFound

from harness import commands, leftovers
from harness.errors import BootError, HarnessError
from harness.leftovers import Owner
from harness.runtimes import engine
from harness.runtimes.base import ClusterSpec
from harness.runtimes.docker import DockerRuntime
from harness.runtimes.recipe import recipe_for
from harness.targets import find_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

BROKER = 2
PORTS = (19001, 19002, 19003, 19004)


def packed(files: Mapping[str, bytes], folder: str = "topic-0") -> bytes:
    """Return a folder as the engine gives it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        top = tarfile.TarInfo(folder)
        top.type = tarfile.DIRTYPE
        tar.addfile(top)
        for name, held in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(held)
            tar.addfile(member, io.BytesIO(held))
    return content.getvalue()


@dataclass
class FakeContainer:
    """``archives``: what it gives by path, one after the other, the last again and again; None if it has no such path.

    ``told`` has what it was told to do, ``given`` what was put into it.
    """

    broker: int
    archives: dict[str, list[bytes | None]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    given: dict[str, bytes] = field(default_factory=dict)
    status: str = "running"
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"id-{self.broker}"

    @property
    def labels(self) -> dict[str, str]:
        return {"com.docker.compose.service": f"broker-{self.broker}"}

    def get_archive(self, path: str, chunk_size: int) -> tuple[Iterator[bytes], None]:
        left = self.archives.get(path, [None])
        content = left.pop(0) if len(left) > 1 else left[0]
        if content is None:
            raise NotFound("404", explanation=f"Could not find the file {path}")
        return iter([content[:chunk_size], content[chunk_size:]]), None

    def put_archive(self, path: str, data: bytes) -> None:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None
                self.given[f"{path}/{member.name}"] = content.read()

    def logs(self, **_: Any) -> Any:
        return b"[12:00:00] INFO started\n[12:00:01] ERROR no space left\n"

    def reload(self) -> None:
        self.told.append("reload")

    def start(self) -> None:
        self.told.append("start")


@dataclass
class Bench:
    """A runtime, its containers, and what compose was told."""

    runtime: DockerRuntime
    containers: dict[int, FakeContainer]
    composed: list[tuple[tuple[str, ...], dict[str, str]]]
    now: list[float]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    containers = {broker: FakeContainer(broker) for broker in (1, 2, 3)}
    composed: list[tuple[tuple[str, ...], dict[str, str]]] = []
    now = [0.0]

    def listed(**_: Any) -> list[dict[str, str]]:
        return [{"Id": c.id, "State": c.status} for c in containers.values() if c.status != "gone"]

    client: Any = SimpleNamespace(
        containers=SimpleNamespace(list=lambda **_: list(containers.values())),
        api=SimpleNamespace(containers=listed),
    )

    def command(*words: str, timeout_s: float, variables: dict[str, str]) -> str:
        assert timeout_s > 0
        composed.append((words, variables))
        return ""

    monkeypatch.setattr(commands, "run", command)
    spec = ClusterSpec("2026-A-Run", tmp_path, tmp_path / "logs", {"log.cleaner.threads": "3"}, ports=PORTS)
    recipe = recipe_for(find_target("kafka-3.9"), client)
    runtime = DockerRuntime(spec, client, ("compose",), image="sha256:1", recipe=recipe, now_s=lambda: now[0])
    return Bench(runtime, containers, composed, now)


def test_compose_is_given_the_brokers_that_the_run_has(bench: Bench, tmp_path: Path) -> None:
    bench.runtime.start_cluster()
    ((words, variables),) = bench.composed
    assert words[:1] == ("compose",)
    assert words[-5:] == ("up", "--no-start", "broker-1", "broker-2", "broker-3")
    assert variables["HARNESS_RUN_ID"] == "2026-A-Run"
    assert variables["HARNESS_IMAGE"] == "sha256:1"
    assert [variables[f"HARNESS_PORT_{broker}"] for broker in (1, 2, 3)] == ["19001", "19002", "19003"]
    assert "${HARNESS_PORT_7" in (tmp_path / "compose.yaml").read_text()
    assert [container.told for container in bench.containers.values()] == [["start"]] * 3


def test_brokers_are_configured_before_they_start(bench: Bench) -> None:
    bench.runtime.start_cluster()
    lines = bench.containers[BROKER].given["/mnt/shared/config/server.properties"].decode().splitlines()
    assert "listeners=CLIENT://0.0.0.0:9092,REPLICA://0.0.0.0:9094" in lines
    assert "advertised.listeners=CLIENT://127.0.0.1:19002,REPLICA://broker-2:9094" in lines
    assert "inter.broker.listener.name=REPLICA" in lines
    assert "controller.quorum.voters=1@broker-1:9093" in lines
    assert "log.dirs=/var/lib/kafka/data" in lines
    assert "log.cleaner.threads=3" in lines
    of_first = bench.containers[1].given["/mnt/shared/config/server.properties"].decode()
    assert "listeners=CLIENT://0.0.0.0:9092,REPLICA://0.0.0.0:9094,CONTROLLER://0.0.0.0:9093\n" in of_first


def test_a_copy_is_made_until_two_agree(bench: Bench, tmp_path: Path) -> None:
    before = packed({"0.log": b"old", "5.log": b"gone soon", "0.index": b"-", "partition.metadata": b"version: 0"})
    after = packed({"0.log": b"cleaned", "partition.metadata": b"version: 0", "0.log.cleaned": b"-"})
    archives: list[bytes | None] = [before, b"half an arch", after, after]
    bench.containers[BROKER].archives["/var/lib/kafka/data/topic-0"] = archives
    bench.runtime.start_cluster()
    bench.runtime.copy_partition(BROKER, "topic", 0, tmp_path / "copy")
    copied = {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}
    assert copied == {"0.log": b"cleaned", "partition.metadata": b"version: 0"}


def test_files_that_never_hold_still_are_no_snapshot(bench: Bench, tmp_path: Path) -> None:
    restless: list[bytes | None] = [packed({"0.log": b"x" * size}) for size in range(30)]
    bench.containers[BROKER].archives["/var/lib/kafka/data/topic-0"] = restless
    bench.runtime.start_cluster()
    with pytest.raises(HarnessError, match="topic-0 on broker 2 never held still for a copy"):
        bench.runtime.copy_partition(BROKER, "topic", 0, tmp_path / "copy")


def test_a_replica_that_is_not_there(bench: Bench, tmp_path: Path) -> None:
    bench.runtime.start_cluster()
    with pytest.raises(HarnessError, match=r"broker 2 has no folder of topic-0: .* Could not find the file"):
        bench.runtime.copy_partition(BROKER, "topic", 0, tmp_path / "copy")


def test_a_checkpoint_that_is_not_written_yet_is_left_out(bench: Bench, tmp_path: Path) -> None:
    held: list[bytes | None] = [packed({"meta.properties": b"version=1"}, folder=".")]
    bench.containers[BROKER].archives["/var/lib/kafka/data/meta.properties"] = held
    bench.runtime.start_cluster()
    bench.runtime.copy_checkpoints(BROKER, tmp_path / "copy")
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == {"meta.properties": b"version=1"}


@pytest.mark.parametrize(
    ("status", "state", "told"),
    [
        ("exited", {"OOMKilled": False, "ExitCode": 1}, r"broker 2 ended by itself \(exit code 1\)"),
        ("exited", {"OOMKilled": True, "ExitCode": 137}, r"broker 2 ended by itself \(out of memory\)"),
        ("gone", {}, "broker 2 ended: its container is gone"),
    ],
    ids=["by itself", "out of memory", "removed"],
)
def test_a_container_that_ended_is_told_with_the_reason(
    bench: Bench, status: str, state: dict[str, Any], told: str
) -> None:
    bench.runtime.start_cluster()
    bench.containers[BROKER].status = status
    bench.containers[BROKER].attrs = {"State": state}
    bench.runtime.raise_if_died()  # It has just looked.
    bench.now[0] += 1
    with pytest.raises(BootError, match=told) as raised:
        bench.runtime.raise_if_died()
    assert "started" not in str(raised.value)
    assert status == "gone" or "ERROR no space left" in str(raised.value)


def test_logs_are_stored_and_the_containers_left_to_the_user_when_kept(bench: Bench, tmp_path: Path) -> None:
    bench.containers[1].logs = lambda **_: iter([b"one\n", b"two\n"])  # type: ignore[method-assign]
    for broker in (2, 3):
        bench.containers[broker].logs = lambda **_: iter([b"other\n"])  # type: ignore[method-assign]
    bench.runtime.start_cluster()
    bench.runtime.close(keep=True)
    assert (tmp_path / "logs" / "1" / "server.log").read_text() == "one\ntwo\n"
    assert bench.runtime.is_up(1)


@pytest.mark.parametrize("resumable", [False, True])
def test_a_run_that_can_be_resumed_keeps_its_containers(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, resumable: bool
) -> None:
    leftovers.write_owner(tmp_path, Owner(1, 0.0, "2026-A-Run", "results", resumable=resumable))
    told: list[str] = []
    for verb in ("end", "remove"):
        monkeypatch.setattr(engine, verb, lambda *_, verb=verb: told.append(verb))

    def no_engine(**_: Any) -> Any:
        raise APIError("gone")

    for container in bench.containers.values():
        container.logs = no_engine  # type: ignore[method-assign]
    bench.runtime.start_cluster()
    with pytest.raises(HarnessError, match="the log of broker"):
        bench.runtime.close()
    assert told == ["end" if resumable else "remove"], "also where a log cannot be had"
    bench.runtime.close()
    assert len(told) == 1


def test_brokers_of_a_resumed_run_are_where_they_were(bench: Bench) -> None:
    for broker, container in bench.containers.items():
        container.attrs = {"HostConfig": {"PortBindings": {"9092/tcp": [{"HostPort": str(20000 + broker)}]}}}
    bench.runtime.adopt()
    assert [bench.runtime.address(broker).port for broker in (1, 2, 3)] == [20001, 20002, 20003]


def test_a_network_that_overlaps_is_told_with_the_remedy(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: str, **__: Any) -> str:
        raise HarnessError("`docker compose up`: could not find an available, non-overlapping IPv4 address pool")

    monkeypatch.setattr(commands, "run", refuse)
    with pytest.raises(BootError, match=r"^the containers cannot be brought up: the engine has no free subnet .*prune"):
        bench.runtime.start_cluster()
