"""What a fault is: how it begins and ends, what it needs, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from harness.runtimes.abilities import Need, ability

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.cluster.cluster import Cluster
    from harness.kafka_api.replica import TopicPartition
    from harness.schedules.placement import Placement
    from nemesis import topology

Ability = TypeVar("Ability")

LINK, FIREWALL = frozenset({Need.LINK}), frozenset({Need.FIREWALL})


@dataclass(frozen=True)
class NemesisContext:
    """What a nemesis acts on. ``copy_bytes_per_s``: the pace per partition for one that slows copying down.

    ``write_ballast`` gives a copying replica something to be busy with. ``payload_ends`` returns, for each partition,
    the offset after the payload that was written before the nemesis acts. ``window_s`` bounds the time in which brokers
    that stay remove what is critical. ``note`` writes what a nemesis saw or did to the history, by its name and fields.
    """

    cluster: Cluster
    copy_bytes_per_s: int
    write_ballast: Callable[[], None]
    payload_ends: Callable[[], Mapping[TopicPartition, int]]
    window_s: float
    note: Callable[..., None]

    def ability(self, protocol: Callable[..., Ability]) -> Ability:
        """Return the runtime as one that has the ability. Raises `HarnessError` for a runtime that lacks it."""
        return ability(self.cluster.runtime, protocol)

    @property
    def absent(self) -> tuple[int, ...]:
        """The brokers to be taken away."""
        return self.cluster.placement.absent


def each(act: Callable[[NemesisContext, int], None]) -> Callable[[NemesisContext], None]:
    """Return what does this to every absent broker, one after the other."""

    def do(context: NemesisContext) -> None:
        for broker in context.absent:
            act(context, broker)

    return do


def nothing(_context: NemesisContext) -> None:
    """Do nothing. As `Nemesis.reinject`: leave the absent brokers down."""


kill = each(lambda context, broker: context.cluster.runtime.kill(broker))
stop = each(lambda context, broker: context.cluster.runtime.stop(broker))
start = each(lambda context, broker: context.cluster.runtime.start(broker))


@dataclass(frozen=True)
class Nemesis:
    """A fault that takes the absent brokers away and gives them back.

    It acts up to three times: `inject` before the critical records are written, `expose` (where there is one) once the
    brokers that stay have removed them, and `heal` after the snapshot that shows what every replica holds then.

    ``takes_away`` is False where everybody is there all the time, as in the healthy control. ``joins``: the absent
    brokers hold no replica before it acts. ``lives_on``: their processes are there all the time, out of reach.
    ``reinject`` puts the absent brokers, all down, back to where `inject` had left them, for a run that is resumed;
    None where that cannot be had. ``needs``: what a runtime must have for it. ``quorum``: how many controllers.
    ``broker_settings``: what brokers need so that it can act. ``shape``: the topology that it leaves. ``why_unfit``
    says why it cannot be with brokers placed like that. ``hands_over``: each copy on an absent broker has two
    leaders in turn, so that it counts what each of them held. ``leaving``, ``exposing`` and ``returning`` are the
    words for the progress display, to be formatted with ``broker``.
    """

    name: str
    summary: str
    leaving: str
    returning: str
    inject: Callable[[NemesisContext], None]
    heal: Callable[[NemesisContext], None]
    takes_away: bool = True
    joins: bool = False
    hands_over: bool = False
    lives_on: bool = False
    needs: frozenset[str] = frozenset()
    quorum: int = 1
    reinject: Callable[[NemesisContext], None] | None = None
    expose: Callable[[NemesisContext], None] | None = None
    exposing: str = ""
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    shape: Callable[[Placement], topology.Graph] | None = None
    why_unfit: Callable[[Placement], str | None] = lambda _: None
