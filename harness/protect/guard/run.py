"""One guard from its start to a signal: its clients, rounds, metrics and health, and its end."""

import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event as Flag
from types import FrameType
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from harness.audit.live.cluster import GLOB, client_of, describe
from harness.errors import EXIT_CLEAN, EXIT_UNKNOWN, HarnessError, UsageError, WaitTimeoutError, raised_as
from harness.escape import to_json
from harness.host.clock import Clock, RealClock, ThreadRoutine
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.connection import Connection
from harness.kafka_api.topics import describe_log_dirs
from harness.protect.guard.channel import SESSION_MS, GroupLeadership, KafkaChannel, consumer_config
from harness.protect.guard.cluster import LiveCluster
from harness.protect.guard.journal import PauseState
from harness.protect.guard.service import Guard, GuardEvent, GuardOptions, GuardStatus
from harness.report.endpoint import Endpoint, gauge, round_problems
from harness.run_folder.guard_events import GuardEventKind

PREFIX: Final = "compaction_guard_"
EXIT_STILL_PAUSED: Final = EXIT_UNKNOWN
LEAD_S: Final = 3 * SESSION_MS / 1000
"""For `release` to get the lead: the session of a killed guard has to end first."""


def event_log(show: Callable[[str], None], path: Path | None = None) -> Callable[[GuardEvent], None]:
    """Return a function that prints events, and appends them to a file. Raises `UsageError` for an unusable file.

    A full disk or a closed pipe does not end the guard. The file is opened for each event: it may be rotated.
    """
    if path is not None:
        with raised_as(UsageError, f"--events {path}", OSError):
            path.open("a").close()

    def report(event: GuardEvent) -> None:
        topic = f" {event.topic}" if event.topic else ""
        with suppress(OSError):
            show(f"guard: {event.event}{topic}: {event.what}")
        if path is not None:
            with suppress(OSError), path.open("a", encoding="utf-8") as file:
                file.write(f"{to_json(asdict(event))}\n")

    return report


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


@dataclass(frozen=True)
class Observation:
    """Paused topics: segments by topic, of all replicas, and their growth. ``failure``: of the last observation."""

    time_ms: int = 0
    log_bytes: Mapping[str, int] = field(default_factory=dict)
    growth_bytes_s: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None


def unhealthy(status: GuardStatus, now_ms: int) -> list[str]:
    """Return a sentence on each problem of the guard or of a topic; [] where the guard is healthy."""
    wrong = round_problems(status.failure, status.round_ms, status.interval_s, now_ms)
    if status.leads and status.unpaused:
        wrong.append(f"exposed and not paused: {', '.join(sorted(status.unpaused))}")
    return wrong


