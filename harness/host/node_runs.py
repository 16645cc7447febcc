"""What a run has on other hosts, and how it is ended and removed there: found by the run's marker and directory."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from harness.errors import HarnessError
from harness.host import node_firewall
from harness.host.elsewhere import NODES_FILE
from harness.host.nodes import Connection, from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.host.nodes import Access, Node

T = TypeVar("T")

WORK_ROOT = "/tmp/compaction-harness-nodes"  # noqa: S108  (on the node)

END_PROCESSES = """
for process in /proc/[0-9]*; do
    if tr '\\0' '\\n' 2>/dev/null < "$process/cmdline" | grep -qxF -e {marker}; then
        kill -KILL "${{process#/proc/}}" 2>/dev/null && echo "${{process#/proc/}}"
    fi
done
"""
"""Ends every process of a run on a node, found by the marker on its command line, and prints their ids."""


def log_in(access: Access) -> list[Connection]:
    """Log in to every node, at once. Raises `UsageError` for the first that refuses."""
    made: list[Connection] = []

    def one(node: Node) -> None:
        made.append(Connection(node, access))

    try:
        with ThreadPoolExecutor(len(access.nodes)) as pool:
            list(pool.map(one, access.nodes))
    except HarnessError:
        log_out(made)
        raise
    return sorted(made, key=lambda connection: access.nodes.index(connection.node))


def log_out(connections: Sequence[Connection]) -> None:
    """Close every login."""
    for connection in connections:
        connection.close()


def on_each(connections: Sequence[Connection], action: Callable[[Connection], T]) -> list[T]:
    """Do something on every node at once; return what it gave, in their order. Raises the first error."""
    with ThreadPoolExecutor(len(connections)) as pool:
        return list(pool.map(action, connections))


def end(directory: Path, run_id: str) -> int:
    """End every process of a run on its nodes, and take its rules back; return how many were ended.

    ``directory``: the run's work directory, which names the nodes. Raises `HarnessError` where one cannot be reached.
    """

    def end_there(connection: Connection) -> int:
        node_firewall.remove(connection, run_id)
        return end_processes(connection, run_id)

    return _sum_on_nodes(directory, end_there)


def remove(directory: Path, run_id: str) -> int:
    """As `end`, and remove what the run wrote there."""

    def remove_there(connection: Connection) -> int:
        node_firewall.remove(connection, run_id)
        ended = end_processes(connection, run_id)
        connection.run("rm", "-rf", run_dir(run_id))
        return ended

    return _sum_on_nodes(directory, remove_there)


def _sum_on_nodes(directory: Path, action: Callable[[Connection], int]) -> int:
    try:
        access = from_json((directory / NODES_FILE).read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HarnessError(f"{directory / NODES_FILE} does not list the run's nodes: {error}") from error
    connections = log_in(access)
    try:
        return sum(on_each(connections, action))
    finally:
        log_out(connections)


def end_processes(connection: Connection, run_id: str) -> int:
    """SIGKILL every process of the run on a node; return how many there were."""
    marker = shlex.quote(node_marker(run_id))
    return len(connection.shell(END_PROCESSES.format(marker=marker)).split())


def node_marker(run_id: str) -> str:
    """Return the JVM argument by which brokers on nodes are known.

    Another one than that of this host's processes, which may be a node too: Spark outlives the brokers.
    """
    return f"-Dharness.node.run={run_id}"


def run_dir(run_id: str) -> str:
    """Return the directory of a run on a node."""
    return f"{WORK_ROOT}/{run_id}"
