"""The one way through a run: write, take a broker away, clean, bring it back, read every broker's history.

Every step ends on a condition that was seen to hold. The runner writes only to the run folder and decides
nothing about anomalies; that is the checkers' part.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness import snapshot
from harness.admin import Admin
from harness.errors import HarnessError, WaitTimeoutError
from harness.history import History
from harness.observe import Observer
from harness.runtimes.base import bootstrap_servers
from harness.scenario import FREEZE, Phase
from harness.store import AFTER_REJOIN, BEFORE_RETURN
from workloads.filler import Filler, FillerSpec
from workloads.payload import Payload
from workloads.reader import read_committed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.admin import PartitionState
    from harness.clients import MakeProducer
    from harness.clock import Clock
    from harness.replica import TopicPartition
    from harness.runtimes.base import Runtime
    from harness.scenario import Critical, Scenario, Timers
    from harness.store import RunFolder
    from harness.wire import Address
    from nemesis import Nemesis

TRANSACTION_STATE = ("__transaction_state", 0)
FILLER_RECORDS = 4
"""So many filler records reach every replica after the rejoin."""


@dataclass(frozen=True)
class Test:
    """Everything that decides what a run does; with the run folder, all that the runner needs.

    ``topic_settings`` are the timers' with the user's on top. Every scenario names the same absent broker.
    """

    __test__ = False  # pytest collects classes of this name

    scenarios: tuple[Scenario, ...]
    nemesis: Nemesis
    timers: Timers
    topic_settings: Mapping[str, str]
    seed: int
    client: str = "librdkafka"

    @property
    def absent_broker(self) -> int:
        """The broker that all scenarios agree on."""
        absent = {s.absent_broker for s in self.scenarios}
        if len(absent) != 1:
            raise ValueError(f"scenarios of one outage must name one absent broker, not {sorted(absent)}")
        return absent.pop()

    def staying(self, brokers: Sequence[int]) -> tuple[int, ...]:
        """Return these brokers without the absent one, in order."""
        return tuple(broker for broker in brokers if broker != self.absent_broker)


class Outage:
    """One run on one cluster: all scenarios, a topic each, in one outage."""

    def __init__(
        self,
        test: Test,
        runtime: Runtime,
        make_producer: MakeProducer,
        folder: RunFolder,
        *,
        clock: Clock,
        progress: Callable[[str], None],
    ) -> None:
        """Remember the parts; nothing is started."""
        self._make_producer = make_producer
        self._test = test
        self._runtime = runtime
        self._folder = folder
        self._clock = clock
        self._progress = progress
        self._admin = Admin(self._live_addresses)
        self._replicas: dict[TopicPartition, tuple[int, ...]] = {
            (s.name, 0): s.replicas(tuple(runtime.brokers)) for s in test.scenarios
        }
        self._checks: list[Callable[[], None]] = [runtime.raise_if_died]
        self.is_observing = False
        """Whether there is anything to judge yet."""

    @property
    def topics(self) -> list[str]:
        """Topic names, one a scenario."""
        return [topic for topic, _ in self._replicas]

    def run(self) -> None:
        """Go through all phases. Raises `HarnessError` where one cannot be completed."""
        with ExitStack() as owned:
            self._boot()
            history = owned.enter_context(closing(History(self._folder.history_path, self._clock)))
            filler = self._filler(history)
            payloads = [Payload(s, self._make_producer, history) for s in self._test.scenarios]
            self._create_topics(filler, payloads)
            observer = owned.enter_context(
                closing(Observer(self._runtime, list(self._replicas), self._folder.observations_path, self._clock))
            )
            observer.start()
            self.is_observing = True
            self._checks += [observer.raise_if_failed, filler.raise_if_failed]
            self._write(filler, payloads, observer)
            self._leave()
            self._end_and_clean(filler, payloads, observer)
            self._come_back(filler, observer)
            self._observe(observer, history)

    def _boot(self) -> None:
        self._progress("boot")
        self._runtime.start_cluster()
        wanted = set(self._runtime.brokers)
        self._wait(lambda: self._registered() >= wanted, f"brokers {sorted(wanted)} to register")

    def _create_topics(self, filler: Filler, payloads: Sequence[Payload]) -> None:
        self._progress("create topics")
        self._admin.create_topics(
            {topic: replicas for (topic, _), replicas in self._replicas.items()}, self._test.topic_settings
        )
        self._wait(lambda: set(self._admin.partitions(self.topics)) == set(self._replicas), "the topics to exist")
        self._wait(lambda: self._admin.has_coordinator("any"), "a transaction coordinator")
        # A coordinator on the absent broker would hold up every commit until it has moved.
        staying = self._test.staying(self._runtime.brokers)
        self._lead([TRANSACTION_STATE], [*staying, self._test.absent_broker])
        filler.init()
        for payload in payloads:
            payload.init()

    def _write(self, filler: Filler, payloads: Sequence[Payload], observer: Observer) -> None:
        self._progress("write")
        with filler.running(Phase.BEFORE):
            for payload in payloads:
                payload.run(Phase.BEFORE)
        self._wait_replicated(observer, "everything written to be on every replica")

    def _leave(self) -> None:
        absent = self._test.absent_broker
        self._progress(self._test.nemesis.leaving.format(broker=absent))
        self._test.nemesis.leave(self._runtime, absent)
        if self._test.nemesis.takes_away:
            self._wait(
                lambda: bool(states := self._states()) and all(absent not in p.isr for p in states.values()),
                f"broker {absent} to leave every ISR",
            )

    def _end_and_clean(self, filler: Filler, payloads: Sequence[Payload], observer: Observer) -> None:
        self._progress("end transactions")
        with filler.running(Phase.OUTAGE):
            for payload in payloads:
                payload.run(Phase.OUTAGE)
            self._progress("clean")
            self._wait_removed(payloads, observer)
            self._freeze()
            self._progress("late transactions")
            for payload in payloads:
                payload.run(Phase.LATE)
        self._wait_replicated(observer, "the late transactions to be on every replica that is there")
        snapshot.take(self._runtime, self._folder, BEFORE_RETURN, self._replicas)

    def _come_back(self, filler: Filler, observer: Observer) -> None:
        absent = self._test.absent_broker
        self._progress(self._test.nemesis.returning.format(broker=absent))
        self._test.nemesis.come_back(self._runtime, absent)
        self._wait(
            lambda: (
                bool(states := self._states())
                and all(set(p.isr) == set(self._replicas[tp]) for tp, p in states.items())
            ),
            f"broker {absent} to rejoin every ISR",
        )
        with filler.running(Phase.AFTER):
            self._wait_grown(observer)
        self._wait_replicated(observer, "every replica to have everything")

    def _observe(self, observer: Observer, history: History) -> None:
        self._progress("observe")
        snapshot.take(self._runtime, self._folder, AFTER_REJOIN, self._replicas)
        absent = self._test.absent_broker
        held = [tp for tp, brokers in self._replicas.items() if absent in brokers]
        self._lead(held, [absent, *self._test.staying(self._runtime.brokers)])
        read_committed(
            bootstrap_servers(self._runtime),
            [topic for topic, _ in held],
            broker=absent,
            phase=Phase.AFTER,
            history=history,
            clock=self._clock,
            timeout_s=self._test.timers.settle_s,
        )
        self._wait_replicated(observer, "the last look at every replica")

    def _wait_removed(self, payloads: Sequence[Payload], observer: Observer) -> None:
        """Wait until what is critical is gone from every replica that is there, or the window's bound ends.

        A window that does not open ends the wait and not the run: what was seen is judged.
        """

        def is_gone(payload: Payload, kind: Critical) -> bool:
            offset = payload.critical_offset(kind, observer)
            return offset is not None and all(
                observer.is_removed(broker, payload.partition, offset) for broker in self._present(payload.partition)
            )

        def all_gone() -> bool:
            return all(is_gone(payload, kind) for payload in payloads for kind in payload.scenario.critical)

        try:
            self._wait(all_gone, "the critical tombstones and markers to be removed", self._test.timers.window_s)
        except WaitTimeoutError as error:
            self._progress(f"the window does not open: {error}")

    def _freeze(self) -> None:
        """Stop compaction, so that the evidence holds still from here on.

        Otherwise a returned broker may compact misjudged records away before anyone looks, and the late
        transactions' markers may vanish as the early ones did.
        """
        self._admin.alter_topics(self.topics, FREEZE)

        def is_frozen() -> bool:
            settings = [self._admin.topic_settings(address, self.topics) for address in self._live_addresses()]
            return all(FREEZE.items() <= held.items() for by_topic in settings for held in by_topic.values())

        self._wait(is_frozen, "every broker to stop compaction")

    def _lead(self, partitions: Sequence[TopicPartition], order: Sequence[int]) -> None:
        """Make the first broker of ``order`` lead; the replicas stay, their order changes."""
        self._admin.reassign(dict.fromkeys(partitions, order))

        topics = [topic for topic, _ in partitions]

        def leads() -> bool:
            # On every broker: a client that asks one which does not know yet would be sent to the old leader.
            views = [self._admin.partitions(topics, at=address) for address in self._live_addresses()]
            late = [tp for tp in partitions if any(tp not in v or v[tp].leader != order[0] for v in views)]
            if late:
                self._admin.elect_preferred(late)
            return not late

        self._wait(leads, f"broker {order[0]} to lead {', '.join(topic for topic, _ in partitions)}")

    def _wait_replicated(self, observer: Observer, what: str) -> None:
        """Wait until every replica that is there has one log end and its high watermark there.

        First until every ended transaction has its markers: a commit is answered before they are written.
        Then every replica is looked at afresh.
        """
        self._wait(lambda: not self._admin.ending_transactions(), f"{what}: the last transaction markers")
        since_s = self._clock.now_s()

        def replicated() -> bool:
            for tp, wanted in self._acknowledged_ends(observer).items():
                for broker in self._present(tp):
                    view = observer.view(broker, tp)
                    if view is None or not observer.looked_since(broker, since_s):
                        return False
                    if view.log_end < wanted or view.high_watermark < view.log_end:
                        return False
            return True

        self._wait(replicated, what)

    def _acknowledged_ends(self, observer: Observer) -> dict[TopicPartition, int]:
        """Per partition, the furthest log end that any replica showed."""
        return {tp: max(observer.seen(tp), default=-1) + 1 for tp in self._replicas}

    def _wait_grown(self, observer: Observer) -> None:
        """Wait until the filler has written some more to every partition, and every replica there has it."""
        wanted = {tp: end + FILLER_RECORDS for tp, end in self._acknowledged_ends(observer).items()}

        def grown() -> bool:
            views = [(observer.view(broker, tp), end) for tp, end in wanted.items() for broker in self._present(tp)]
            return all(view is not None and view.log_end >= end for view, end in views)

        self._wait(grown, "the filler's records on every replica")

    def _present(self, partition: TopicPartition) -> list[int]:
        return [broker for broker in self._replicas[partition] if self._runtime.is_up(broker)]

    def _states(self) -> dict[TopicPartition, PartitionState]:
        states = self._admin.partitions(self.topics)
        return states if set(states) == set(self._replicas) else {}

    def _registered(self) -> set[int]:
        try:
            return self._admin.brokers()
        except HarnessError:
            # Nobody listens yet.
            return set()

    def _filler(self, history: History) -> Filler:
        spec = FillerSpec(self.topics, self._test.seed, self._test.timers.filler_period_s)
        return Filler(spec, self._make_producer, history)

    def _live_addresses(self) -> list[Address]:
        return [self._runtime.address(broker) for broker in self._runtime.brokers if self._runtime.is_up(broker)]

    def _wait(self, condition: Callable[[], bool], what: str, timeout_s: float | None = None) -> None:
        """Wait, and let whatever failed in the background end the wait at once."""

        def checked() -> bool:
            for check in self._checks:
                check()
            try:
                return condition()
            except (ConnectionError, TimeoutError):
                # A broker that does not answer now may answer the next time; the wait is bounded.
                return False

        self._clock.wait_until(checked, timeout_s or self._test.timers.settle_s, what)
