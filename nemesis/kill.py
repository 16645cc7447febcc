"""SIGKILL: the broker is gone at once, and comes back on the data it left."""

from nemesis.fault import Nemesis, kill, nothing, start

NEMESIS = Nemesis(
    name="kill",
    summary="SIGKILL, and a restart once the window is over",
    leaving="kill broker {broker}",
    returning="restart broker {broker}",
    inject=kill,
    heal=start,
    reinject=nothing,
)
