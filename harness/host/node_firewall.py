"""Rules of iptables on a shared node: in a separate chain for each run, and for its brokers' ports only.

The harness's login uses other ports, so that a cut can always be healed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from harness.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.host.nodes import NodeConnection

TABLES = 'PATH="$PATH:/usr/sbin:/sbin"; iptables() { if [ "$(id -u)" = 0 ]; then command iptables -w "$@";'
TABLES += ' else sudo -n iptables -w "$@"; fi; }; '
"""Rules need root: the user of the login, or sudo without a password."""

CHAINS = ("INPUT", "OUTPUT")


def drop(connection: NodeConnection, run_id: str, ports: Sequence[int], which: Sequence[str] = ()) -> None:
    """Drop packets to and from these ports; ``which``: a match of iptables. Raises `HarnessError`."""
    chain = _chain(run_id)
    enter = " && ".join(f"iptables -I {start} -j {chain}" for start in CHAINS)
    connection.shell(
        f"{TABLES} iptables -n -L {chain} >/dev/null 2>&1 || {{ iptables -N {chain} && {enter}; }} &&"
        f" iptables -A {chain} -p tcp -m multiport --ports {','.join(map(str, ports))} {' '.join(which)} -j DROP"
    )


def remove(connection: NodeConnection, run_id: str) -> None:
    """Remove the run's chain and the jumps to it, if they exist. Raises `HarnessError`."""
    chain = _chain(run_id)
    leave = "; ".join(f"iptables -D {start} -j {chain}" for start in CHAINS)
    connection.shell(
        f"{TABLES} iptables -n -L {chain} >/dev/null 2>&1 || exit 0; {leave}; iptables -F {chain}; iptables -X {chain}"
    )


def raise_if_impossible(connection: NodeConnection) -> None:
    """Create and remove a chain. Raises `UsageError` with the node's message."""
    try:
        connection.shell(f"{TABLES} iptables -N {_chain('probe')} && iptables -X {_chain('probe')}")
    except HarnessError as error:
        raise UsageError(f"this nemesis needs a firewall on each node, as root or by sudo: {error}") from error


def _chain(run_id: str) -> str:
    """Return the name of the chain; names have at most 28 characters, too few for a prefix and a run id."""
    return f"ch-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"
