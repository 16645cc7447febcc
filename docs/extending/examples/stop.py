"""An orderly shutdown: the broker hands its leadership over, and is started again once the window is over."""

from nemesis.fault import Nemesis, each, nothing

NEMESIS = Nemesis(
    name="stop",
    summary="an orderly shutdown, and a start once the window is over",
    leaving="shut broker {broker} down",
    returning="start broker {broker}",
    inject=each(lambda context, broker: context.cluster.runtime.stop(broker)),
    heal=each(lambda context, broker: context.cluster.runtime.start(broker)),
    reinject=nothing,
)
