"""A firewall before each broker: rules of iptables in the broker's own network namespace.

They go with the namespace: whatever ends a run, no rule of it stays on the host. What is dropped is lost, as by a
broken cable: connections stay open on both sides, and TCP tries again ever less often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.host import commands, network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.host.network import Network

TABLES = "iptables"
CHAINS = ("INPUT", "OUTPUT")


def block(
    inside: Callable[[int], Sequence[str]], address: Callable[[int], str], links: Sequence[tuple[int, int]]
) -> None:
    """Drop what the first of each pair sends, before the second. Raises `HarnessError`.

    ``inside`` gives what a command line begins with to run in a broker's namespace, ``address`` where others see it.
    """
    for source, hearer in links:
        commands.run(*inside(hearer), _tables(), "-w", "-A", "INPUT", "-s", address(source), "-j", "DROP")


def lose(inside: Sequence[str], fraction: float) -> None:
    """Drop this fraction of the packets that come in and go out, at random (iptables' statistic match).

    ``inside``: what a command line begins with to run in the broker's namespace. Raises `HarnessError`.
    """
    at_random = ("-m", "statistic", "--mode", "random", "--probability", str(fraction), "-j", "DROP")
    for chain in CHAINS:
        commands.run(*inside, _tables(), "-w", "-A", chain, *at_random)


def clear(inside: Callable[[int], Sequence[str]], brokers: Sequence[int]) -> None:
    """Take every rule back. Raises `HarnessError`."""
    for broker in brokers:
        for chain in CHAINS:
            commands.run(*inside(broker), _tables(), "-w", "-F", chain)


def why_impossible() -> str | None:
    """Return the reason why there can be no such firewall here, None where there can: a rule was made and removed."""
    reason = network.why_impossible()
    if reason is not None:
        return reason
    if commands.find(TABLES) is None:
        return f"there is no `{TABLES}` command: apt-get install iptables"

    def attempt(probe: Network) -> None:
        block(probe.prefix, probe.address, [(1, 2)])
        clear(probe.prefix, probe.brokers)

    return network.why_refused(attempt, brokers=(1, 2))


def _tables() -> str:
    return commands.find(TABLES) or TABLES
