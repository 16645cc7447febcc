"""Runs on other hosts: three network namespaces with a real sshd each, that share this host's files."""

import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from sandbox import DATA, GONE_S, Sandbox, takes_connections, wait_until

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_FAILED, EXIT_UNKNOWN, EXIT_USAGE
from harness.host import commands
from harness.host.network import NamespaceNetwork, create_network, remove_network
from harness.host.node_runs import WORK_ROOT, node_marker

pytestmark = pytest.mark.needs("sshd", "iptables")

TARGET = "kafka-3.9"
SSH_PORT, ANSWER_S = 22, 20
CONFIG = """\
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True)
class Rig:
    """Three hosts, and the means to log in to them."""

    network: NamespaceNetwork
    folder: Path

    @property
    def hosts(self) -> list[str]:
        return [self.network.address(broker) for broker in self.network.brokers]

    @property
    def fingerprint(self) -> str:
        return commands.run("ssh-keygen", "-lf", str(self.folder / "host_key.pub")).split()[1]

    def login(self, *, known: bool = True, with_key: bool = True) -> list[str]:
        trusted = ["--ssh-known-hosts", str(self.folder / ("known_hosts" if known else "none"))]
        key = ["--ssh-key", str(self.folder / "key")] if with_key else []
        return ["--runtime", "ssh", "--nodes", ",".join(self.hosts), "--ssh-user", "root", *trusted, *key]

    def chains(self) -> list[str]:
        iptables = (commands.find("iptables") or "iptables", "-S")
        listed = [commands.run(*self.network.prefix(broker), *iptables) for broker in self.network.brokers]
        return [line for text in listed for line in text.splitlines() if line.startswith("-N ch-")]


@pytest.fixture(scope="session")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("rig")
    for name in ("host_key", "key"):
        make_key(str(folder / name))
    run_id = f"test-{secrets.token_hex(4)}"
    network = create_network(run_id, (1, 2, 3))
    daemons = []
    try:
        subject = Rig(network, folder)
        public = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text("".join(f"{host} {public}" for host in subject.hosts))
        (folder / "none").write_text("")
        Path("/run/sshd").mkdir(exist_ok=True)
        for broker in network.brokers:
            config = folder / f"sshd-{broker}"
            config.write_text(CONFIG.format(address=network.address(broker), folder=folder))
            command = [*network.prefix(broker), commands.find("sshd") or "sshd", "-D", "-e", "-f", str(config)]
            with (folder / f"sshd-{broker}.log").open("wb") as log:
                daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        for host in subject.hosts:
            wait_until(lambda host=host: takes_connections(host, SSH_PORT), ANSWER_S, f"sshd on {host}")  # type: ignore[misc]
        yield subject
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.wait()
        remove_network(run_id)


def make_key(path: str) -> None:
    commands.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)


def left_on_nodes(rig: Rig, run_id: str) -> list[str]:
    brokers = [p for p in psutil.process_iter(["cmdline"]) if node_marker(run_id) in (p.info["cmdline"] or ())]
    processes = [f"process {p.pid}" for p in brokers]
    return processes + rig.chains() + [str(path) for path in Path(WORK_ROOT).glob(run_id)]


@pytest.mark.parametrize("nemesis", ["kill", "partition"])
def test_an_anomaly_on_other_hosts(sandbox: Sandbox, rig: Rig, nemesis: str) -> None:
    sandbox.run(TARGET, "--anomaly", "stuck-lso", "--nemesis", nemesis, *rig.login()).end(EXIT_ANOMALY)
    folder = sandbox.latest(TARGET, "stuck-lso")
    runtime = json.loads((folder / "manifest.json").read_text())["runtime"]
    assert runtime["name"] == "ssh"
    assert sorted(runtime["nodes"]) == sorted(f"root@{host}:22" for host in rig.hosts)
    assert all("started" in (folder / "logs" / str(b) / "server.log").read_text() for b in (1, 2, 3))
    assert left_on_nodes(rig, folder.name) == []


def test_a_pause_by_an_agents_key(sandbox: Sandbox, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    door = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", door], stdout=subprocess.DEVNULL)
    try:
        wait_until(door.exists, ANSWER_S, "the agent")
        commands.run("ssh-add", str(rig.folder / "key"), variables={"SSH_AUTH_SOCK": str(door)})
        monkeypatch.setenv("SSH_AUTH_SOCK", str(door))
        chosen = ("--anomaly", "stuck-lso", "--nemesis", "pause", *rig.login(with_key=False))
        ran = sandbox.run(TARGET, *chosen, "--format", "json").end(EXIT_ANOMALY)
    finally:
        agent.kill()
        agent.wait()
    assert {finding["broker"] for finding in ran.verdict["findings"]} == {2}


def test_a_host_that_is_not_known_is_refused_and_can_be_pinned(sandbox: Sandbox, rig: Rig) -> None:
    chosen = ("--anomaly", "stuck-lso", *rig.login(known=False))
    ran = sandbox.run(TARGET, *chosen).end(EXIT_USAGE)
    assert "its host key is unknown" in ran.stderr
    assert f"--ssh-host-key {rig.fingerprint}" in ran.stderr
    assert not sandbox.results.exists()
    sandbox.run(TARGET, *chosen, "--ssh-host-key", rig.fingerprint).end(EXIT_ANOMALY)


SSH_CONFIG = """\
Host *
    User root
    IdentityFile {folder}/key