def families(status: GuardStatus, observation: Observation, now_ms: int) -> Iterator[Metric]:
    """Yield every metric (`docs/reference/guard.md` describes each)."""
    pauses, holds = status.state.pauses, status.state.holds
    gauges: dict[str, tuple[str, float]] = {
        "healthy": ("1 where the health endpoint answers 200.", not unhealthy(status, now_ms)),
        "leads": ("1 where this guard acts, of several.", status.leads),
        "interval_seconds": ("Time between rounds.", status.interval_s),
        "round_seconds": ("Duration of the last round.", status.took_s),
        "last_round_timestamp_seconds": ("End of the last round that succeeded.", status.round_ms / 1000),
        "topics": ("Covered topics.", len(status.covered)),
        "skipped_topics": ("Topics that are not covered because a request was refused.", len(status.skipped)),
        "unpaused_topics": ("Topics that should be paused and are not.", len(status.unpaused)),
        "paused_topics": ("Paused topics.", len(pauses)),
        "left_alone_topics": ("Paused topics whose settings somebody changed.", len(status.left_alone)),
        "short_retention_topics": ("Topics with a retention below 3 intervals and 4 s.", len(status.short_retention)),
        "observation_timestamp_seconds": ("End of the last observation of sizes.", observation.time_ms / 1000),
        "observation_failed": ("1 where the last observation failed.", observation.failure is not None),
    }
    paused_s = {topic: (now_ms - pause.since_ms) / 1000 for topic, pause in pauses.items()}
    by_topic: dict[str, tuple[str, Mapping[str, float]]] = {
        "replicas_away": ("Replicas out of the ISR, but for those being added.", status.away),
        "replicas_adding": ("Replicas that are being added: exposed from the first minute.", status.adding),
        "retention_left_seconds": ("Until a missed record could be removed.", status.retention_left_s),
        "paused_seconds": ("For how long the topic is paused.", paused_s),
        "held": ("Other commands that hold the topic.", {topic: len(holders) for topic, holders in holds.items()}),
        "paused_log_bytes": ("Segments of paused topics, all replicas.", observation.log_bytes),
        "paused_log_growth_bytes_per_second": ("Their growth.", observation.growth_bytes_s),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(PREFIX + name, text, value=value)
    yield CounterMetricFamily(PREFIX + "rounds", "Rounds.", value=status.rounds)
    yield CounterMetricFamily(PREFIX + "failures", "Failed rounds and changes.", value=status.failures)
    yield CounterMetricFamily(PREFIX + "requests", "Requests for metadata and settings.", value=status.requests)
    for name, (text, values) in by_topic.items():
        yield gauge(PREFIX + name, text, "topic", values)


def health(status: GuardStatus, observation: Observation) -> dict[str, Any]:
    """Return the answer of ``/health`` without the problems."""
    return {
        "leads": status.leads,
        "topics": len(status.covered),
        "paused": sorted(status.state.pauses),
        "left_alone": {topic: list(names) for topic, names in sorted(status.left_alone.items())},
        "skipped": dict(sorted(status.skipped.items())),
        "notes": [*status.notes, *([observation.failure] if observation.failure else [])],
    }


@dataclass
class GuardObserver:
    """Observes the paused topics of a status. ``latest``: the last observation."""

    bootstrap: Sequence[Address]
    clock: Clock
    latest: Observation = field(default_factory=Observation)

    def observe(self, status: GuardStatus) -> None:
        """Observe once; ``latest`` has a failure together with the previous values."""
        paused = status.covered & status.state.pauses.keys()
        try:
            sizes, failure = self._paused_bytes(paused)
            now_ms = self.clock.time_ms()
            self.latest = Observation(now_ms, sizes, growth(self.latest, sizes, now_ms), failure)
        except Exception as error:  # noqa: BLE001  (any error is in metrics and health, and ends no guard)
            self.latest = replace(self.latest, failure=str(error) or type(error).__name__)

    def _paused_bytes(self, paused: Collection[str]) -> tuple[dict[str, int], str | None]:
        """Return the bytes of each topic's logs, of all replicas, and the error of a broker without an answer."""
        if not paused:
            return {}, None
        cluster = describe(client_of(self.bootstrap, self.clock), sorted(paused))
        replicas = cluster.state.replicas_by_broker

        def ask(broker: int, caller: Connection) -> Mapping[TopicPartition, int]:
            return caller.ask(describe_log_dirs([tp for tp in replicas[broker] if tp[0] in paused])).sizes_bytes

        answers, errors = cluster.client.ask_all(replicas.keys() & cluster.state.brokers.keys(), ask)
        sizes: Counter[str] = Counter()
        for answer in answers.values():
            for (topic, _), size in answer.items():
                sizes[topic] += size
        failed = next((f"broker {broker}: {error}" for broker, error in errors.items()), None)
        return sizes, failed and f"sizes of logs are unknown on {failed}"


def growth(before: Observation, sizes: Mapping[str, int], now_ms: int) -> dict[str, float]:
    """Return the growth of each topic's logs since the last observation, in bytes a second."""
    took_s = (now_ms - before.time_ms) / 1000
    if took_s <= 0:
        return {}
    return {
        topic: (size - before.log_bytes[topic]) / took_s for topic, size in sizes.items() if topic in before.log_bytes
    }
