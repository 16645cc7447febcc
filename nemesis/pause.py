"""SIGSTOP: the broker is frozen with everything in its memory, and goes on where it was.

As a long garbage collection or a suspended virtual machine does it. A fetch that is on its way when the
broker freezes may still be answered, with what is written within ``replica.fetch.wait.max.ms``: nothing may be
written before that is over. The runner waits until the broker has left every ISR, which takes longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nemesis import Grounds


def leave(grounds: Grounds) -> None:
    """Freeze the brokers."""
    for broker in grounds.absent:
        grounds.cluster.runtime.pause(broker)


def come_back(grounds: Grounds) -> None:
    """Let them go on."""
    for broker in grounds.absent:
        grounds.cluster.runtime.resume(broker)
