"""Hosts for brokers: how they are named, which are refused, and the end of a run on some that do not answer."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import paramiko
import pytest
from paramiko.ssh_exception import AuthenticationException, BadHostKeyException, SSHException

from harness.errors import HarnessError, UsageError
from harness.host import node_runs, nodes
from harness.host.leftovers import NODES_FILE
from harness.host.nodes import Access, Node, NodeConnection, parse_nodes, read_hosts_file
from harness.json_codec import from_json, to_json

NODE = Node("n1", 22, "root")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for ``~/.ssh``, so that this user's own file does not matter."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path / ".ssh"


@pytest.mark.parametrize(("text", "node"), [
    ("n1", Node("n1", 2022, "me")),
    ("n1:22", Node("n1", 22, "me")),
    ("root@10.0.0.1", Node("10.0.0.1", 2022, "root")),
    (" root@n1:22 ", Node("n1", 22, "root")),
])  # fmt: skip
def test_a_host_may_have_a_user_and_a_port(text: str, node: Node) -> None:
    assert parse_nodes([text], user="me", port=2022) == (node,)


@pytest.mark.parametrize("text", ["", "root@", "@n1", "n1:", "n1:ssh"])
def test_malformed_hosts_are_rejected(text: str) -> None:
    with pytest.raises(UsageError, match=r"give hosts as \[user@\]host\[:port\]"):
        parse_nodes(["n0", text])


CONFIG = """\
Host n1 n2
    HostName 10.0.0.1
Host n1
    User kafka
    Port 2022
Host *
    User someone
"""


def test_the_ssh_configuration_names_hosts_users_and_ports(home: Path) -> None:
    (home / "config").write_text(CONFIG)
    (node,) = parse_nodes(["n1"])
    assert node == Node("10.0.0.1", 2022, "kafka")
    assert str(node) == "kafka@n1:2022"
    assert parse_nodes([str(node)]) == (node,)
    assert parse_nodes(["root@n1:22", "n3"]) == (Node("10.0.0.1", 22, "root"), Node("n3", 22, "someone"))
    assert parse_nodes(["n1"], user="me", port=23) == (Node("10.0.0.1", 23, "me"),)
    with pytest.raises(UsageError, match="kafka@n2:2022 is named twice"):
        parse_nodes(["n1", "kafka@n2:2022"])


@pytest.mark.parametrize(
    ("text", "message"),
    [("Host n1\n  Port ssh\n", r"'n1': give hosts as"), ("Host 'n1\n", r"\.ssh/config cannot be read: ")],
)
def test_a_malformed_ssh_configuration_is_rejected(home: Path, text: str, message: str) -> None:
    (home / "config").write_text(text)
    with pytest.raises(UsageError, match=message):
        parse_nodes(["n1"])


def test_a_jump_to_the_host_itself_is_no_jump(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config").write_text("Host *\n  ProxyJump root@n1\n  IdentityFile ~/.ssh/missing\n")
    connect = Mock()
    monkeypatch.setattr(paramiko.SSHClient, "connect", connect)
    NodeConnection(NODE, Access((NODE,))).close()
    options = connect.call_args.kwargs
    assert (options["sock"], options["key_filename"], options["look_for_keys"]) == (None, None, True)


def test_a_hosts_file_has_lines_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    with pytest.raises(UsageError, match="hosts cannot be read: No such file"):
        read_hosts_file(path)
    path.write_text("# none\n")
    with pytest.raises(UsageError, match="hosts names no host"):
        read_hosts_file(path)
    path.write_text("# the rig\nn1\n\nroot@n2:2022  # in the other rack\n")
    assert read_hosts_file(path) == ["n1", "root@n2:2022"]


def test_an_access_can_be_stored() -> None:
    access = Access((NODE, Node("n2", 2022, "kafka")), key="id_ed25519", pins=("SHA256:abc",))
    assert from_json(Access, to_json(access)) == access


KEY = paramiko.RSAKey.generate(1024)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError("timed out"), "timed out"),
        (AuthenticationException("Authentication failed."), "it refuses the key of root (Authentication failed.)"),
        (BadHostKeyException("n1", KEY, KEY), f"its host key has changed (now {KEY.fingerprint})"),
        (SSHException("Error reading SSH protocol banner"), "Error reading SSH protocol banner"),
    ],
    ids=["silent", "the key", "another host", "no ssh"],
)
def test_a_failed_login_has_its_reason(monkeypatch: pytest.MonkeyPatch, error: Exception, expected: str) -> None:
    monkeypatch.setattr(paramiko.SSHClient, "connect", Mock(side_effect=error))
    with pytest.raises(UsageError) as refused:
        NodeConnection(NODE, Access((NODE,)))
    assert str(refused.value).startswith("login to root@n1:22 failed: ")
    assert expected in str(refused.value)


def test_an_unknown_host_key_is_rejected_unless_it_is_pinned_or_known(tmp_path: Path) -> None:
    pattern = re.escape(f"give --ssh-host-key {KEY.fingerprint}")
    with pytest.raises(SSHException, match=pattern):
        nodes._Pinned(["SHA256:another"]).missing_host_key(None, "n1", KEY)
    nodes._Pinned([KEY.fingerprint]).missing_host_key(None, "n1", KEY)
    with pytest.raises(UsageError, match=r"login to root@n1:22 failed: .*No such file"):
        NodeConnection(NODE, Access((NODE,), known_hosts=str(tmp_path / "known_hosts")))


def test_a_node_that_cannot_be_reached_is_no_reason_to_leave_brokers_on_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(tuple(Node(host, 22, "u") for host in ("n1", "n2", "n3")))
    (tmp_path / NODES_FILE).write_text(json.dumps(to_json(access)))
    shells = {host: Mock(return_value="") for host in ("n2", "n3")}

    def log_in(node: Node, _access: Access) -> Mock:
        if node.host == "n1":
            raise UsageError("login to u@n1:22 failed: no route to host")
        return Mock(shell=shells[node.host])

    monkeypatch.setattr(node_runs, "NodeConnection", log_in)
    with pytest.raises(UsageError, match="no route to host"):
        node_runs.remove(tmp_path, "run")
    kills = [sum("kill -KILL" in call.args[0] for call in shell.call_args_list) for shell in shells.values()]
    assert kills == [1, 1]


@pytest.mark.parametrize(("host", "message"), [("::1", "::1:22 has no IPv4 address"), ("127.0.0.1", None)])
def test_a_fault_of_links_needs_ipv4(host: str, message: str | None) -> None:
    connection = Mock(node=replace(NODE, host=host))
    with pytest.raises(UsageError, match=message) if message else nullcontext():
        node_runs.raise_if_no_firewall(connection)
    assert connection.shell.called == (message is None)


def test_a_command_without_an_exit_status_is_not_awaited_for_ever() -> None:
    stream = Mock(channel=paramiko.Channel(0), **{"read.return_value": b""})
    connection = Mock(
        spec=NodeConnection, node=NODE, _client=Mock(**{"exec_command.return_value": (None, stream, stream)})
    )
    with pytest.raises(HarnessError, match=r"root@n1:22 does not answer: it sent no exit status in 0.1 s"):
        NodeConnection.shell(connection, "true", timeout_s=0.1)
