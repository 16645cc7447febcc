"""The one way through a run: write, take brokers away, clean, bring them back, read every broker's history.

Every step ends on a condition that was seen to hold. The runner writes only to the run folder and decides
nothing about anomalies; that is the checkers' part.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from harness.clients.reader import read_committed
from harness.cluster import snapshot
from harness.cluster.cluster import Cluster
from harness.cluster.observe import Observer
from harness.errors import HarnessError, WaitTimeoutError
from harness.plan.scenario import Phase
from harness.run import window
from harness.run_folder.history import History
from harness.run_folder.store import AFTER_REJOIN, BEFORE_RETURN
from harness.systems import find_system
from harness.targets import KAFKA
from nemesis.fault import NemesisContext
from workloads.ballast import Ballast
from workloads.filler import Filler, FillerSpec
from workloads.payload import Payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.brokers.protocol.replica import TopicPartition
    from harness.clients import MakeProducer
    from harness.host.clock import Clock
    from harness.plan.placement import Placement
    from harness.plan.scenario import Scenario
    from harness.plan.timers import Timers
    from harness.run_folder.store import RunFolder
    from harness.runtimes.base import Runtime
    from harness.systems import System
    from nemesis.fault import Nemesis

FILLER_RECORDS = 4
"""So many filler records reach every replica after the rejoin."""


@dataclass(frozen=True)
class Test:
    """Everything that decides what a run does; with the run folder, all that the runner needs.

    ``topic_settings`` and ``broker_settings`` are the timers' and the nemesis's with the user's on top.
    """

    __test__ = False  # pytest collects classes of this name

    scenarios: tuple[Scenario, ...]
    nemesis: Nemesis
    timers: Timers
    topic_settings: Mapping[str, str]
    broker_settings: Mapping[str, str]
    placement: Placement
    seed: int
    client: str = "librdkafka"
    system_name: str = KAFKA

    @property
    def system(self) -> System:
        """What kind of brokers are under test."""
        return find_system(self.system_name)

    @property
    def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Every partition of every scenario's topic with the brokers that hold it."""
        return {
            (s.name, p): self.placement.replicas(p, control=s.anomaly is None)
            for s in self.scenarios
            for p in range(self.placement.partitions)
        }


@dataclass(frozen=True)
class Parts:
    """What a run consists of while it goes on."""

    cluster: Cluster
    history: History
    filler: Filler
    payloads: Sequence[Payload]
    context: NemesisContext


