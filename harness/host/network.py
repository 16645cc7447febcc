"""A network namespace for each broker, all on one bridge of this host, each with an address and a link that can be cut.

Every name is derived from the run id, by which a network is found and removed. The host has an address on the bridge,
too: clients reach brokers from its namespace. A link that is down loses packets like an unplugged cable: connections
stay open on both sides, and TCP retries with increasing pauses.
"""

import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

import psutil

from harness.errors import HarnessError, UsageError
from harness.host import commands

NAMESPACES = Path("/var/run/netns")
BLOCKS = (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"))
"""Subnets are in the first block, or in the second on hosts that route the first into a company's network."""

SUBNET_BITS, SUBNET_ATTEMPTS = 24, 256
RUN_NAMESPACE = re.compile(
    r"ch-(?P<run_id>([a-z]+-)?\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-[0-9a-f]{4}|probe-(?P<pid>\d+)-[0-9a-f]{8})-\d+"
)
"""Of runs, soaks (``soak-…``) and so on, and of probes, which belong to a process and have no work directory."""
RULE = re.compile(r"-i (ch[0-9a-f]{8}) ")
INSIDE = "eth0"
HOST_NUMBER = 254
"""The number of the bridge in the subnet; a broker's number is its node id."""


@dataclass(frozen=True)
class NamespaceNetwork:
    """The network of one run's brokers: the last byte of a broker's address is its node id."""

    run_id: str
    brokers: tuple[int, ...]
    subnet: IPv4Network

    def address(self, broker: int) -> str:
        """Return the broker's address, reachable from this host and from every broker."""
        return str(self.subnet[broker])

    def prefix(self, broker: int) -> list[str]:
        """Return the start of a command line that runs in the broker's namespace; ``ip`` executes it by execve."""
        return [commands.find("ip") or "ip", "netns", "exec", _namespace(self.run_id, broker)]

    def cut(self, broker: int) -> None:
        """Cut the broker's link. Raises `HarnessError`."""
        _ip("link", "set", _link(self.run_id, broker), "down")

    def heal(self, broker: int) -> None:
        """Restore the broker's link. Raises `HarnessError`."""
        _ip("link", "set", _link(self.run_id, broker), "up")


def why_impossible() -> str | None:
    """Create and remove a network; return the reason why that is impossible, or None."""
    return why_refused(lambda probe: commands.run(*probe.prefix(1), "true"), brokers=(1,))


def why_refused(attempt: Callable[[NamespaceNetwork], object], brokers: Sequence[int]) -> str | None:
    """Call a function with a temporary network; return the reason why that fails, or None."""
    run_id = f"probe-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        probe = create_network(run_id, brokers)
        try:
            attempt(probe)
        finally:
            remove_network(run_id)
    except HarnessError as error:
        return str(error)
    return None


def create_network(run_id: str, brokers: Sequence[int]) -> NamespaceNetwork:
    """Create the bridge, and for each broker a namespace with an address.

    Raises `UsageError` with the message of the command that failed, and removes an incomplete network.
    """
    if os.geteuid() != 0:
        raise UsageError("network namespaces need root: run as root, or choose a nemesis that needs none")
    if commands.find("ip") is None:
        raise UsageError("the `ip` command is missing: apt-get install iproute2")
    if _namespaces(run_id) or _links(run_id):
        raise UsageError(f"run {run_id} has a network already; remove it with `harness clean {run_id}`")
    try:
        interfaces = json.loads(_ip("-4", "-json", "address") or "[]")
        routes = json.loads(_ip("-4", "-json", "route", "show", "table", "all") or "[]")
        addresses = [f"{at['local']}/{at['prefixlen']}" for link in interfaces for at in link.get("addr_info", [])]
        destinations = [route["dst"] for route in routes if route["dst"] != "default"]
        taken = [IPv4Network(text, strict=False) for text in (*addresses, *destinations)]
        network = NamespaceNetwork(run_id, tuple(brokers), free_subnet(run_id, taken))
        _build(network)
    except BaseException as error:
        # The first error is the cause.
        with suppress(HarnessError):
            remove_network(run_id)
        if isinstance(error, HarnessError):
            raise UsageError(f"no network of namespaces can be made: {error}") from error
        raise
    return network


def remove_network(run_id: str) -> int:
    """Remove the run's network, which may be incomplete; return the number of namespaces.

    Their processes must have ended. Raises `HarnessError` if something cannot be removed.
    """
    if os.geteuid() != 0 or commands.find("ip") is None:
        return 0
    links, namespaces = _links(run_id), _namespaces(run_id)
    if _bridge(run_id) in links:
        _forwarding("-D", _bridge(run_id))
    failed = []
    # The kernel would remove links with their namespaces, but later.
    for kind, name in [*(("link", link) for link in links), *(("netns", namespace) for namespace in namespaces)]:
        try:
            _ip(kind, "delete", name)
        except HarnessError as error:
            failed.append(error)
    # Another process may be removing the same run.
    if failed and (_links(run_id) or _namespaces(run_id)):
        raise failed[0]
    return len(namespaces)


def runs_with_networks() -> set[str]:
    """Return the ids of the runs of all users that have a namespace on this host, and of probes that were killed."""
    matches = (match for path in NAMESPACES.glob("*") if (match := RUN_NAMESPACE.fullmatch(path.name)))
    return {match["run_id"] for match in matches if match["pid"] is None or not psutil.pid_exists(int(match["pid"]))}


def remove_stray_rules() -> None:
    """Delete rules for bridges that do not exist: a command that was running when its run ended may have added one."""
    if os.geteuid() != 0 or commands.find("iptables") is None:
        return
    with suppress(HarnessError):
        rules = commands.run("iptables", "-w", "-S", "FORWARD")
        for bridge in set(RULE.findall(rules)) - {name for _, name in socket.if_nameindex()}:
            _forwarding("-D", bridge)


def free_subnet(run_id: str, taken: Iterable[IPv4Network]) -> IPv4Network:
    """Return a subnet that does not overlap with a taken one; the search begins at the run id's hash.

    A route with a shorter prefix than every block (VPNs have 0.0.0.0/1) is a default route and does not count.
    Raises `UsageError` if no subnet is free.
    """
    in_use = [network for network in taken if network.prefixlen >= min(block.prefixlen for block in BLOCKS)]
    for block in BLOCKS:
        count = 1 << (SUBNET_BITS - block.prefixlen)
        for number in range(start := int(_digest(run_id), 16), start + SUBNET_ATTEMPTS):
            subnet = IPv4Network((int(block[number % count << (32 - SUBNET_BITS)]), SUBNET_BITS))
            if not any(subnet.overlaps(network) for network in in_use):
                return subnet
    raise UsageError(f"this host has addresses or routes all over {' and '.join(map(str, BLOCKS))}: no subnet is free")


def _build(network: NamespaceNetwork) -> None:
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


def _forwarding(action: str, bridge: str) -> None:
    """Insert or delete the rule that accepts the bridge's frames, if they pass through iptables.

    Docker enables this, and drops other frames. An iptables that fails has no kernel module, and drops no frames.
    """
    if commands.find("iptables"):
        with suppress(HarnessError):
            commands.run("iptables", "-w", action, "FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT")


def _namespaces(run_id: str) -> list[str]:
    mine = re.compile(re.escape(_namespace(run_id, "")) + r"\d+")
    return sorted(path.name for path in NAMESPACES.glob("*") if mine.fullmatch(path.name))


def _links(run_id: str) -> list[str]:
    mine = re.compile(re.escape(_bridge(run_id)) + r"(-\d+)?")
    return sorted(name for _, name in socket.if_nameindex() if mine.fullmatch(name))


def _namespace(run_id: str, broker: int | str) -> str:
    return f"ch-{run_id}-{broker}"


def _link(run_id: str, broker: int) -> str:
    return f"{_bridge(run_id)}-{broker}"


def _bridge(run_id: str) -> str:
    """Return the name of the bridge; interface names have at most 15 characters, too few for a run id."""
    return f"ch{_digest(run_id)}"


def _digest(run_id: str) -> str:
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]


def _ip(*arguments: str) -> str:
    return commands.run("ip", *arguments)
