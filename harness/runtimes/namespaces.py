"""Link faults of brokers that each have a network namespace: rules of iptables, and the kernel's network emulator.

They are removed with the namespace, so that nothing remains on the host after a run. Dropped packets are lost as with a
broken cable: connections stay open on both sides, and TCP retries with increasing pauses.
"""

import os
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from harness.host import commands, network
from harness.host.node_runs import CHAINS

TABLES, CONTROL = "iptables", "tc"


@dataclass(frozen=True)
class Reach:
    """The brokers that are part of the cluster.

    A broker is up if it is ``running`` and not ``paused``, and its links with any controller work in both directions.
    ``cut``: brokers that are cut off from all others, including the harness. ``blocked``: links without packets from
    the first to the second broker.
    """

    controllers: Sequence[int]
    running: Container[int]
    paused: set[int] = field(default_factory=set)
    cut: set[int] = field(default_factory=set)
    blocked: set[tuple[int, int]] = field(default_factory=set)

    def is_up(self, broker: int) -> bool:
        """Return whether the broker should be running and part of the cluster."""
        return (
            broker in self.running
            and broker not in self.paused | self.cut
            and any(
                broker == controller or not {(broker, controller), (controller, broker)} & self.blocked
                for controller in self.controllers
            )
        )


@dataclass(frozen=True)
class NamespaceFaults:
    """Implements `Firewalls`, `LossyLinks` and `SlowLinks` of `harness.runtimes.base`.

    ``inside``: returns the start of a command line that runs in a broker's namespace. ``address``: returns a broker's
    address for other brokers. ``reach``: records the blocked links.
    """

    brokers: Sequence[int]
    inside: Callable[[int], Sequence[str]]
    address: Callable[[int], str]
    reach: Reach
    _delayed: set[int] = field(default_factory=set)

    def block(self, links: Sequence[tuple[int, int]]) -> None:
        """Drop the packets of each first broker in the firewall of the second. Raises `HarnessError`."""
        self.reach.blocked.update(links)
        for source, receiver in links:
            self._iptables(receiver, "-A", "INPUT", "-s", self.address(source), "-j", "DROP")

    def lose(self, broker: int, fraction: float) -> None:
        """Drop random packets in the broker's firewall. Raises `HarnessError`."""
        for chain in CHAINS:
            self._iptables(broker, "-A", chain, *at_random(fraction), "-j", "DROP")

    def delay(self, broker: int, delay_ms: int) -> None:
        """Delay all packets that leave through the broker's interface. Raises `HarnessError`."""
        self._interface(broker, "replace", "netem", "delay", f"{delay_ms}ms")
        self._delayed.add(broker)

    def clear_links(self) -> None:
        """Delete all rules and delays. Raises `HarnessError`."""
        for broker in self.brokers:
            for chain in CHAINS:
                self._iptables(broker, "-F", chain)
        while self._delayed:
            self._interface(self._delayed.pop(), "delete")
        self.reach.blocked.clear()

    def _iptables(self, broker: int, *words: str) -> None:
        commands.run(*self.inside(broker), TABLES, "-w", *words)

    def _interface(self, broker: int, verb: str, *queue: str) -> None:
        commands.run(*self.inside(broker), CONTROL, "qdisc", verb, "dev", network.INSIDE, "root", *queue)


def at_random(fraction: float) -> list[str]:
    """Return the match of iptables for this fraction of all packets."""
    return ["-m", "statistic", "--mode", "random", "--probability", str(fraction)]


def why_not_entered() -> str | None:
    """Return why rules cannot be set in the network namespaces of containers, which needs root and nsenter."""
    if os.geteuid() != 0:
        return "setting rules in a container's network namespace needs root: run as root"
    missing = [command for command in ("nsenter", TABLES) if commands.find(command) is None]
    return f"the `{missing[0]}` command is missing: apt-get install util-linux iptables" if missing else None


def why_no_firewall() -> str | None:
    """Add and delete a rule; return the reason why that is impossible, or None."""

    def attempt(probe: NamespaceFaults) -> None:
        probe.block([(1, 2)])
        probe.clear_links()

    return _why_refused(TABLES, "iptables", attempt)


def why_not_slow() -> str | None:
    """Delay a temporary link; return the reason why that is impossible, or None."""
    return _why_refused(CONTROL, "iproute2", lambda probe: probe.delay(1, 1), "this kernel does not have it: ")


def _why_refused(
    command: str, package: str, attempt: Callable[[NamespaceFaults], None], introduction: str = ""
) -> str | None:
    if reason := network.why_impossible():
        return reason
    if commands.find(command) is None:
        return f"the `{command}` command is missing: apt-get install {package}"
    refusal = network.why_refused(
        lambda probe: attempt(NamespaceFaults((1, 2), probe.prefix, probe.address, Reach((), ()))), brokers=(1, 2)
    )
    return refusal and introduction + refusal
