"""One guard from its start to a signal: its clients, metrics, rounds, and its end."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event as Flag
from types import FrameType
from typing import Final

from harness.audit.live.cluster import GLOB
from harness.errors import EXIT_CLEAN, EXIT_UNKNOWN, HarnessError, UsageError, WaitTimeoutError
from harness.escape import to_json
from harness.host.clock import Clock, RealClock, ThreadRoutine
from harness.kafka_api.address import Address
from harness.protect.guard.channel import SESSION_MS, GroupLeadership, KafkaChannel, consumer_config
from harness.protect.guard.cluster import LiveCluster
from harness.protect.guard.journal import PauseState
from harness.protect.guard.metrics import GuardObserver, families, health, unhealthy
from harness.protect.guard.service import Guard, GuardEvent, GuardOptions
from harness.report.endpoint import Endpoint
from harness.run_folder.guard_events import GuardEventKind

EXIT_STILL_PAUSED: Final = EXIT_UNKNOWN
LEAD_S: Final = 3 * SESSION_MS / 1000
"""For `release` to get the lead: the session of a killed guard has to end first."""


@contextmanager
def event_log(show: Callable[[str], None], path: Path | None = None) -> Iterator[Callable[[GuardEvent], None]]:
    """Provide a function that prints events, and appends them to a file. Raises `UsageError` for an unusable file."""
    with ExitStack() as stack:
        try:
            file = None if path is None else stack.enter_context(path.open("a", encoding="utf-8", buffering=1))
        except OSError as error:
            raise UsageError(f"--events {path}: {error.strerror or error}") from error

        def report(event: GuardEvent) -> None:
            topic = f" {event.topic}" if event.topic else ""
            show(f"guard: {event.event}{topic}: {event.what}")
            if file is not None:
                file.write(f"{to_json(asdict(event))}\n")

        yield report


def guard_until_signal(
    bootstrap: Sequence[Address],
    options: GuardOptions,
    log: Callable[[GuardEvent], None],
    listen: tuple[str, int],
    observe_every_s: float,
) -> int:
    """Guard a cluster until SIGTERM or SIGINT; a second signal ends it at once. ``listen``: host, port of metrics."""
    clock = RealClock()
    with ExitStack() as stack, signalled() as stop:
        consumer_config(bootstrap)  # rejects a login that librdkafka does not support before a topic is created
        cluster, channel = _connect(bootstrap, clock, stack)
        check_names(cluster, options.patterns)
        channel.ensure()
        leadership = stack.enter_context(closing(GroupLeadership(bootstrap)))
        observer = GuardObserver(bootstrap, clock)
        guard = Guard(cluster, channel, leadership, clock, options, log, lambda: observer.latest.growth_bytes_s)
        endpoint = Endpoint(
            *listen,
            lambda: families(guard.status, observer.latest, clock.time_ms()),
            lambda: (unhealthy(guard.status, clock.time_ms()), health(guard.status, observer.latest)),
        )
        stack.callback(endpoint.close)
        log(GuardEvent(clock.time_ms(), GuardEventKind.LISTENS, "", f"http://{endpoint.address}/metrics and /health"))
        observing = ThreadRoutine(observe_every_s, lambda: observer.observe(guard.status), "observations")
        stack.callback(observing.let_end)
        try:
            while not stop.is_set():
                guard.attempt()
                wait_for_round(guard, stop, clock)
            guard.end()
        except KeyboardInterrupt:
            pass
        finally:
            remaining = guard.paused
            end = "this guard leaves no topic paused"
            if remaining:
                command = f"harness guard release --bootstrap-server {','.join(map(str, bootstrap))}"
                end = f"{remaining} topics stay paused; once their replicas are back, release them with: {command}"
            log(GuardEvent(clock.time_ms(), GuardEventKind.ENDED, "", end))
        return EXIT_STILL_PAUSED if remaining else EXIT_CLEAN


def dry_run(bootstrap: Sequence[Address], options: GuardOptions, log: Callable[[GuardEvent], None]) -> tuple[int, str]:
    """Report the changes of one round; return exit code 0 where there are none, and a summary. Raises `UsageError`."""
    clock, would = RealClock(), set[str]()

    def report(event: GuardEvent) -> None:
        would.update({event.topic} if event.event is GuardEventKind.WOULD else ())
        log(event)

    with ExitStack() as stack:
        cluster, channel = _connect(bootstrap, clock, stack)
        check_names(cluster, options.patterns)
        guard = Guard(cluster, channel, None, clock, options, report)
        guard.round()
    code = EXIT_UNKNOWN if would else EXIT_CLEAN
    return code, f"a guard would change {len(would)} of {len(guard.status.covered)} topics   (exit code {code})"


def release(
    bootstrap: Sequence[Address], options: GuardOptions, log: Callable[[GuardEvent], None]
) -> tuple[int, PauseState]:
    """Restore previous settings where allowed; return exit code and remaining pauses. Raises if a guard runs."""
    clock = RealClock()
    with ExitStack() as stack:
        cluster, channel = _connect(bootstrap, clock, stack)
        state = channel.read()
        if not state.pauses:
            return EXIT_CLEAN, state
        leadership = stack.enter_context(closing(GroupLeadership(bootstrap)))
        try:
            clock.wait_until(leadership.leads, LEAD_S, "the lead")
        except WaitTimeoutError as error:
            why = f" ({leadership.error})" if leadership.error else ""
            raise HarnessError(f"a guard runs on this cluster, or its group has no coordinator{why}: end it") from error
        guard = Guard(cluster, channel, leadership, clock, options, log)
        with suppress(WaitTimeoutError):
            clock.wait_until(guard.attempt, LEAD_S, "the previous settings to be restored")
        if guard.status.failure is not None:
            raise HarnessError(guard.status.failure)
        state = guard.status.state
    return (EXIT_STILL_PAUSED if state.pauses else EXIT_CLEAN), state


def read_state(bootstrap: Sequence[Address]) -> PauseState:
    """Return the channel's state. Raises `HarnessError`, `UsageError` where no broker answers."""
    with ExitStack() as stack:
        _, channel = _connect(bootstrap, RealClock(), stack)
        return channel.read()


