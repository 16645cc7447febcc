"""What breaks, and when: one fault a file, each with `leave` and `come_back`, in one table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.suggest import nearest
from nemesis import catch_up, join, kill, none, partition, pause, throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.cluster import Cluster


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

    ``takes_away`` is False only for the healthy control. ``joins``: the absent brokers hold no replica before
    it acts. ``lives_on``: their processes are there all the time, out of reach. ``away_again`` puts the absent
    brokers, all down, back to where `leave` had left them, for a run that is resumed; None where that cannot be
    had. ``needs_network``: every broker needs a link of its own. ``broker_settings``: what brokers need so that
    it can act. ``leaving`` and ``returning`` are the words for the progress display, to be formatted with
    ``broker``.
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
    needs_network: bool = False
    away_again: Callable[[Grounds], None] | None = None
    broker_settings: Mapping[str, str] = field(default_factory=dict)


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
            lives_on=True, needs_network=True, broker_settings=partition.BROKER_SETTINGS,
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
