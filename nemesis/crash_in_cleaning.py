"""A crash in the middle of a cleaner's pass: SIGKILL while files lie there that the cleaner is writing or swapping in.

A cleaner writes ``.cleaned`` files, renames them to ``.swap`` when they are complete, and then to their final names
(``Cleaner.cleanSegments``, ``UnifiedLog.replaceSegments``); a broker that starts removes the former and completes the
latter (``LogLoader``). Small logs have such files for ten or twenty milliseconds a pass, so records are written all the
while, which makes one pass follow the other, and the broker is watched closely. To slow its cleaner down
(``log.cleaner.io.max.bytes.per.second``) does not help: where passes are short, ``Throttler`` sleeps when the next pass
begins, before there are such files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harness.runtimes.abilities import DataFiles, Need
from nemesis.fault import Nemesis, each, nothing

if TYPE_CHECKING:
    from nemesis.fault import NemesisContext

SUFFIXES: Final = (".cleaned", ".swap")
WRITES_A_WINDOW: Final = 20


def _crash(context: NemesisContext, broker: int) -> None:
    """Kill the broker as soon as such files lie there. Raises `WaitTimeoutError` where none appear in the window."""
    files = context.ability(DataFiles)
    lying: dict[str, int] = {}

    def is_killed() -> bool:
        lying.update(files.kill_with_files(broker, SUFFIXES))
        return bool(lying)

    what = f"a cleaner's files ({' or '.join(SUFFIXES)}) on broker {broker}, to kill it in mid-pass"
    context.cluster.wait(is_killed, what, context.window_s)
    found = [{"file": file, "bytes": size} for file, size in sorted(lying.items())]
    context.note("crash in cleaning", broker=broker, files=found)


crash = each(_crash)
"""Kill the brokers in mid-pass, where clients write anyway."""


def inject(context: NemesisContext) -> None:
    """Have the brokers' cleaners be busy, and kill the brokers in the middle of it."""
    context.write_ballast()
    ballast = context.cluster.clock.every(context.window_s / WRITES_A_WINDOW, context.write_ballast, "the ballast")
    try:
        crash(context)
    finally:
        ballast.stop()
    ballast.raise_if_failed()


def _start(context: NemesisContext, broker: int) -> None:
    # It runs where no such file appeared.
    if not context.cluster.runtime.is_up(broker):
        context.cluster.runtime.start(broker)


NEMESIS = Nemesis(
    name="crash-in-cleaning",
    summary="SIGKILL in the middle of a cleaner's pass, and a restart once the window is over",
    leaving="kill broker {broker} in the middle of a cleaner's pass",
    returning="restart broker {broker}",
    inject=inject,
    heal=each(_start),
    reinject=nothing,
    needs=frozenset({Need.FILES}),
)