Host n1
    HostName {hosts[0]}
    ProxyCommand bash -c 'touch {folder}/proxied; exec 3<>/dev/tcp/%h/%p; cat <&3 & cat >&3; kill $!'
Host n2
    HostName {hosts[1]}
    ProxyJump n1
Host n3
    HostName {hosts[2]}
    ProxyJump n1,n2
"""


def test_hosts_of_an_ssh_configuration(sandbox: Sandbox, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
    monkeypatch.setenv("HOME", str(sandbox.root))
    folder = sandbox.root / ".ssh"
    folder.mkdir()
    (folder / "config").write_text(SSH_CONFIG.format(folder=rig.folder, hosts=rig.hosts))
    chosen = ("--anomaly", "stuck-lso", "--runtime", "ssh", "--nodes", "n1,n2,n3")
    ran = sandbox.run(TARGET, *chosen).end(EXIT_USAGE)
    assert "its host key is unknown" in ran.stderr
    (folder / "known_hosts").write_text((rig.folder / "known_hosts").read_text())
    sandbox.run(TARGET, *chosen).end(EXIT_ANOMALY)
    run = sandbox.latest(TARGET, "stuck-lso")
    nodes = json.loads((run / "manifest.json").read_text())["runtime"]["nodes"]
    assert sorted(nodes) == ["root@n1:22", "root@n2:22", "root@n3:22"]
    for host, jump in ((2, 1), (3, 2)):
        log = (rig.folder / f"sshd-{host}.log").read_text()
        assert f"Accepted publickey for root from {rig.hosts[jump - 1]} " in log
    assert (rig.folder / "proxied").exists()
    assert left_on_nodes(rig, run.name) == []


@pytest.mark.commit
def test_a_host_that_refuses_the_key(sandbox: Sandbox, rig: Rig) -> None:
    another = str(sandbox.root / "another")
    make_key(another)
    ran = sandbox.run(TARGET, "--anomaly", DATA, *rig.login(), "--ssh-key", another).end(EXIT_USAGE)
    assert "it refuses the key of root" in ran.stderr


def test_killed_in_a_partition(sandbox: Sandbox, rig: Rig) -> None:
    going = sandbox.run(TARGET, "--anomaly", "stuck-lso", "--nemesis", "partition", *rig.login())
    going.wait_for_stage("clean")
    run_id = sandbox.latest(TARGET, "stuck-lso").name
    assert len(rig.chains()) == 1
    going.process.kill()
    assert going.end().code == -signal.SIGKILL
    sandbox.wait_until_nothing_is_left()
    wait_until(lambda: not left_on_nodes(rig, run_id), GONE_S, "nothing to be left on the nodes")


def test_a_host_that_disappears_in_mid_run_is_cleaned_once_it_is_back(sandbox: Sandbox, rig: Rig) -> None:
    going = sandbox.run(TARGET, "--anomaly", "stuck-lso", *rig.login())
    going.wait_for_stage("clean")
    run_id = sandbox.latest(TARGET, "stuck-lso").name
    rig.network.cut(3)
    try:
        ran = going.end()
    finally:
        rig.network.heal(3)
    assert ran.code in {EXIT_UNKNOWN, EXIT_FAILED}, ran.output
    assert rig.hosts[2] in ran.output
    assert "Traceback" not in ran.stderr
    sandbox.call("clean", code=EXIT_CLEAN)
    assert left_on_nodes(rig, run_id) == []
    assert os.listdir(sandbox.work_root) == []  # noqa: PTH208  (names are what a failure should show)
