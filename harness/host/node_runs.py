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
"""Ends every process of a run on a node, found by the marker on its command line, and prints their ids."""


def log_in(access: Access) -> list[Connection]:
    """Log in to every node, at once. Raises `UsageError` for the first that refuses."""
    with ThreadPoolExecutor(len(access.nodes)) as pool:
        made = [pool.submit(Connection, node, access) for node in access.nodes]
    refusal = next((error for one in made if (error := one.exception())), None)
    if refusal is not None:
        log_out([one.result() for one in made if one.exception() is None])
        raise refusal
    return [one.result() for one in made]


def log_out(connections: Sequence[Connection]) -> None:
    """Close every login."""
    for connection in connections:
        connection.close()


def on_each(connections: Sequence[Connection], action: Callable[[Connection], T]) -> list[T]:
    """Do something on every node at once; return what it gave, in their order. Raises the first error."""
    with ThreadPoolExecutor(len(connections)) as pool:
        return list(pool.map(action, connections))


def end(directory: Path, run_id: str) -> int:
    """SIGKILL every process of a run on its nodes, and take its rules back; return how many were ended.

    ``directory``: the run's work directory, which names the nodes. Raises `HarnessError` where one cannot be reached.
    """
    return _end(directory, run_id, "true")


def remove(directory: Path, run_id: str) -> int:
    """As `end`, and remove what the run wrote there."""
    return _end(directory, run_id, "rm", "-rf", run_dir(run_id))


def _end(directory: Path, run_id: str, *then: str) -> int:
    marker = shlex.quote(node_marker(run_id))

    def end_there(connection: Connection) -> int:
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
    """Return the JVM argument by which brokers on nodes are known.

    Another one than that of this host's processes, which may be a node too: Spark outlives the brokers.
    """
    return f"-Dharness.node.run={run_id}"


def run_dir(run_id: str) -> str:
    """Return the directory of a run on a node."""
    return f"{WORK_ROOT}/{run_id}"
