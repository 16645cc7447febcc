"""The one way through a run: write, take brokers away, clean, bring them back, read every broker's history.

Every step ends on a condition that was seen to hold. The runner writes only to the run folder and decides
nothing about anomalies; that is the checkers' part.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness import snapshot
from harness.cluster import Cluster
from harness.errors import WaitTimeoutError
from harness.history import History
from harness.observe import Observer
from harness.scenario import Phase
from harness.store import AFTER_REJOIN, BEFORE_RETURN
from nemesis import Grounds
from workloads.ballast import Ballast
from workloads.filler import Filler, FillerSpec
from workloads.payload import Payload
from workloads.reader import read_committed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.clients import MakeProducer
    from harness.clock import Clock
    from harness.placement import Placement
    from harness.replica import TopicPartition
    from harness.runtimes.base import Runtime
    from harness.scenario import Critical, Scenario
    from harness.store import RunFolder
    from harness.timers import Timers
    from nemesis import Nemesis

FILLER_RECORDS = 4
"""So many filler records reach every replica after the rejoin."""


@dataclass(frozen=True)
class Test:
    """Everything that decides what a run does; with the run folder, all that the runner needs.

    ``topic_settings`` are the timers' with the user's on top.
    """

    __test__ = False  # pytest collects classes of this name

    scenarios: tuple[Scenario, ...]
    nemesis: Nemesis
    timers: Timers
    topic_settings: Mapping[str, str]
    placement: Placement
    seed: int
    client: str = "librdkafka"

    @property
    def replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Every partition of every scenario's topic with the brokers that hold it."""
        return {
            (s.name, p): self.placement.replicas(p, control=s.anomaly is None)
            for s in self.scenarios
            for p in range(self.placement.partitions)
        }


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
        self.is_observing = False
        """Whether there is anything to judge yet."""
        self.cluster: Cluster | None = None
        """The cluster, once there is one."""

    def run(self) -> None:
        """Go through all phases. Raises `HarnessError` where one cannot be completed."""
        with ExitStack() as owned:
            history = owned.enter_context(closing(History(self._folder.history_path, self._clock)))
            cluster = self.cluster = self._cluster(owned)
            self._boot(cluster)
            filler = self._filler(cluster, history)
            payloads = [
                Payload(s, self._test.placement.partitions, self._make_producer, history) for s in self._test.scenarios
            ]
            ballast = Ballast(cluster.exposed, self._test.timers, self._test.seed, self._make_producer, history)
            grounds = Grounds(cluster, self._test.timers.copy_bytes_per_s, ballast.write)
            self._create_topics(cluster, filler, payloads)
            cluster.observer.start()
            self.is_observing = True
            cluster.checks += [cluster.observer.raise_if_failed, filler.raise_if_failed]
            self._write(cluster, filler, payloads)
            self._leave(grounds)
            self._end_and_clean(cluster, filler, payloads)
            self._come_back(grounds, filler)
            self._observe(cluster, history)

    def _cluster(self, owned: ExitStack) -> Cluster:
        timers, replicas = self._test.timers, self._test.replicas
        path = self._folder.observations_path
        observer = Observer(self._runtime, list(replicas), path, self._clock, timers.observe_period_s)
        return Cluster(
            runtime=self._runtime,
            observer=owned.enter_context(closing(observer)),
            placement=self._test.placement,
            replicas=replicas,
            clock=self._clock,
            settle_s=timers.settle_s,
            away=frozenset(self._test.placement.absent if self._test.nemesis.joins else ()),
            checks=[self._runtime.raise_if_died],
        )

    def _boot(self, cluster: Cluster) -> None:
        self._progress("boot")
        self._runtime.start_cluster()
        cluster.wait_registered()

    def _create_topics(self, cluster: Cluster, filler: Filler, payloads: Sequence[Payload]) -> None:
        self._progress("create topics")
        cluster.admin.create_topics({tp: cluster.present(tp) for tp in cluster.replicas}, self._test.topic_settings)
        cluster.wait(lambda: bool(cluster.states()), "the topics to exist")
        cluster.coordinate_on_staying()
        filler.init()
        for payload in payloads:
            payload.init()

    def _write(self, cluster: Cluster, filler: Filler, payloads: Sequence[Payload]) -> None:
        self._progress("write")
        # What a joining replica has yet to copy must not be cleaned under it, but for the payload.
        with nullcontext() if self._test.nemesis.joins else filler.running(Phase.BEFORE):
            for payload in payloads:
                payload.run(Phase.BEFORE)
        cluster.wait_replicated("everything written to be on every replica")

    def _leave(self, grounds: Grounds) -> None:
        nemesis, cluster = self._test.nemesis, grounds.cluster
        self._progress(nemesis.leaving.format(broker=_listed(self._test.placement.absent)))
        nemesis.leave(grounds)
        if nemesis.takes_away:
            cluster.wait_absent_left()
            cluster.away = frozenset(self._test.placement.absent)

    def _end_and_clean(self, cluster: Cluster, filler: Filler, payloads: Sequence[Payload]) -> None:
        self._progress("end transactions")
        with filler.running(Phase.OUTAGE):
            for payload in payloads:
                payload.run(Phase.OUTAGE)
            self._progress("clean")
            self._wait_removed(cluster, payloads)
            cluster.freeze()
            self._progress("late transactions")
            for payload in payloads:
                payload.run(Phase.LATE)
        cluster.wait_replicated("the late transactions to be on every replica that is there")
        snapshot.take(self._runtime, self._folder, BEFORE_RETURN, cluster.replicas)

    def _come_back(self, grounds: Grounds, filler: Filler) -> None:
        nemesis, cluster = self._test.nemesis, grounds.cluster
        self._progress(nemesis.returning.format(broker=_listed(self._test.placement.absent)))
        nemesis.come_back(grounds)
        cluster.wait_absent_back()
        cluster.away = frozenset()
        with filler.running(Phase.AFTER):
            cluster.wait_grown(FILLER_RECORDS)
        cluster.wait_replicated("every replica to have everything")

    def _observe(self, cluster: Cluster, history: History) -> None:
        self._progress("observe")
        snapshot.take(self._runtime, self._folder, AFTER_REJOIN, cluster.replicas)
        for absent in self._test.placement.absent:
            cluster.lead({tp: _first(absent, cluster.replicas[tp]) for tp in cluster.exposed})
            read_committed(
                self._runtime.address(absent),
                cluster.exposed,
                broker=absent,
                phase=Phase.AFTER,
                history=history,
                clock=self._clock,
                timeout_s=self._test.timers.settle_s,
            )
        cluster.wait_replicated("the last look at every replica")

    def _wait_removed(self, cluster: Cluster, payloads: Sequence[Payload]) -> None:
        """Wait until what is critical is gone from every replica that is there, or the window's bound ends.

        A window that does not open ends the wait and not the run: what was seen is judged.
        """

        def is_gone(payload: Payload, partition: TopicPartition, kind: Critical) -> bool:
            offset = payload.critical_offset(kind, partition, cluster.observer)
            return offset is not None and all(
                cluster.observer.is_removed(broker, partition, offset) for broker in cluster.present(partition)
            )

        def all_gone() -> bool:
            return all(
                is_gone(payload, partition, kind)
                for payload in payloads
                for partition in payload.partitions
                for kind in payload.scenario.critical
            )

        try:
            cluster.wait(all_gone, "the critical tombstones and markers to be removed", self._test.timers.window_s)
        except WaitTimeoutError as error:
            self._progress(f"the window does not open: {error}")

    def _filler(self, cluster: Cluster, history: History) -> Filler:
        spec = FillerSpec(list(cluster.replicas), self._test.seed, self._test.timers.filler_period_s)
        return Filler(spec, self._make_producer, history)


def _first(broker: int, brokers: Sequence[int]) -> tuple[int, ...]:
    return (broker, *(other for other in brokers if other != broker))


def _listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
