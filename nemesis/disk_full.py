"""A full disk: the broker cannot write any more, gives its log directory up and ends. Once there is room it is started.

As Kafka does it when its only log directory fails (KIP-112). What it wrote before is there when it comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.runtimes.abilities import Disks, Need
from nemesis.fault import Nemesis, each, nothing

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext


def inject(context: NemesisContext) -> None:
    """Fill the brokers' disks, and write until they have noticed."""
    runtime = context.cluster.runtime
    for broker in context.absent:
        context.ability(Disks).fill_disk(broker)
    context.write_ballast()
    context.cluster.wait(
        lambda: not any(runtime.is_up(broker) for broker in context.absent),
        "the brokers without disk space to end",
    )


def make_room(context: NemesisContext, broker: int) -> None:
    """Make room on the broker's disk, and start it."""
    context.ability(Disks).free_disk(broker)
    context.cluster.runtime.start(broker)


NEMESIS = Nemesis(
    name="disk-full",
    summary="the disk is full, the broker ends, and is started once the window is over (needs root)",
    leaving="fill the disk of broker {broker}",
    returning="make room for broker {broker} and start it",
    inject=inject,
    heal=each(make_room),
    reinject=nothing,
    needs=frozenset({Need.DISK}),
)
