"""Hosts of brokers, reached by SSH: their names, the verification of their host keys, and commands on them.

``~/.ssh/config`` applies: HostName, Port, User, IdentityFile, ProxyJump and ProxyCommand. Unknown host keys are
rejected in any case.
"""

import getpass
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import paramiko
from paramiko.ssh_exception import AuthenticationException, BadHostKeyException, NoValidConnectionsError, SSHException

from harness.errors import HarnessError, UsageError, raised_as
from harness.suggest import quoted

PORT, LAST_PORT = 22, 65_535
_NODE = re.compile(r"((?P<user>[^@:/\s]{1,64})@)?(?P<host>[\w.-]{1,253})(:(?P<port>[0-9]{1,5}))?")
CONNECT_TIMEOUT_S = 10.0
COMMAND_TIMEOUT_S, FILES_TIMEOUT_S = 60.0, 20.0
KEEPALIVE_S = 5


@dataclass(frozen=True)
class Node:
    """A host, and the user of the login. ``alias``: its name in ``~/.ssh/config``."""

    host: str
    port: int
    user: str
    alias: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Return the form of ``--nodes``."""
        return f"{self.user}@{self.alias or self.host}:{self.port}"


@dataclass(frozen=True)
class Access:
    """The parameters of logins, without secrets. ``pins``: fingerprints (``SHA256:…``) of trusted host keys.

    ``key``: the path of a private key; None: the agent's and the user's keys. ``known_hosts``: None: the user's file.
    """

    nodes: tuple[Node, ...]
    key: str | None = None
    known_hosts: str | None = None
    pins: tuple[str, ...] = ()


def parse_nodes(texts: Sequence[str], *, user: str | None = None, port: int | None = None) -> tuple[Node, ...]:
    """Return the nodes of ``[user@]host[:port]`` texts, with ``user`` and ``port`` where a text has none.

    Raises `UsageError` for other texts and for duplicates.
    """
    nodes = tuple(_parse_node(text.strip(), user, port) for text in texts)
    twice = sorted({str(node) for node in nodes if nodes.count(node) > 1})
    if twice:
        raise UsageError(f"{', '.join(twice)} is named twice: every broker needs a separate host")
    return nodes


def read_hosts_file(path: Path) -> list[str]:
    """Return the hosts in the lines of a file, without comments. Raises `UsageError`."""
    with raised_as(UsageError, f"the hosts file {path} cannot be read", OSError):
        lines = path.read_text().splitlines()
    hosts = [host for line in lines if (host := line.partition("#")[0].strip())]
    if not hosts:
        raise UsageError(f"the hosts file {path} names no host")
    return hosts


class NodeConnection:
    """A login on a node, open until closed."""

    def __init__(self, node: Node, access: Access, jumps: str | None = None) -> None:
        """Log in. Raises `UsageError` with a remedy if the login fails. ``jumps``: in place of the file's ProxyJump."""
        self.node = node
        self._jump: NodeConnection | None = None
        options = _ssh_options(node.alias or node.host)
        keys = access.key or [path for path in options.get("identityfile", ()) if Path(path).exists()] or None
        self._client = paramiko.SSHClient()
        self._client.set_missing_host_key_policy(_Pinned(access.pins))
        try:
            if access.known_hosts is None:
                self._client.load_system_host_keys()
            else:
                self._client.load_host_keys(access.known_hosts)
            self._client.connect(
                node.host,
                port=node.port,
                username=node.user,
                key_filename=keys,  # type: ignore[arg-type]  # a list, too
                look_for_keys=keys is None,
                sock=self._route(access, jumps or options.get("proxyjump", "none"), options.get("proxycommand")),
                timeout=CONNECT_TIMEOUT_S,
                banner_timeout=CONNECT_TIMEOUT_S,
                auth_timeout=CONNECT_TIMEOUT_S,
            )
        except (OSError, SSHException) as error:
            self.close()
            raise UsageError(f"login to {node} failed: {_why(error, node)}") from error
        if transport := self._client.get_transport():
            transport.set_keepalive(KEEPALIVE_S)

    def _route(self, access: Access, jumps: str, command: str | None) -> Any:
        """Return a channel through the last jump host or a ProxyCommand; None for a direct connection."""
        earlier, _, last = jumps.rpartition(",")
        if last != "none" and (jump := _parse_node(last, None, None)) != self.node:
            self._jump = NodeConnection(jump, access, earlier or None)
            transport = self._jump._client.get_transport()  # noqa: SLF001  (of this class)
            target = self.node.host, self.node.port
            return transport and transport.open_channel("direct-tcpip", target, ("", 0), timeout=CONNECT_TIMEOUT_S)
        return paramiko.ProxyCommand(command) if command else None

    @cached_property
    def files(self) -> paramiko.SFTPClient:
        """The node's files. Raises `HarnessError` if sftp is not available."""
        with raised_as(HarnessError, f"sftp to {self.node} failed", OSError, EOFError, SSHException):
            files = self._client.open_sftp()
        if channel := files.get_channel():
            channel.settimeout(FILES_TIMEOUT_S)
        return files

    def run(self, *words: str, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run a command as `shell` does."""
        return self.shell(shlex.join(words), timeout_s=timeout_s)

    def shell(self, script: str, *, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
        """Run a script in the login's shell; return its stdout, or its stderr without stdout.

        Raises `HarnessError` with the script's message if it fails, and if the node does not answer.
        """
        with raised_as(HarnessError, f"{self.node} does not answer", OSError, EOFError, SSHException):
            _, out, err = self._client.exec_command(script, timeout=timeout_s)
            stdout, stderr = out.read().decode(errors="replace"), err.read().decode(errors="replace")
            if not out.channel.status_event.wait(timeout_s):
                raise TimeoutError(f"it sent no exit status in {timeout_s:g} s")
            code = out.channel.recv_exit_status()
        if code != 0:
            words = " ".join((stderr or stdout).split()) or f"exit code {code}"
            raise HarnessError(f"{self.node}: `{script}`: {words}")
        return stdout or stderr

    def close(self) -> None:
        """Log out."""
        self._client.close()
        if self._jump is not None:
            self._jump.close()


class _Pinned(paramiko.MissingHostKeyPolicy):
    """Rejects every unknown host key that is not pinned."""

    def __init__(self, pins: Sequence[str]) -> None:
        self._pins = set(pins)

    def missing_host_key(self, _client: Any, hostname: str, key: Any) -> None:
        if key.fingerprint not in self._pins:
            raise SSHException(
                f"its host key is unknown ({hostname}: {key.get_name()} {key.fingerprint}); check it on the host, and"
                f" add it to known_hosts or give --ssh-host-key {key.fingerprint}"
            )


def _parse_node(text: str, user: str | None, port: int | None) -> Node:
    match = _NODE.fullmatch(text)
    options = _ssh_options(match["host"]) if match else {}
    number = (match and match["port"]) or str(port or options.get("port", PORT))
    if match is None or not number.isdecimal() or not 1 <= int(number) <= LAST_PORT:
        raise UsageError(f"{quoted(text)}: give hosts as [user@]host[:port], with commas between them")
    login = match["user"] or user or options.get("user") or getpass.getuser()
    return Node(options["hostname"], int(number), login, match["host"])


def _ssh_options(host: str) -> Mapping[str, Any]:
    """Return the options of a host in ``~/.ssh/config``, ``hostname`` at least. Raises `UsageError`."""
    path = Path("~/.ssh/config").expanduser()
    with raised_as(UsageError, f"{path} cannot be read", OSError, ValueError, ImportError, SSHException):
        config = paramiko.SSHConfig.from_path(str(path)) if path.is_file() else paramiko.SSHConfig()
        return config.lookup(host)


def _why(error: Exception, node: Node) -> str:
    match error:
        case BadHostKeyException():
            return f"its host key has changed (now {error.key.fingerprint}): another host may answer in its place"
        case AuthenticationException():
            return (
                f"it refuses the key of {node.user} ({error}); add the public key to its authorized_keys, or --ssh-key"
            )
        case NoValidConnectionsError():
            return "; ".join(sorted({str(reason) for reason in error.errors.values()}))
    return str(error) or type(error).__name__
