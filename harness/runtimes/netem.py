"""A slow link: the kernel's network emulator on a broker's own interface, where the kernel has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.host import commands, network

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
    refusal = network.why_refused(lambda probe: delay(probe.prefix(1), 1), brokers=(1,))
    return None if refusal is None else f"this kernel has none: {refusal}"


def _tc() -> str:
    return commands.find(CONTROL) or CONTROL
