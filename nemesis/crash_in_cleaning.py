"""A crash in the middle of a cleaner's pass: SIGKILL while there are files that the cleaner is writing or swapping in.

A cleaner writes ``.cleaned`` files, renames them to ``.swap`` when they are complete, and then to their final names
(``Cleaner.cleanSegments``, ``UnifiedLog.replaceSegments``); a broker that starts removes the former and completes the
latter (``LogLoader``). Small logs have such files for ten milliseconds a pass, so records are written all the while,
which makes one pass follow the other. ``log.cleaner.io.max.bytes.per.second`` would not prolong short passes:
``Throttler`` sleeps before the next pass.
"""

from typing import Final

from harness.runtimes.base import DataFiles, Need
from nemesis.fault import BrokerState, Fault, FaultContext, each
from nemesis.script import Act, script_of

SUFFIXES: Final = (".cleaned", ".swap")
WRITES_A_WINDOW: Final = 20


def crash(context: FaultContext, broker: int) -> None:
    """Kill the broker as soon as there are such files. Raises `WaitTimeoutError` if none appear in the window."""
    data_files, sizes = context.ability(DataFiles), dict[str, int]()

    def is_killed() -> bool:
        sizes.update(data_files.kill_with_files(broker, SUFFIXES))
        return bool(sizes)

    waits_for = f"a cleaner's files ({' or '.join(SUFFIXES)}) on broker {broker}, to kill it in mid-pass"
    context.cluster.wait(is_killed, waits_for, context.window_s)
    files = [{"file": file, "bytes": size} for file, size in sorted(sizes.items())]
    context.note("crash in cleaning", broker=broker, files=files)


def restart(context: FaultContext, broker: int) -> None:
    """Start the broker, unless it was never killed because no such file appeared."""
    if not context.cluster.runtime.is_up(broker):
        context.cluster.runtime.start(broker)


def leave(context: FaultContext) -> None:
    """Keep the brokers' cleaners busy, and kill the brokers in mid-pass."""
    context.write_ballast()
    period_s = context.window_s / WRITES_A_WINDOW
    ballast = context.cluster.clock.every(period_s, context.write_ballast, "the ballast")
    try:
        FAULT.inject(context)
    finally:
        ballast.stop()
    ballast.raise_if_failed()


FAULT = Fault(
    name="crash-in-cleaning",
    summary="SIGKILL in the middle of a cleaner's pass, and a restart at the end",
    inject=each(crash),
    heal=each(restart),
    needs=frozenset({Need.FILES}),
    broker_state=BrokerState.DOWN,
)
SCRIPT = script_of(
    FAULT,
    leave=Act("kill broker {broker} in the middle of a cleaner's pass", leave),
    rejoining="restart broker {broker}",
)
