"""Networks of real namespaces: who reaches whom, and that nothing remains of them."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from sandbox import Sandbox, completed, wait_until

from harness.host import commands, leftovers, network
from harness.host.network import NAMESPACES, NamespaceNetwork, create_network, remove_network, why_impossible
from harness.run_folder.store import new_run_id

pytestmark = [pytest.mark.needs("namespaces"), pytest.mark.commit]

PORT = 20_000
BOUND_S = 20.0
CONNECT_S = 1.0

SERVE = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as server:
    while True:
        connection, _ = server.accept()
        connection.sendall(sys.argv[1].encode())
        connection.close()
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])) as connection:
    print(connection.recv(100).decode())
"""
OWN = """
import sys
from pathlib import Path
from harness.host.leftovers import process_marker
from harness.host.network import create_network
from harness.host.workspace import Workspace
import subprocess
run_id = sys.argv[1]
workspace = Workspace(run_id, Path(sys.argv[2]))
network = create_network(run_id, (1, 2, 3))
subprocess.Popen([*network.prefix(1), sys.executable, "-c", "import sys; sys.stdin.read()", process_marker(run_id)],
                 stdin=subprocess.PIPE, start_new_session=True)
print(network.address(1), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def make_network() -> Iterator[Callable[..., NamespaceNetwork]]:
    with ExitStack() as stack:

        def make(brokers: tuple[int, ...] = (1, 2, 3)) -> NamespaceNetwork:
            run_id = f"test-{new_run_id()}"
            stack.callback(remove_network, run_id)
            return create_network(run_id, brokers)

        yield make


@pytest.fixture
def net(make_network: Callable[[], NamespaceNetwork]) -> NamespaceNetwork:
    return make_network()


@pytest.fixture
def served_net(net: NamespaceNetwork) -> Iterator[NamespaceNetwork]:
    """Make a network with a server in each namespace."""
    with ExitStack() as stack:
        for broker in net.brokers:
            stack.enter_context(serving(net, broker))
        yield net


@contextmanager
def serving(net: NamespaceNetwork, broker: int) -> Iterator[subprocess.Popen[bytes]]:
    """Have a server in the broker's namespace that answers with its address."""
    server = subprocess.Popen([*net.prefix(broker), sys.executable, "-c", SERVE, net.address(broker), str(PORT)])
    try:
        wait_until(lambda: host_reaches(net, broker), BOUND_S, "the server")
        yield server
    finally:
        server.kill()
        server.wait(BOUND_S)


def host_reaches(net: NamespaceNetwork, broker: int) -> bool:
    with suppress(OSError), socket.create_connection((net.address(broker), PORT), timeout=CONNECT_S) as connection:
        return connection.recv(100).decode() == net.address(broker)
    return False


def reaches(net: NamespaceNetwork, asking: int, asked: int) -> bool:
    command = [sys.executable, "-c", ASK, net.address(asked), str(PORT), str(CONNECT_S)]
    return completed(*net.prefix(asking), *command, timeout_s=BOUND_S).stdout.strip() == net.address(asked)


def left_of(run_id: str) -> list[str]:
    """Return the names of the run's namespaces and links; other users may have some meanwhile."""
    return sorted([path.name for path in NAMESPACES.glob(f"ch-{run_id}*")] + links_of(run_id))


def links_of(run_id: str) -> list[str]:
    return [name for _, name in socket.if_nameindex() if name.startswith(network._bridge(run_id))]


