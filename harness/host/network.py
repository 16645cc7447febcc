"""A network namespace per broker, all on one bridge of this host: each has an address and a link that can be cut.

Every name derives from the run id, so that a network is found and removed by that alone. The host has an address
on the bridge too: clients reach brokers from its own namespace. A link that is down loses what is sent, as an
unplugged cable does: connections stay open on both sides, and TCP tries again ever less often.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import HarnessError, UsageError
from harness.host import commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

NAMESPACES = Path("/var/run/netns")
BLOCKS = (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"))
"""Where subnets come from; the second for hosts that route all of the first into a company's network."""

SUBNET_BITS, SUBNET_ATTEMPTS = 24, 256
RUN_NAMESPACE = re.compile(r"ch-(?P<run_id>\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{4})-\d+")
RULE = re.compile(r"-i (ch[0-9a-f]{8}) ")
INSIDE = "eth0"
HOST_NUMBER = 254
"""The bridge's place in the subnet; a broker's is its node id."""


@dataclass(frozen=True)
class Network:
    """The network of one run's brokers: the last byte of a broker's address is its node id."""

    run_id: str
    brokers: tuple[int, ...]
    subnet: IPv4Network

    def address(self, broker: int) -> str:
        """Return the broker's own address, reachable from this host and from every broker."""
        return str(self.subnet[broker])

    def prefix(self, broker: int) -> list[str]:
        """Return what a command line begins with to run inside; ``ip`` becomes that command (execve)."""
        return [commands.find("ip") or "ip", "netns", "exec", _namespace(self.run_id, broker)]

    def cut(self, broker: int) -> None:
        """Isolate the broker from everyone. Raises `HarnessError`."""
        _ip("link", "set", _link(self.run_id, broker), "down")

    def heal(self, broker: int) -> None:
        """Connect it again. Raises `HarnessError`."""
        _ip("link", "set", _link(self.run_id, broker), "up")


def why_impossible() -> str | None:
    """Return the reason why there can be no such network here, None where there can: one was made and removed."""
    return why_refused(lambda probe: commands.run(*probe.prefix(1), "true"), brokers=(1,))


def why_refused(attempt: Callable[[Network], object], brokers: Sequence[int]) -> str | None:
    """Return the reason why this fails on a network that is made for it and removed, None where it does not."""
    run_id = f"probe-{secrets.token_hex(4)}"
    try:
        probe = create_network(run_id, brokers)
        try:
            attempt(probe)
        finally:
            remove_network(run_id)
    except HarnessError as error:
        return str(error)
    return None


def create_network(run_id: str, brokers: Sequence[int]) -> Network:
    """Make the bridge, and for each broker a namespace with an address.

    Raises `UsageError` with the words of the command that failed; what was made before that is removed.
    """
    if os.geteuid() != 0:
        raise UsageError("network namespaces need root: run as root, or choose a nemesis that needs none")
    if commands.find("ip") is None:
        raise UsageError("there is no `ip` command: apt-get install iproute2")
    if _namespaces(run_id) or _links(run_id):
        raise UsageError(f"run {run_id} has a network already; remove it with `harness clean {run_id}`")
    try:
        network = Network(run_id, tuple(brokers), free_subnet(run_id, _taken()))
        _build(network)
    except BaseException as error:
        # What failed first is what the user has to know.
        with suppress(HarnessError):
            remove_network(run_id)
        if isinstance(error, HarnessError):
            raise UsageError(f"no network of namespaces can be made: {error}") from error
        raise
    return network


def remove_network(run_id: str) -> int:
    """Remove whatever there is of the run's network; return how many namespaces that were.

    Their processes have to be ended before. Raises `HarnessError` where something stays.
    """
    if os.geteuid() != 0 or commands.find("ip") is None:
        return 0
    links, namespaces = _links(run_id), _namespaces(run_id)
    if _bridge(run_id) in links:
        _forwarding("-D", _bridge(run_id))
    failed = []
    # Links would end with their namespaces, but later, in the kernel's own time.
    for kind, name in [*(("link", link) for link in links), *(("netns", namespace) for namespace in namespaces)]:
        try:
            _ip(kind, "delete", name)
        except HarnessError as error:
            failed.append(error)
    # What is gone by now was removed by somebody else, who removes the same run.
    if failed and (_links(run_id) or _namespaces(run_id)):
        raise failed[0]
    return len(namespaces)