class Run:
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
        on_window: Callable[[], None] = lambda: None,
    ) -> None:
        """Remember the parts; nothing is started. ``on_window`` is called when nothing is left but to wait."""
        self._make_producer = make_producer
        self._test = test
        self._runtime = runtime
        self._folder = folder
        self._clock = clock
        self._progress = progress
        self._on_window = on_window
        self._is_guarded = False
        self.is_observing = False
        """Whether there is anything to judge yet."""
        self.cluster: Cluster | None = None
        """The cluster, once there is one."""

    def run(self) -> None:
        """Go through all phases. Raises `HarnessError` where one cannot be completed."""
        with ExitStack() as owned:
            parts = self._assemble(owned, resumed=False)
            self._boot(parts.cluster)
            self._create_topics(parts)
            self._start_observing(parts)
            self._write(parts)
            self._leave(parts)
            self._progress("end transactions")
            with parts.filler.running(Phase.OUTAGE):
                for payload in parts.payloads:
                    payload.run(Phase.OUTAGE)
                self._clean(parts)
            self._come_back(parts)
            self._remove_together(parts)
            self._observe(parts)

    def resume(self) -> None:
        """Go on with a run that was cut off while its window was open. Raises as `run` does."""
        with ExitStack() as owned:
            parts = self._assemble(owned, resumed=True)
            self._boot_again(parts)
            self._init_producers(parts)
            self._start_observing(parts)
            with parts.filler.running(Phase.OUTAGE):
                self._clean(parts)
            self._come_back(parts)
            self._remove_together(parts)
            self._observe(parts)

    def _assemble(self, owned: ExitStack, *, resumed: bool) -> Parts:
        test, timers = self._test, self._test.timers
        admin = test.system.admin(self._runtime)
        control = test.system.control(self._runtime, admin)
        history = owned.enter_context(closing(History(self._folder.history_path, self._clock, resumed=resumed)))
        observer = owned.enter_context(
            closing(
                Observer(
                    self._runtime,
                    test.replicas,
                    self._folder.observations_path,
                    self._clock,
                    period_s=timers.observe_period_s,
                    reader=control.reader,
                    resumed=resumed,
                )
            )
        )
        cluster = self.cluster = Cluster(
            runtime=self._runtime,
            admin=admin,
            control=control,
            observer=observer,
            placement=test.placement,
            replicas=test.replicas,
            clock=self._clock,
            settle_s=timers.settle_s,
            away=frozenset(test.placement.absent if test.nemesis.joins else ()),
            checks=[self._runtime.raise_if_died],
        )
        spec = FillerSpec(list(cluster.replicas), test.seed, timers.filler_period_s)
        ballast = Ballast(cluster.exposed, timers, test.seed, self._make_producer, history)
        return Parts(
            cluster=cluster,
            history=history,
            filler=Filler(spec, self._make_producer, history, self._clock),
            payloads=[Payload(s, test.placement.partitions, self._make_producer, history) for s in test.scenarios],
            context=NemesisContext(cluster, timers.copy_bytes_per_s, ballast.write),
        )

    def _boot(self, cluster: Cluster) -> None:
        self._progress("boot")
        self._runtime.start_cluster()
        cluster.wait_registered()

    def _boot_again(self, parts: Parts) -> None:
        """Start the brokers on the data that they left; the absent ones as they were."""
        nemesis, cluster = self._test.nemesis, parts.cluster
        if nemesis.reinject is None:
            raise HarnessError(f"a run with the nemesis {nemesis.name} cannot go on: the fault ended with the harness")
        self._progress("boot again")
        self._runtime.start_again(cluster.placement.staying)
        cluster.wait_registered(cluster.placement.staying)
        nemesis.reinject(parts.context)
        if nemesis.takes_away:
            cluster.away = frozenset(cluster.placement.absent)

    def _create_topics(self, parts: Parts) -> None:
        self._progress("create topics")
        cluster = parts.cluster
        cluster.admin.create_topics({tp: cluster.present(tp) for tp in cluster.replicas}, self._test.topic_settings)
        cluster.wait(lambda: bool(cluster.states()), "the topics to exist")
        cluster.lead_as_placed()
        cluster.coordinate_on_staying()
        self._init_producers(parts)

    def _init_producers(self, parts: Parts) -> None:
        parts.filler.init()
        for payload in parts.payloads:
            payload.init()

    def _start_observing(self, parts: Parts) -> None:
        parts.cluster.observer.start()
        self.is_observing = True
        parts.cluster.checks += [parts.cluster.observer.raise_if_failed, parts.filler.raise_if_failed]

    def _write(self, parts: Parts) -> None:
        self._progress("write")
        # What a joining replica has yet to copy must not be cleaned under it, but for the payload.
        with nullcontext() if self._test.nemesis.joins else parts.filler.running(Phase.BEFORE):
            for payload in parts.payloads:
                payload.run(Phase.BEFORE)
        parts.cluster.wait_replicated("everything written to be on every replica")

    def _leave(self, parts: Parts) -> None:
        nemesis, cluster = self._test.nemesis, parts.cluster
        self._progress(nemesis.leaving.format(broker=_listed(self._test.placement.absent)))
        if nemesis.lives_on:
            cluster.rest_cleaners_of_absent()
        with self._noted(parts.history, "leave", Phase.OUTAGE):
            nemesis.inject(parts.context)
            if nemesis.takes_away:
                cluster.wait_absent_left()
                cluster.away = frozenset(self._test.placement.absent)

    @contextmanager
    def _noted(self, history: History, what: str, phase: Phase) -> Iterator[None]:
        """Have what the nemesis does in the history, too; where it does not end, whether it did is not known."""
        brokers = list(self._test.placement.absent)
        event = history.invoke(f=what, process="nemesis", part="nemesis", phase=phase, brokers=brokers)
        try:
            yield
        except BaseException:
            history.complete("info", event)
            raise
        history.complete("ok", event)

    def _clean(self, parts: Parts) -> None:
        cluster = parts.cluster
        self._on_window()
        self._progress("clean")
        is_open = self._wait_removed(parts)
        cluster.freeze()
        self._is_guarded = not is_open and window.is_kept(cluster, parts.payloads)
        self._progress("late transactions")
        for payload in parts.payloads:
            payload.run(Phase.LATE)

    def _come_back(self, parts: Parts) -> None:
        nemesis, cluster = self._test.nemesis, parts.cluster
        cluster.wait_replicated("the late transactions to be on every replica that is there")
        snapshot.take(cluster, self._folder, BEFORE_RETURN)
        self._progress(nemesis.returning.format(broker=_listed(self._test.placement.absent)))
        with self._noted(parts.history, "come back", Phase.AFTER):
            nemesis.heal(parts.context)
            cluster.wait_absent_back()
            cluster.away = frozenset()
        if nemesis.lives_on:
            cluster.wake_cleaners_of_absent()
        with parts.filler.running(Phase.AFTER):
            cluster.wait_grown(FILLER_RECORDS)
        cluster.wait_replicated("every replica to have everything")

    def _remove_together(self, parts: Parts) -> None:
        """Where everything was kept for the replica that was away, see whether it goes now that it is back.

        Nothing was missed then, and so there is nothing that compaction could hide. Where some of it was removed,
        evidence holds still.
        """
        if not self._is_guarded:
            return
        self._progress("clean again")
        parts.cluster.thaw(self._test.topic_settings)
        with parts.filler.running(Phase.AFTER):
            self._wait_removed(parts)
        parts.cluster.freeze()
        parts.cluster.wait_replicated("every replica to have everything")

    def _observe(self, parts: Parts) -> None:
        self._progress("observe")
        cluster, test = parts.cluster, self._test
        snapshot.take(cluster, self._folder, AFTER_REJOIN)
        for absent in test.placement.absent:
            cluster.lead({tp: _first(absent, cluster.replicas[tp]) for tp in cluster.exposed})
            read_committed(
                partial(test.system.consumer, self._runtime, absent),
                cluster.exposed,
                broker=absent,
                phase=Phase.AFTER,
                history=parts.history,
                clock=self._clock,
                timeout_s=test.timers.settle_s,
            )
        cluster.wait_replicated("the last look at every replica")

    def _wait_removed(self, parts: Parts) -> bool:
        """Wait for the window to open; one that does not ends the wait and not the run: what was seen is judged."""
        window_s = max(self._test.timers.window_s, self._test.system.least_window_s)
        try:
            window.wait_removed(parts.cluster, parts.payloads, window_s)
        except WaitTimeoutError as error:
            self._progress(f"the window does not open: {error}")
            return False
        return True


def _first(broker: int, brokers: Sequence[int]) -> tuple[int, ...]:
    return (broker, *(other for other in brokers if other != broker))


def _listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
