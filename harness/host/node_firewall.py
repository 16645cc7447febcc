"""Rules of iptables on a node that others use too: in a chain of the run's own, for its brokers' ports only.

The harness's login goes through other ports, so that what was cut can always be healed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from harness.errors import HarnessError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.host.nodes import Connection

TABLES = 'PATH="$PATH:/usr/sbin:/sbin"; iptables() { if [ "$(id -u)" = 0 ]; then command iptables -w "$@";'
TABLES += ' else sudo -n iptables -w "$@"; fi; }; '
"""Rules take root: as whom the node is logged in to, or by a sudo that asks for nothing."""

CHAINS = ("INPUT", "OUTPUT")


def drop(connection: Connection, run_id: str, ports: Sequence[int], which: Sequence[str] = ()) -> None:
    """Drop packets to and from these ports: all, or those that a match of iptables picks. Raises `HarnessError`."""
    chain = _chain(run_id)
    enter = " && ".join(f"iptables -I {start} -j {chain}" for start in CHAINS)
    connection.shell(
        f"{TABLES} iptables -n -L {chain} >/dev/null 2>&1 || {{ iptables -N {chain} && {enter}; }} &&"
        f" iptables -A {chain} -p tcp -m multiport --ports {','.join(map(str, ports))} {' '.join(which)} -j DROP"
    )


def remove(connection: Connection, run_id: str) -> None:
    """Remove the run's chain and what leads to it; where there is none, do nothing. Raises `HarnessError`."""
    chain = _chain(run_id)
    leave = "; ".join(f"iptables -D {start} -j {chain}" for start in CHAINS)
    connection.shell(
        f"{TABLES} iptables -n -L {chain} >/dev/null 2>&1 || exit 0; {leave}; iptables -F {chain}; iptables -X {chain}"
    )


def raise_if_impossible(connection: Connection) -> None:
    """Make a chain and remove it. Raises `UsageError` with the node's own words."""
    try:
        connection.shell(f"{TABLES} iptables -N {_chain('probe')} && iptables -X {_chain('probe')}")
    except HarnessError as error:
        raise UsageError(f"this nemesis takes a firewall on each node, as root or by sudo: {error}") from error


def _chain(run_id: str) -> str:
    """Chain names have 28 characters at most: no room for a prefix and a run id."""
    return f"ch-{hashlib.sha256(run_id.encode()).hexdigest()[:12]}"
