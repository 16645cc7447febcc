"""Brokers as processes: their command lines, environments and data folders, and what a power failure leaves."""

import os
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from fakes.runtime import FakeRuntime

from harness.errors import BootError, HarnessError
from harness.host import commands
from harness.host.clock import RealClock
from harness.host.network import NamespaceNetwork
from harness.kafka_api.security import read_security
from harness.protect.gate.build import Agent
from harness.runtimes import power
from harness.runtimes.base import ClusterSpec
from harness.runtimes.local import LocalRuntime
from harness.runtimes.power import LocalFiles

BOUND_S = 30.0


def runtime(folder: Path, script: str) -> LocalRuntime:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return LocalRuntime(ClusterSpec("a-run", folder / "work", folder / "logs", {}), java, "jars")


def test_brokers_get_the_environment_as_the_harness_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One that inherits it while pyspark's thread changes it fails to start: execve answers EFAULT.
    monkeypatch.setenv("HARNESS_TEST", "before")
    subject = runtime(tmp_path, 'echo "started $HARNESS_TEST"')
    monkeypatch.setenv("HARNESS_TEST", "after")
    subject.start_cluster()
    logs = [tmp_path / "logs" / str(broker) / "server.log" for broker in subject.brokers]
    RealClock().wait_until(lambda: all(log.read_text() for log in logs), BOUND_S, "three lines")
    subject.close()
    assert [log.read_text() for log in logs] == ["started before\n"] * 3
    assert os.environ["HARNESS_TEST"] == "after"


def test_only_the_controller_has_a_controller_listener(tmp_path: Path) -> None:
    subject = runtime(tmp_path, "true")
    subject.start_cluster()
    subject.close()
    texts = {b: (tmp_path / "work" / f"broker-{b}" / "server.properties").read_text() for b in subject.brokers}
    assert {b for b, text in texts.items() if "process.roles=broker,controller\n" in text} == {1}
    assert {b for b, text in texts.items() if ",CONTROLLER://" in text} == {1}
    (voters,) = {line for text in texts.values() for line in text.splitlines() if "quorum.voters" in line}
    assert re.fullmatch(r"controller\.quorum\.voters=1@127\.0\.0\.1:\d+", voters)


def test_storage_that_cannot_be_formatted_is_reported_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BootError, match=r"broker \d: its storage cannot be formatted:\n.*no space"):
        runtime(tmp_path, "echo no space >&2; exit 1").start_cluster()


def test_no_argument_of_a_process_has_the_password_of_a_user(tmp_path: Path) -> None:
    jaas = 'sasl.jaas.config=ScramLoginModule required username="ann" password="a-secret";'
    (tmp_path / "login").write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n{jaas}\n")
    without = runtime(tmp_path, f'echo "$@" >> {tmp_path}/arguments')
    spec = replace(without.spec, security=read_security(tmp_path / "login"))
    subject = LocalRuntime(spec, without.java, "jars")
    subject.start_cluster()
    arguments = tmp_path / "arguments"
    RealClock().wait_until(lambda: len(arguments.read_text().splitlines()) == 6, BOUND_S, "three formats and brokers")
    subject.close()
    assert arguments.read_text().count(f"@{tmp_path}/work/broker-") == 3
    assert "a-secret" not in arguments.read_text()
    user = (tmp_path / "work" / "broker-1" / "scram-user").read_text()
    assert user == "--add-scram\nSCRAM-SHA-512=[name=ann,password=a-secret]\n"


def test_without_a_network_nothing_can_be_cut(tmp_path: Path) -> None:
    for verb in (runtime(tmp_path, "true").cut, runtime(tmp_path, "true").heal):
        with pytest.raises(HarnessError, match=r"broker 2 cannot be cut off: .* needs a network namespace for each"):
            verb(2)


@pytest.fixture
def networked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalRuntime:
    """Make a runtime in namespaces that are made up: ``ip`` writes down its arguments, and becomes a command."""
    ip, java = tmp_path / "ip", tmp_path / "java"
    ip.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/arguments\n[ $1 = link ] && exit\nshift 3\nexec "$@"\n')
    java.write_text('#!/bin/sh\necho "$$ $@"\ncase "$@" in *StorageTool*) ;; *) exec sleep 30;; esac\n')
    for script in (ip, java):
        script.chmod(0o755)
    monkeypatch.setitem(commands.ENVIRONMENT, "PATH", f"{tmp_path}:{os.environ['PATH']}")
    spec = ClusterSpec("a-run", tmp_path / "work", tmp_path / "logs", {}, controllers=(3,))
    its_network = NamespaceNetwork(spec.run_id, spec.brokers, IPv4Network("10.1.2.0/24"))
    return LocalRuntime(spec, java, "jars", its_network)


