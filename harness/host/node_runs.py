"""End the processes of a run on other hosts, by the run's marker, and remove its directory there."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from harness.errors import HarnessError
from harness.host import node_firewall
from harness.host.elsewhere import NODES_FILE
from harness.host.nodes import NodeConnection, from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.host.nodes import Access

T = TypeVar("T")

WORK_ROOT = "/tmp/compaction-harness-nodes"  # noqa: S108  (on the node)

END_PROCESSES = """
for process in /proc/[0-9]*; do
    if tr '\\0' '\\n' 2>/dev/null < "$process/cmdline" | grep -qxF -e {marker}; then
        kill -KILL "${{process#/proc/}}" 2>/dev/null && echo "${{process#/proc/}}"
    fi
done
"""
"""Ends every process of a run on a node, by the marker on its command line, and prints the process ids."""


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
    """Close every attempt."""
    for connection in connections:
        connection.close()


def on_each(connections: Sequence[NodeConnection], action: Callable[[NodeConnection], T]) -> list[T]:
    """Call a function for every node concurrently; return the results in order. Raises the first error."""
    with ThreadPoolExecutor(len(connections)) as pool:
        return list(pool.map(action, connections))


def end(directory: Path, run_id: str) -> int:
    """SIGKILL every process of a run on its nodes, and remove its firewall rules; return the number of processes.

    ``directory``: the run's work directory, which lists the nodes. Raises `HarnessError` if a node is unreachable.
    """
    return _end(directory, run_id, "true")


def remove(directory: Path, run_id: str) -> int:
    """End the run as `end` does, and remove its files on the nodes."""
    return _end(directory, run_id, "rm", "-rf", run_dir(run_id))


def _end(directory: Path, run_id: str, *then: str) -> int:
    marker = shlex.quote(node_marker(run_id))

    def end_there(connection: NodeConnection) -> int:
        node_firewall.remove(connection, run_id)
        ended = connection.shell(END_PROCESSES.format(marker=marker)).split()
        connection.run(*then)
        return len(ended)

    try:
        access = from_json((directory / NODES_FILE).read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HarnessError(f"{directory / NODES_FILE} does not list the run's nodes: {error}") from error
    connections = log_in(access)
    try:
        return sum(on_each(connections, end_there))
    finally:
        log_out(connections)


def node_marker(run_id: str) -> str:
    """Return the JVM argument that identifies brokers on nodes.

    It differs from the argument of this host's processes, as this host may be a node: Spark outlives the brokers.
    """
    return f"-Dharness.node.run={run_id}"


def run_dir(run_id: str) -> str:
    """Return the directory of a run on a node."""
    return f"{WORK_ROOT}/{run_id}"
