"""A rolling restart in which the first brokers take longer than the retention: an upgrade that hangs.

Every broker is shut down in an orderly way and started again, one after the other; but the absent ones stay down until
the window is over. The others follow once those are back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemesis.fault import Nemesis, nothing, start, stop

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext


def heal(context: NemesisContext) -> None:
    """Start them, then restart every other broker in turn."""
    cluster = context.cluster
    start(context)
    cluster.wait_absent_back()
    for broker in cluster.placement.staying:
        cluster.runtime.stop(broker)
        cluster.runtime.start(broker)
        cluster.wait_registered()
        cluster.wait_absent_back()


NEMESIS = Nemesis(
    name="rolling",
    summary="a rolling restart in which the broker stays down until the window is over",
    leaving="shut broker {broker} down",
    returning="start broker {broker}, and restart the others in turn",
    inject=stop,
    heal=heal,
    reinject=nothing,
)