def test_a_broker_in_a_namespace_keeps_its_pid_and_has_its_own_address(networked: LocalRuntime, tmp_path: Path) -> None:
    with closing(networked):
        networked.start_cluster()
        logs = {b: tmp_path / "logs" / str(b) / "server.log" for b in networked.brokers}
        RealClock().wait_until(lambda: all(log.read_text() for log in logs.values()), BOUND_S, "three lines")
        for broker, log in logs.items():
            pid, *arguments = log.read_text().split()
            assert networked._processes[broker].pid == int(pid)
            assert "-Dharness.run=a-run" in arguments
    result = (tmp_path / "arguments").read_text().splitlines()
    assert sorted(" ".join(line.split()[:3]) for line in result) == [f"netns exec ch-a-run-{b}" for b in (1, 2, 3)]
    assert [networked.address(broker).host for broker in (1, 2, 3)] == ["10.1.2.1", "10.1.2.2", "10.1.2.3"]
    texts = {b: (tmp_path / "work" / f"broker-{b}" / "server.properties").read_text() for b in networked.brokers}
    for broker, text in texts.items():
        assert f"\nlisteners=CLIENT://{networked.address(broker)}" in text
        assert "\ncontroller.quorum.voters=3@10.1.2.3:" in text
    assert ",CONTROLLER://10.1.2.3:" in texts[3]


def test_a_disconnected_broker_is_not_up_and_has_not_died(networked: LocalRuntime, tmp_path: Path) -> None:
    with closing(networked):
        networked.start_cluster()
        networked.cut(2)
        assert [broker for broker in networked.brokers if networked.is_up(broker)] == [1, 3]
        networked.raise_if_died()
        networked.heal(2)
        assert all(networked.is_up(broker) for broker in networked.brokers)
    links = [line.split() for line in (tmp_path / "arguments").read_text().splitlines() if line.startswith("link")]
    assert [line[-1] for line in links] == ["down", "up"]
    assert all(line[2].endswith("-2") for line in links)


SUFFIXES = (".cleaned", ".swap")
CLEANED = "t-0/00000000000000000000.log.cleaned"
AGENT = Agent(Path("notes.jar"))


@dataclass
class Processes(FakeRuntime):
    """``on_pause`` and ``on_kill`` change the files on disk."""

    on_pause: Callable[[], object] = lambda: None
    on_kill: Callable[[], object] = lambda: None

    def kill(self, broker: int) -> None:
        super().kill(broker)
        self.on_kill()

    def pause(self, broker: int) -> None:
        super().pause(broker)
        self.on_pause()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(power, "WATCH_S", 0.01)
    for folder in ("t-0", "__cluster_metadata-0"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").write_bytes(bytes(3))
    (tmp_path / "data" / "__cluster_metadata-0" / "a.checkpoint.swap").write_bytes(b"x")
    return tmp_path / "data"


def test_a_broker_is_killed_with_such_a_file_and_resumed_if_the_file_vanished(data: Path) -> None:
    processes = Processes()
    files = LocalFiles(processes, lambda _: data)
    assert (files.kill_with_files(2, SUFFIXES), processes.actions) == ({}, []), "there is no such file"
    (data / CLEANED).write_bytes(bytes(12))
    assert (files.kill_with_files(2, SUFFIXES), processes.actions) == ({CLEANED: 12}, ["pause 2", "kill 2"])
    processes.on_pause = (data / CLEANED).unlink
    processes.actions.clear()
    assert (files.kill_with_files(2, SUFFIXES), processes.actions) == ({}, ["pause 2", "resume 2"])


def test_unsynced_data_are_removed(data: Path) -> None:
    processes = Processes(on_kill=lambda: (data / "t-0" / "late").write_bytes(bytes(4)))
    subject = LocalFiles(processes, lambda _: data, AGENT)
    subject.begin_notes([2])
    log = data / "t-0" / "00000000000000000000.log"
    log.write_bytes(bytes(12))
    with (data.parent / "synced").open("a") as notes:
        notes.write("sync\t5\tt-0/00000000000000000000.log\n")
    assert [file_cut.file for file_cut in subject.unsynced(2)] == ["t-0/00000000000000000000.log"]
    cuts = [(file_cut.file, file_cut.from_bytes, file_cut.to_bytes) for file_cut in subject.cut_power(2)]
    assert cuts == [("t-0/00000000000000000000.log", 12, 5), ("t-0/late", 4, 0)]
    assert (log.stat().st_size, (data / "meta.properties").stat().st_size, processes.actions) == (5, 3, ["kill 2"])
    assert subject.unsynced(2) == []


def test_only_brokers_with_the_agent_have_notes(data: Path) -> None:
    subject = LocalFiles(Processes(), lambda _: data)
    subject.begin_notes([2])
    assert subject.flags(2) == []
    assert not (data.parent / "synced").exists()
    for act in (subject.unsynced, subject.cut_power):
        with pytest.raises(HarnessError, match="are not brokers that record their syncs to disk"):
            act(2)
    with_agent = LocalFiles(Processes(), lambda _: data, AGENT)
    assert with_agent.flags(2) == [f"-javaagent:notes.jar={data.parent}/synced={data}"]