def test_a_process_inside_is_its_starters_own_child(net: NamespaceNetwork) -> None:
    with serving(net, 2) as server:
        arguments = Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0")
        assert arguments[0] == sys.executable.encode()
        assert Path(f"/proc/{server.pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()
        server.send_signal(signal.SIGKILL)
        assert server.wait(BOUND_S) == -signal.SIGKILL


def test_one_that_is_cut_off_reaches_nobody_and_the_others_go_on(served_net: NamespaceNetwork) -> None:
    net = served_net
    assert [(a, b) for a in net.brokers for b in net.brokers if not reaches(net, a, b)] == []
    net.cut(2)
    assert not host_reaches(net, 2)
    assert not reaches(net, 1, 2)
    assert not reaches(net, 2, 1)
    assert reaches(net, 2, 2), "it reaches itself"
    assert reaches(net, 1, 3)
    assert host_reaches(net, 1)
    net.heal(2)
    wait_until(lambda: host_reaches(net, 2), BOUND_S, "the host to reach it again")
    wait_until(lambda: reaches(net, 1, 2) and reaches(net, 2, 1), BOUND_S, "brokers to reach each other")


def test_a_connection_outlives_a_cut_and_loses_nothing(net: NamespaceNetwork) -> None:
    echo = SERVE.replace("connection.sendall(sys.argv[1].encode())", "connection.sendall(connection.recv(100))")
    server = subprocess.Popen([*net.prefix(2), sys.executable, "-c", echo, net.address(2), str(PORT)])
    with ExitStack() as stack:
        stack.callback(server.wait, BOUND_S)
        stack.callback(server.kill)
        connections: list[socket.socket] = []

        def connect() -> bool:
            with suppress(OSError):
                connections.append(socket.create_connection((net.address(2), PORT), timeout=BOUND_S))
            return bool(connections)

        wait_until(connect, BOUND_S, "the server")
        connection = stack.enter_context(connections[0])
        net.cut(2)
        connection.sendall(b"sent while cut off")
        connection.settimeout(CONNECT_S)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        net.heal(2)
        connection.settimeout(BOUND_S)
        assert connection.recv(100) == b"sent while cut off"


def test_two_networks_at_once_do_not_disturb_each_other(make_network: Callable[..., NamespaceNetwork]) -> None:
    one, other = make_network(), make_network((1, 2, 3, 4, 5, 6, 7))
    assert not one.subnet.overlaps(other.subnet)
    with serving(one, 2), serving(other, 2):
        one.cut(2)
        assert not host_reaches(one, 2)
        assert host_reaches(other, 2)
        assert not reaches(other, 1, 1), "nobody serves there"
        assert reaches(other, 7, 2)
    assert remove_network(one.run_id) == 3
    with serving(other, 7):
        assert reaches(other, 1, 7)


def test_removed_twice_nothing_is_left(make_network: Callable[..., NamespaceNetwork]) -> None:
    net = make_network((1, 2, 3, 4, 5))
    assert len(links_of(net.run_id)) == 6
    assert net.address(254) in commands.run("ip", "address")
    assert remove_network(net.run_id) == 5
    assert remove_network(net.run_id) == 0
    assert left_of(net.run_id) == []
    assert net.address(254) not in commands.run("ip", "address")


def test_a_network_that_lost_its_parts_is_removed(net: NamespaceNetwork) -> None:
    commands.run("ip", "netns", "delete", f"ch-{net.run_id}-2")
    commands.run("ip", "link", "delete", network._bridge(net.run_id))
    assert remove_network(net.run_id) == 2
    assert left_of(net.run_id) == []


def test_the_probe_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "of-this-test")
    assert why_impossible() is None
    assert left_of("probe-of-this-test") == []


def test_the_keeper_removes_the_network_of_an_owner_that_is_killed(tmp_path: Path) -> None:
    run_id = f"test-{new_run_id()}"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", OWN, run_id, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline().strip(), "the address of its first broker"
            assert len(left_of(run_id)) == 7
            wait_until(lambda: leftovers.processes_of(run_id), BOUND_S, "a process inside")
        finally:
            owner.kill()
    directory = tmp_path / f"compaction-harness-{os.getuid()}" / run_id
    wait_until(lambda: not directory.exists(), BOUND_S, "the keeper to have removed the run")
    assert left_of(run_id) == []
    assert leftovers.processes_of(run_id) == []


def test_clean_finds_a_network_that_outlived_its_run(sandbox: Sandbox) -> None:
    # The same state as when harness and keeper were killed during a command: no work directory, no process.
    orphan, living = new_run_id(), new_run_id()
    with ExitStack() as stack:
        for run_id in (orphan, living):
            stack.callback(remove_network, run_id)
            create_network(run_id, (1, 2, 3))
        command = [sys.executable, "-c", "import sys; sys.stdin.read()", leftovers.process_marker(living)]
        process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE))
        stack.callback(process.kill)
        cleaned = sandbox.call("clean")
        assert f"removed the network of {orphan}" in cleaned.stdout, cleaned.output
        assert left_of(orphan) == []
        assert len(left_of(living)) == 7
    assert left_of(living) == []
