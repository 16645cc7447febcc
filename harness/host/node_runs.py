"""Runs on other hosts: end the processes of a run, and remove its directory and its firewall rules there.

The rules of iptables are in a separate chain for each run, and only concern the ports of its brokers: the harness's
login uses another port, so that a cut can always be healed.
"""

import hashlib
import json
import shlex
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from harness.errors import HarnessError, UsageError, raised_as
from harness.host.leftovers import NODES_FILE
from harness.host.nodes import Access, Node, NodeConnection
from harness.json_codec import from_json

T = TypeVar("T")

WORK_ROOT = "/tmp/compaction-harness-nodes"  # noqa: S108  (on the node)

MAKE_PRIVATE = f"""
umask 077; mkdir -p {WORK_ROOT}
if [ -L {WORK_ROOT} ] || [ ! -O {WORK_ROOT} ] || [ "$(stat -c %a {WORK_ROOT})" != 700 ]; then
    echo "{WORK_ROOT} is a link, belongs to another user, or is open to other users: remove it" >&2; exit 1
fi
"""
"""Creates the directory of all runs on a node, or accepts the one that exists if it is private."""

END_PROCESSES = """
for process in /proc/[0-9]*; do
    if tr '\\0' '\\n' 2>/dev/null < "$process/cmdline" | grep -qxF -e {marker}; then
        kill -KILL "${{process#/proc/}}" 2>/dev/null && echo "${{process#/proc/}}"
    fi
done
"""
"""Ends every process of a run on a node, by the marker on its command line, and prints the process ids."""

TABLES = 'PATH="$PATH:/usr/sbin:/sbin"; iptables() { if [ "$(id -u)" = 0 ]; then command iptables -w "$@";'
TABLES += ' else sudo -n iptables -w "$@"; fi; }; '
"""Rules need root: the user of the login, or sudo without a password."""
CHAINS = ("INPUT", "OUTPUT")


def log_in(access: Access) -> list[NodeConnection]:
    """Log in to every node concurrently. Raises `UsageError` for the first node that refuses."""
    with ThreadPoolExecutor(len(access.nodes)) as pool:
        attempts = [pool.submit(NodeConnection, node, access) for node in access.nodes]
    refusal = next((error for attempt in attempts if (error := attempt.exception())), None)
    if refusal is not None:
        log_out([attempt.result() for attempt in attempts if attempt.exception() is None])
        raise refusal
    return [attempt.result() for attempt in attempts]


def log_out(connections: Sequence[NodeConnection]) -> None:
    """Close every connection."""
    for connection in connections:
        connection.close()


def on_each(connections: Sequence[NodeConnection], action: Callable[[NodeConnection], T]) -> list[T]:
    """Call a function for every node concurrently; return the results in order. Raises the first error."""
    with ThreadPoolExecutor(len(connections)) as pool:
        return list(pool.map(action, connections))


def end(directory: Path, run_id: str, *then: str) -> int:
    """SIGKILL every process of a run on its nodes, and remove its firewall rules; return the number of processes.

    ``directory``: the run's work directory, which lists the nodes. ``then``: a command to run on each node. Raises
    `HarnessError` if a node is unreachable.
    """
    marker = shlex.quote(node_marker(run_id))

    with raised_as(HarnessError, f"{directory / NODES_FILE} does not list the run's nodes", OSError, ValueError):
        access = from_json(Access, json.loads((directory / NODES_FILE).read_text()))

    def end_on(node: Node) -> int:
        with closing(NodeConnection(node, access)) as connection:
            remove_rules(connection, run_id)
            ended = connection.shell(END_PROCESSES.format(marker=marker)).split()
            if then:
                connection.run(*then)
            return len(ended)

    # A node that cannot be reached is no reason to leave brokers on the others.
    with ThreadPoolExecutor(len(access.nodes)) as pool:
        attempts = [pool.submit(end_on, node) for node in access.nodes]
    return sum(attempt.result() for attempt in attempts)


def remove(directory: Path, run_id: str) -> int:
    """End the run as `end` does, and remove its files on the nodes."""
    return end(directory, run_id, "rm", "-rf", run_dir(run_id))


def node_marker(run_id: str) -> str:
    """Return the JVM argument that identifies brokers on nodes.

    It differs from the argument of this host's processes, as this host may be a node: Spark outlives the brokers.
    """
    return f"-Dharness.node.run={run_id}"


def run_dir(run_id: str) -> str:
    """Return the directory of a run on a node."""
    return f"{WORK_ROOT}/{run_id}"


def drop_packets(connection: NodeConnection, run_id: str, ports: Sequence[int], match: Sequence[str] = ()) -> None:
    """Drop packets to and from these ports; ``match``: a match of iptables. Raises `HarnessError`."""
    chain = _chain(run_id)
    enter = " && ".join(f"iptables -I {start} -j {chain}" for start in CHAINS)
    connection.shell(
        f"{TABLES} iptables -n -L {chain} >/dev/null 2>&1 || {{ iptables -N {chain} && {enter}; }} &&"
        f" iptables -A {chain} -p tcp -m multiport --ports {','.join(map(str, ports))} {' '.join(match)} -j DROP"
    )


def remove_rules(connection: NodeConnection, run_id: str) -> None:
    """Remove the run's chain and the jumps to it, if they exist. Raises `HarnessError`."""
    chain = _chain(run_id)
    leave = "; ".join(f"iptables -D {start} -j {chain}" for start in CHAINS)
    connection.shell(
        f"{TABLES} iptables -n -L {chain} >/dev/null 2>&1 || exit 0; {leave}; iptables -F {chain}; iptables -X {chain}"
    )


def raise_if_no_firewall(connection: NodeConnection) -> None:
    """Create and remove a chain. Raises `UsageError` with the node's message, and for a node without IPv4."""
    with raised_as(UsageError, f"{connection.node} has no IPv4 address, and iptables drops IPv4 packets only", OSError):
        socket.getaddrinfo(connection.node.host, None, socket.AF_INET)
    with raised_as(UsageError, "this run needs a firewall on each node, as root or by sudo", HarnessError):
        connection.shell(f"{TABLES} iptables -N {_chain('probe')} && iptables -X {_chain('probe')}")


def _chain(run_id: str) -> str:
    """Return the name of the chain; names have at most 28 characters, too few for a prefix and a run id."""
    return f"ch-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"
