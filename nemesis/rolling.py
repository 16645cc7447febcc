"""A rolling restart in which the first brokers take longer than the retention: an upgrade that hangs.

Every broker is shut down in an orderly way and started again, one after the other; but the absent ones stay down until
the window is over. The others follow once those are back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis.fault import Nemesis

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext


def inject(context: NemesisContext) -> None:
    """Shut the absent brokers down."""
    for broker in context.absent:
        context.cluster.runtime.stop(broker)


def heal(context: NemesisContext) -> None:
    """Start them, then restart every other broker in turn."""
    cluster = context.cluster
    for broker in context.absent:
        cluster.runtime.start(broker)
    cluster.wait_absent_back()
    for broker in cluster.placement.staying:
        cluster.runtime.stop(broker)
        cluster.runtime.start(broker)
        cluster.wait_registered()
        cluster.wait_absent_back()


def reinject(context: NemesisContext) -> None:
    """Leave them down."""


NEMESIS = Nemesis(
    name="rolling",
    summary="a rolling restart in which the broker stays down until the window is over",
    leaving="shut broker {broker} down",
    returning="start broker {broker}, and restart the others in turn",
    inject=inject,
    heal=heal,
    reinject=reinject,
)
