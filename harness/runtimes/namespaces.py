"""Faults of the links of brokers that each have a network namespace: rules of iptables, and the kernel's emulator.

All of it goes with the namespace: whatever ends a run, nothing of it stays on the host. What is dropped is lost, as by
a broken cable: connections stay open on both sides, and TCP tries again ever less often.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.host import commands, network
from harness.host.node_firewall import CHAINS
from harness.runtimes.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.host.network import NamespaceNetwork

TABLES, CONTROL = "iptables", "tc"


@dataclass(frozen=True)
class NamespaceFaults:
    """Implements `Firewalls`, `LossyLinks` and `SlowLinks` of `harness.runtimes.abilities`.

    ``inside`` gives what a command line begins with to run in a broker's namespace, ``address`` where others see it.
    ``reach`` receives the links that are blocked.
    """

    brokers: Sequence[int]
    inside: Callable[[int], Sequence[str]]
    address: Callable[[int], str]
    reach: Reach
    _delayed: set[int] = field(default_factory=set)

    def block(self, links: Sequence[tuple[int, int]]) -> None:
        """Have the firewall of each second broker drop what the first sends. Raises `HarnessError`."""
        self.reach.block(links)
        for source, hearer in links:
            self._iptables(hearer, "-A", "INPUT", "-s", self.address(source), "-j", "DROP")

    def lose(self, broker: int, fraction: float) -> None:
        """Have the broker's firewall drop packets at random. Raises `HarnessError`."""
        for chain in CHAINS:
            self._iptables(broker, "-A", chain, *at_random(fraction), "-j", "DROP")

    def delay(self, broker: int, delay_ms: int) -> None:
        """Have the broker's own interface hold up everything that leaves by it. Raises `HarnessError`."""
        self._interface(broker, "replace", "netem", "delay", f"{delay_ms}ms")
        self._delayed.add(broker)

    def clear_links(self) -> None:
        """Empty every firewall, and let interfaces be fast. Raises `HarnessError`."""
        for broker in self.brokers:
            for chain in CHAINS:
                self._iptables(broker, "-F", chain)
        while self._delayed:
            self._interface(self._delayed.pop(), "delete")
        self.reach.clear()

    def _iptables(self, broker: int, *words: str) -> None:
        commands.run(*self.inside(broker), TABLES, "-w", *words)

    def _interface(self, broker: int, verb: str, *queue: str) -> None:
        commands.run(*self.inside(broker), CONTROL, "qdisc", verb, "dev", network.INSIDE, "root", *queue)


def at_random(fraction: float) -> list[str]:
    """Return the match of iptables that picks this fraction of all packets."""
    return ["-m", "statistic", "--mode", "random", "--probability", str(fraction)]


def why_no_firewall() -> str | None:
    """Return why there can be no such firewall here, None where there can: a rule was made and removed."""

    def attempt(probe: NamespaceFaults) -> None:
        probe.block([(1, 2)])
        probe.clear_links()

    return _why_missing(TABLES, "iptables") or _why_refused(attempt)


def why_not_slow() -> str | None:
    """Return why no link can be slow here, None where one can: a link was made, slowed and removed."""
    if reason := _why_missing(CONTROL, "iproute2"):
        return reason
    refusal = _why_refused(lambda probe: probe.delay(1, 1))
    return refusal and f"this kernel has none: {refusal}"


def _why_missing(command: str, package: str) -> str | None:
    lack = None if commands.find(command) else f"there is no `{command}` command: apt-get install {package}"
    return network.why_impossible() or lack


def _why_refused(attempt: Callable[[NamespaceFaults], None]) -> str | None:
    def on_network(probe: NamespaceNetwork) -> None:
        attempt(NamespaceFaults(probe.brokers, probe.prefix, probe.address, Reach(())))

    return network.why_refused(on_network, brokers=(1, 2))