def runs_with_networks() -> set[str]:
    """Return the ids of the runs that have a namespace on this host, whoever's they are."""
    matches = (RUN_NAMESPACE.fullmatch(path.name) for path in NAMESPACES.glob("*"))
    return {match["run_id"] for match in matches if match}


def remove_stray_rules() -> None:
    """Take back rules for bridges that are gone: a command that was under way when its run ended may have set one."""
    if os.geteuid() != 0 or commands.find("iptables") is None:
        return
    with suppress(HarnessError):
        rules = commands.run("iptables", "-w", "-S", "FORWARD")
        for bridge in set(RULE.findall(rules)) - {name for _, name in socket.if_nameindex()}:
            _forwarding("-D", bridge)


def free_subnet(run_id: str, taken: Iterable[IPv4Network]) -> IPv4Network:
    """Return a subnet that overlaps with none of the taken ones, looked for from the run id's hash on.

    A route shorter than every block is a default route in disguise (VPNs have 0.0.0.0/1) and takes nothing.
    Raises `UsageError` where none is found.
    """
    in_use = [network for network in taken if network.prefixlen >= min(block.prefixlen for block in BLOCKS)]
    for block in BLOCKS:
        count = 1 << (SUBNET_BITS - block.prefixlen)
        for number in range(start := int(_digest(run_id), 16), start + SUBNET_ATTEMPTS):
            subnet = IPv4Network((int(block[number % count << (32 - SUBNET_BITS)]), SUBNET_BITS))
            if not any(subnet.overlaps(network) for network in in_use):
                return subnet
    raise UsageError(f"this host has addresses or routes all over {' and '.join(map(str, BLOCKS))}: no subnet is free")


def _build(network: Network) -> None:
    bridge = _bridge(network.run_id)
    _ip("link", "add", bridge, "type", "bridge")
    _forwarding("-I", bridge)
    _ip("address", "add", f"{network.address(HOST_NUMBER)}/{SUBNET_BITS}", "dev", bridge)
    _ip("link", "set", bridge, "up")
    for broker in network.brokers:
        namespace, link = _namespace(network.run_id, broker), _link(network.run_id, broker)
        _ip("netns", "add", namespace)
        _ip("link", "add", link, "master", bridge, "type", "veth", "peer", "name", INSIDE, "netns", namespace)
        _ip("-n", namespace, "address", "add", f"{network.address(broker)}/{SUBNET_BITS}", "dev", INSIDE)
        _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("-n", namespace, "link", "set", INSIDE, "up")
        _ip("link", "set", link, "up")


def _taken() -> list[IPv4Network]:
    """Every IPv4 network that this host has an address in or a route to."""
    interfaces = json.loads(_ip("-4", "-json", "address") or "[]")
    addresses = [f"{a['local']}/{a['prefixlen']}" for one in interfaces for a in one.get("addr_info", [])]
    routes = [route["dst"] for route in json.loads(_ip("-4", "-json", "route", "show", "table", "all") or "[]")]
    return [IPv4Network(text, strict=False) for text in (*addresses, *routes) if text != "default"]


def _forwarding(action: str, bridge: str) -> None:
    """Insert or delete the rule that lets the bridge's frames pass where they go through iptables.

    Docker sees to that, and drops what it does not know. An iptables that fails drops nothing either: its part
    of the kernel is missing.
    """
    if commands.find("iptables"):
        with suppress(HarnessError):
            commands.run("iptables", "-w", action, "FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT")


def _namespaces(run_id: str) -> list[str]:
    """Every namespace of the run, whatever brokers it has."""
    mine = re.compile(re.escape(_namespace(run_id, "")) + r"\d+")
    return sorted(path.name for path in NAMESPACES.glob("*") if mine.fullmatch(path.name))


def _links(run_id: str) -> list[str]:
    """The bridge and the host's ends of the brokers' links, as far as there are any."""
    mine = re.compile(re.escape(_bridge(run_id)) + r"(-\d+)?")
    return sorted(name for _, name in socket.if_nameindex() if mine.fullmatch(name))


def _namespace(run_id: str, broker: int | str) -> str:
    return f"ch-{run_id}-{broker}"


def _link(run_id: str, broker: int) -> str:
    return f"{_bridge(run_id)}-{broker}"


def _bridge(run_id: str) -> str:
    """Interface names have 15 characters at most: no room for a run id."""
    return f"ch{_digest(run_id)}"


def _digest(run_id: str) -> str:
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]


def _ip(*arguments: str) -> str:
    return commands.run("ip", *arguments)
