"""Faults: one a file, each with `leave` and `come_back`, in one table.

A fault says what happens to which brokers or links; `harness.run` decides when, and `harness.runtimes` carries it out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.runtimes.base import Need
from harness.suggest import nearest
from nemesis import (
    bridge,
    catch_up,
    clock_skew,
    controller_kill,
    disk_full,
    join,
    kill,
    lossy,
    none,
    one_way,
    partition,
    pause,
    ring,
    rolling,
    slow,
    split,
    throttle,
    topology,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.cluster.cluster import Cluster
    from harness.plan.placement import Placement


@dataclass(frozen=True)
class Grounds:
    """What a nemesis acts on. ``copy_bytes_per_s``: the pace per partition for one that slows copying down.

    ``write_ballast`` gives a copying replica something to be busy with.
    """

    cluster: Cluster
    copy_bytes_per_s: int
    write_ballast: Callable[[], None]

    @property
    def absent(self) -> tuple[int, ...]:
        """The brokers to be taken away."""
        return self.cluster.placement.absent


@dataclass(frozen=True)
class Nemesis:
    """A fault that takes the absent brokers away and gives them back.

    ``takes_away`` is False where everybody is there all the time, as in the healthy control. ``joins``: the absent
    brokers hold no replica before it acts. ``lives_on``: their processes are there all the time, out of reach.
    ``away_again`` puts the absent brokers, all down, back to where `leave` had left them, for a run that is resumed;
    None where that cannot be had. ``needs``: what a runtime must have for it. ``quorum``: how many controllers.
    ``broker_settings``: what brokers need so that it can act. ``shape``: the topology that it leaves. ``why_unfit``
    says why it cannot be with brokers placed like that. ``leaving`` and ``returning`` are the words for the progress
    display, to be formatted with ``broker``.
    """

    name: str
    summary: str
    leaving: str
    returning: str
    leave: Callable[[Grounds], None]
    come_back: Callable[[Grounds], None]
    takes_away: bool = True
    joins: bool = False
    lives_on: bool = False
    needs: frozenset[Need] = frozenset()
    quorum: int = 1
    away_again: Callable[[Grounds], None] | None = None
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    shape: Callable[[Placement], topology.Graph] | None = None
    why_unfit: Callable[[Placement], str | None] = lambda _: None


LINK, FIREWALL = frozenset({Need.LINK}), frozenset({Need.FIREWALL})

NEMESES = {
    nemesis.name: nemesis
    for nemesis in (
        Nemesis(
            "kill", "SIGKILL, and a restart once the window is over",
            "kill broker {broker}", "restart broker {broker}", kill.leave, kill.come_back,
            away_again=kill.away_again,
        ),
        Nemesis(
            "pause", "SIGSTOP, and SIGCONT once the window is over",
            "pause broker {broker}", "resume broker {broker}", pause.leave, pause.come_back,
            lives_on=True,
        ),
        Nemesis(
            "partition", "a link that is down until the window is over: the broker runs on alone (needs root)",
            "cut broker {broker} off", "connect broker {broker} again", partition.leave, partition.come_back,
            lives_on=True, needs=LINK, broker_settings=partition.BROKER_SETTINGS,
        ),
        Nemesis(
            "split", "a minority that hears itself, and a majority (needs root; two absent brokers or more)",
            "split off broker {broker}", "join broker {broker} to the others", split.leave, topology.lift,
            lives_on=True, needs=FIREWALL, broker_settings=partition.BROKER_SETTINGS,
            shape=split.shape, why_unfit=split.why_unfit,
        ),
        Nemesis(
            "one-way", "the broker hears everybody, and nobody hears it (needs root)",
            "silence broker {broker}", "let broker {broker} be heard", one_way.leave, topology.lift,
            lives_on=True, needs=FIREWALL, broker_settings=partition.BROKER_SETTINGS, shape=one_way.shape,
        ),
        Nemesis(
            "bridge", "two halves that one broker connects (needs root; five brokers or more)",
            "leave broker {broker} the bridge", "let broker {broker} hear everybody again", bridge.leave, topology.lift,
            lives_on=True, needs=FIREWALL, broker_settings=partition.BROKER_SETTINGS,
            shape=bridge.shape, why_unfit=bridge.why_unfit,
        ),
        Nemesis(
            "ring", "every broker hears its two neighbours only (needs root; five brokers or more)",
            "close the ring, broker {broker} opposite", "open the ring to broker {broker}", ring.leave, topology.lift,
            lives_on=True, needs=FIREWALL, broker_settings=partition.BROKER_SETTINGS,
            shape=ring.shape, why_unfit=ring.why_unfit,
        ),
        Nemesis(
            "join", "no fault: a replica is added, and its first copy is throttled past the window",
            "add replicas on broker {broker}, throttled", "lift the throttle on broker {broker}",
            join.leave, join.come_back, joins=True, away_again=throttle.away_again,
            broker_settings=throttle.BROKER_SETTINGS,
        ),
        Nemesis(
            "catch-up", "SIGKILL and a restart at once, and a catch-up that is throttled past the window",
            "kill broker {broker}, restart it, throttled", "lift the throttle on broker {broker}",
            catch_up.leave, catch_up.come_back, away_again=throttle.away_again,
            broker_settings=throttle.BROKER_SETTINGS,
        ),
        Nemesis(
            "rolling", "a rolling restart in which the broker stays down until the window is over",
            "shut broker {broker} down", "start broker {broker}, and restart the others in turn",
            rolling.leave, rolling.come_back, away_again=rolling.away_again,
        ),
        Nemesis(
            "controller-kill", "SIGKILL, and the active controller is killed and restarted meanwhile (four brokers)",
            "kill broker {broker}, then the controller", "restart broker {broker}", controller_kill.leave,
            kill.come_back, away_again=kill.away_again, quorum=controller_kill.QUORUM,
            why_unfit=controller_kill.why_unfit,
        ),
        Nemesis(
            "disk-full", "the disk is full, the broker ends, and is started once the window is over (needs root)",
            "fill the disk of broker {broker}", "make room for broker {broker} and start it",
            disk_full.leave, disk_full.come_back, away_again=disk_full.away_again, needs=frozenset({Need.DISK}),
        ),
        Nemesis(
            "clock-skew", "nobody is away: the broker's clock is an hour ahead (needs libfaketime)",
            "put the clock of broker {broker} forward", "put the clock of broker {broker} right",
            clock_skew.leave, clock_skew.come_back, takes_away=False, needs=frozenset({Need.CLOCK}),
        ),
        Nemesis(
            "lossy", "nobody is away: the broker's link loses a fifth of all packets (needs root)",
            "lose packets of broker {broker}", "lose no more packets of broker {broker}", lossy.leave, lossy.come_back,
            takes_away=False, needs=FIREWALL,
        ),
        Nemesis(
            "slow", "nobody is away: the broker's link is slow (needs root, and a kernel with netem)",
            "slow the link of broker {broker}", "let the link of broker {broker} be fast", slow.leave, slow.come_back,
            takes_away=False, needs=frozenset({Need.DELAY}),
        ),
        Nemesis(
            "none", "no fault: the healthy control", "no fault", "no fault", none.leave, none.come_back,
            takes_away=False, away_again=none.away_again,
        ),
    )
}  # fmt: skip


def find_nemesis(name: str) -> Nemesis:
    """Return the nemesis of that name. Raises `UsageError` with the nearest names."""
    if name not in NEMESES:
        raise UsageError(nearest("nemesis", name, list(NEMESES)))
    return NEMESES[name]
