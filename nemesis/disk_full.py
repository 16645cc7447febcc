"""A full disk: the broker cannot write any more, gives its log directory up and ends. Once there is room it is started.

As Kafka does it when its only log directory fails (KIP-112). What it wrote before is there when it comes back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis import Grounds


def leave(grounds: Grounds) -> None:
    """Fill the brokers' disks, and write until they have noticed."""
    runtime = grounds.cluster.runtime
    for broker in grounds.absent:
        runtime.fill_disk(broker)
    grounds.write_ballast()
    grounds.cluster.wait(
        lambda: not any(runtime.is_up(broker) for broker in grounds.absent),
        "the brokers without disk space to end",
    )


def come_back(grounds: Grounds) -> None:
    """Make room, and start them."""
    for broker in grounds.absent:
        grounds.cluster.runtime.free_disk(broker)
        grounds.cluster.runtime.start(broker)


def away_again(grounds: Grounds) -> None:
    """Leave them down."""