def _connect(bootstrap: Sequence[Address], clock: Clock, stack: ExitStack) -> tuple[LiveCluster, KafkaChannel]:
    cluster = stack.enter_context(closing(LiveCluster(bootstrap, clock)))
    return cluster, stack.enter_context(closing(KafkaChannel(bootstrap, clock)))


def check_names(cluster: LiveCluster, patterns: Sequence[str]) -> None:
    """Raise `UsageError` for a named topic that does not exist; a pattern may match topics that are created later."""
    topics = cluster.view().topics
    for name in patterns:
        if not GLOB & set(name) and name not in topics:
            raise UsageError(f"topic {name} does not exist, or this user may not describe it")


@contextmanager
def signalled() -> Iterator[Flag]:
    """Provide a flag that the first SIGTERM or SIGINT sets; the next signal raises KeyboardInterrupt."""
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


def wait_for_round(guard: Guard, stop: Flag, clock: Clock) -> None:
    """Wait for the next round, and serve the group meanwhile; a change of the lead begins a round at once."""
    # A round that failed may not have noticed a change, which would end every wait: without brokers, the group takes
    # the lead from this guard, and no round succeeds.
    led = guard.status.leads if guard.status.failure is None else None

    def is_due() -> bool:
        nonlocal led
        if stop.is_set():
            return True
        try:
            before, led = led, guard.leads()
        except HarnessError:
            return False  # the next round reports it
        return before is not None and led is not before

    with suppress(WaitTimeoutError):
        clock.wait_until(is_due, max(guard.pause_s - guard.status.took_s, 0.0), "the next round")
