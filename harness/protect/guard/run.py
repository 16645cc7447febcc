"""One guard from its start to a signal: its clients, its metrics, its rounds, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Event as Flag
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from harness.errors import EXIT_CLEAN, EXIT_UNKNOWN, HarnessError, UsageError, WaitTimeoutError
from harness.host.clock import RealClock
from harness.protect.guard.channel import KafkaChannel
from harness.protect.guard.cluster import LiveCluster
from harness.protect.guard.events import EventLog, GuardEvent
from harness.protect.guard.leadership import SESSION_MS, GroupLeadership
from harness.protect.guard.metrics import Endpoint
from harness.protect.guard.observe import GuardObserver
from harness.protect.guard.service import ACT, Guard, Options, releasing_command
from harness.run_folder.guard_events import GuardEventKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import FrameType

    from harness.host.clock import Clock
    from harness.kafka_api.address import Address
    from harness.protect.guard.journal import PauseState

EXIT_STILL_PAUSED: Final = EXIT_UNKNOWN
LEAD_S: Final = 3 * SESSION_MS / 1000
"""For `release` to get the lead: the session of a guard that was killed has to end first."""
GLOB: Final = frozenset("*?[")


@dataclass(frozen=True)
class GuardRequest:
    """What a user asked for. ``listen``: host and port of the metrics; None for none."""

    bootstrap: tuple[Address, ...]
    options: Options
    listen: tuple[str, int] | None = None
    observe_every_s: float = 60.0
    events: Path | None = None


def writer() -> str:
    """Return a name for this process, as entries have it."""
    return f"{socket.gethostname()}:{os.getpid()}"


def guard_until_signal(request: GuardRequest, log: EventLog) -> int:
    """Guard a cluster until SIGTERM or SIGINT; a second one ends it at once. Return the exit code."""
    clock, options = RealClock(), request.options
    acts = options.mode == ACT
    with ExitStack() as stack, signalled() as stop:
        cluster = LiveCluster(request.bootstrap, clock)
        stack.callback(cluster.close)
        check_names(cluster, options.patterns)
        channel = KafkaChannel(request.bootstrap, clock)
        stack.callback(channel.close)
        if acts:
            channel.ensure()
        leadership = GroupLeadership(request.bootstrap) if acts else None
        if leadership is not None:
            stack.callback(leadership.close)
        observer = GuardObserver(request.bootstrap, clock)
        guard = Guard(
            cluster, channel, leadership, clock, options, log, new_cycle, lambda: observer.latest.growth_bytes_s
        )
        if request.listen is not None:
            endpoint = Endpoint(*request.listen, lambda: (guard.status, observer.latest), clock.time_ms)
            stack.callback(endpoint.close)
            log(
                GuardEvent(
                    clock.time_ms(), GuardEventKind.LISTENS, "", f"http://{endpoint.address}/metrics and /health"
                )
            )
        stack.callback(observer.start(request.observe_every_s, lambda: guard.status))
        command = releasing_command(",".join(map(str, request.bootstrap)))
        try:
            while not stop.is_set():
                guard.attempt()
                _wait(guard, stop, clock)
            left = guard.end()
        except KeyboardInterrupt:
            left = guard.paused
        except BaseException:
            _report_end(guard, log, guard.paused, command)
            raise
        return _report_end(guard, log, left, command)


def release(request: GuardRequest, log: EventLog) -> tuple[int, PauseState]:
    """Put back what was found, where it may be; return the exit code, and what is still paused.

    Raises `HarnessError` where a guard runs: it puts back by itself what may be put back.
    """
    clock = RealClock()
    with ExitStack() as stack:
        cluster = LiveCluster(request.bootstrap, clock)
        stack.callback(cluster.close)
        channel = KafkaChannel(request.bootstrap, clock)
        stack.callback(channel.close)
        if not channel.read().pauses:
            return EXIT_CLEAN, channel.read()
        leadership = GroupLeadership(request.bootstrap)
        stack.callback(leadership.close)
        try:
            clock.wait_until(leadership.leads, LEAD_S, "the lead")
        except WaitTimeoutError as error:
            why = f" ({leadership.error})" if leadership.error else ""
            raise HarnessError(f"a guard runs on this cluster, or its group has no coordinator{why}: end it") from error
        guard = Guard(cluster, channel, leadership, clock, request.options, log, new_cycle)
        with suppress(WaitTimeoutError):
            clock.wait_until(guard.attempt, LEAD_S, "what was found to be put back")
        if guard.status.failure is not None:
            raise HarnessError(guard.status.failure)
        state = guard.status.state
    return (EXIT_STILL_PAUSED if state.pauses else EXIT_CLEAN), state


def read_state(bootstrap: Sequence[Address]) -> PauseState:
    """Return what the channel has. Raises `HarnessError`, `UsageError` where no broker answers."""
    clock = RealClock()
    LiveCluster(bootstrap, clock).close()
    channel = KafkaChannel(bootstrap, clock)
    try:
        return channel.read()
    finally:
        channel.close()


def new_cycle() -> str:
    """Return a name for a pause."""
    return uuid4().hex[:12]


def check_names(cluster: LiveCluster, patterns: Sequence[str]) -> None:
    """Raise `UsageError` for a topic that was named and is not there; a pattern may match topics that come later."""
    topics = cluster.view().topics
    for name in patterns:
        if not GLOB & set(name) and name not in topics:
            raise UsageError(f"topic {name} does not exist, or this user may not describe it")


@contextmanager
def signalled() -> Iterator[Flag]:
    """Give a flag that the first SIGTERM or SIGINT sets; the next one raises KeyboardInterrupt."""
    stop = Flag()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait(guard: Guard, stop: Flag, clock: Clock) -> None:
    """Wait for the next round, and serve the group meanwhile; a change of the lead begins a round at once."""
    led = guard.status.leads
    left_s = max(guard.pause_s - guard.status.took_s, 0.0)

    def is_due() -> bool:
        if stop.is_set():
            return True
        try:
            return guard.leads() is not led
        except HarnessError:
            return False  # the next round reports it

    with suppress(WaitTimeoutError):
        clock.wait_until(is_due, left_s, "the next round")


def _report_end(guard: Guard, log: EventLog, left: int, command: str) -> int:
    """Report what stays paused, and return the exit code."""
    still = f"{left} topics stay paused; once their replicas are back, release them with: {command}"
    what = still if left else "this guard leaves nothing paused"
    log(GuardEvent(guard.clock.time_ms(), GuardEventKind.ENDED, "", what))
    return EXIT_STILL_PAUSED if left else EXIT_CLEAN
