"""A slow link: the kernel's network emulator on a broker's own interface, where the kernel has one."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from harness import commands
from harness.errors import HarnessError
from harness.runtimes import network

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTROL = "tc"


def delay(inside: Sequence[str], delay_ms: int) -> None:
    """Hold up everything that leaves by the interface of a namespace. Raises `HarnessError`.

    ``inside``: what a command line begins with to run there.
    """
    commands.run(*inside, _tc(), "qdisc", "replace", "dev", network.INSIDE, "root", "netem", "delay", f"{delay_ms}ms")


def clear(inside: Sequence[str]) -> None:
    """Take that back. Raises `HarnessError`."""
    commands.run(*inside, _tc(), "qdisc", "delete", "dev", network.INSIDE, "root")


def why_impossible() -> str | None:
    """Return the reason why no link can be slow here, None where one can: a link was made, slowed and removed."""
    reason = network.why_impossible()
    if reason is not None:
        return reason
    if commands.find(CONTROL) is None:
        return f"there is no `{CONTROL}` command: apt-get install iproute2"
    run_id = f"probe-{secrets.token_hex(4)}"
    try:
        probe = network.create_network(run_id, (1,))
        try:
            delay(probe.prefix(1), 1)
        finally:
            network.remove_network(run_id)
    except HarnessError as error:
        return f"this kernel has none: {error}"
    return None


def _tc() -> str:
    return commands.find(CONTROL) or CONTROL
