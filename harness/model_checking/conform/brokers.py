"""A schedule on real brokers: one cluster, a topic for each schedule, or a partition of ``__consumer_offsets``.

Brokers must do only what a schedule contains. Segments roll with every write (``segment.ms`` is a
millisecond, and the clock advances between writes). Cleaners rest except for the pass of a step. Producers expire when
a step says so. A recovering broker reads its log from the beginning.
"""

from __future__ import annotations

import math
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from harness.cluster.boot import booted_cluster
from harness.errors import HarnessError
from harness.kafka_api.connection import Connection
from harness.model_checking.conform.offsets import fetch_offsets
from harness.model_checking.conform.replicas import read_replicas
from harness.model_checking.conform.schedules import STAYING
from harness.model_checking.conform.simulated import ALL_KEYS
from harness.model_checking.conform.topic import Topic
from harness.models.world.world import ABSENT, BROKERS, KILL, STOP
from harness.runtimes.base import ClusterSpec, live_brokers
from harness.schedules.groups import group_in
from harness.schedules.operations.environment import CleanerPass, ProducersExpire, TimePasses
from harness.schedules.operations.faults import Heal, Inject
from harness.schedules.scenario import CONSUMER_OFFSETS
from harness.schedules.timers import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.cluster.boot import Equipment
    from harness.cluster.cluster import Cluster
    from harness.host.workspace import Workspace
    from harness.kafka_api.metadata import PartitionState
    from harness.model_checking.conform.picture import FetchedOffset, Picture
    from harness.model_checking.conform.schedules import Schedule
    from harness.schedules.operations.operation import Operation

SETTLE_S: Final = 60.0
BETWEEN_WRITES_MS: Final = 5
NEVER_PASSES: Final = "1.0"
ALWAYS_PASSES: Final = "0.0"
RATIO, RETENTION = "log.cleaner.min.cleanable.ratio", "log.cleaner.delete.retention.ms"
EXPIRATION = "producer.id.expiration.ms"
AT_ONCE_MS: Final = 1
KEPT_MS: Final = 30_000
"""Time for the passes that must keep batches with a delete horizon, and the wait until time has passed."""
A_DAY: Final = str(DAY_MS)

BROKER_SETTINGS: Final = {
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.backoff.ms": "50",
    "log.cleaner.backoff.ms": "15",
    "log.cleaner.dedupe.buffer.size": "1100000",
    RATIO: NEVER_PASSES,
    EXPIRATION: A_DAY,
    "producer.id.expiration.check.interval.ms": "100",
    # A timer writes recovery points, from which recovery begins: here it must begin at the start.
    "log.initial.task.delay.ms": A_DAY,
    "log.flush.offset.checkpoint.interval.ms": A_DAY,
    # Coordinators delete expired offsets and empty groups by a timer.
    "offsets.retention.check.interval.ms": A_DAY,
}
TOPIC_SETTINGS: Final = {
    # No record is old enough to be deleted; DeleteRecords requires a policy with delete in it.
    "cleanup.policy": "compact,delete",
    "retention.ms": "-1",
    "segment.ms": "1",
}
OFFSETS_SETTINGS: Final = {**TOPIC_SETTINGS, "cleanup.policy": "compact"}


@dataclass
class Brokers:
    """A running cluster. ``will_age``: whether a later step lets time pass, until which a pass keeps aging batches.

    ``groups``: how many schedules are of groups, so many partitions ``__consumer_offsets`` gets.
    """

    cluster: Cluster
    scratch: Path
    groups: int = 0
    will_age: bool = False
    topics: Mapping[str, Topic] = field(default_factory=dict)
    kept_until_ms: set[int] = field(default_factory=set)
    """Delete horizons that must not pass before time does, as a step."""
    _how: str = KILL
    _groups_begun: int = 0

    def create(self, schedules: Sequence[Schedule]) -> None:
        """Make a topic for each schedule, or give it a group; producers are made at their first use."""
        topics = [self._of_group(one) if one.of_group else Topic(self, one, (one.name, 0)) for one in schedules]
        orders = {topic.partition: one.replicas for topic, one in zip(topics, schedules, strict=True)}
        data = {tp: order for tp, order in orders.items() if tp[0] != CONSUMER_OFFSETS}
        if data:
            self.cluster.admin.create_topics(data, TOPIC_SETTINGS)
        self.topics = {one.name: one for one in topics}
        # Those of schedules that are over: time need not pass them.
        self.kept_until_ms.clear()
        self.cluster.wait(lambda: set(self.cluster.control.states(self._names())) >= set(orders), "the topics to exist")
        self.cluster.wait(lambda: self.cluster.control.leads(orders), "every topic's first replica to lead")

    def _of_group(self, schedule: Schedule) -> Topic:
        """Return the partition of a schedule that is about a group, the first of which makes the topics."""
        if not self._groups_begun:
            numbers = range(self.groups)
            self.cluster.admin.create_topics(
                {(CONSUMER_OFFSETS, n): schedule.replicas for n in numbers}, OFFSETS_SETTINGS
            )
            self.cluster.admin.create_topics({(key, 0): STAYING for key in ALL_KEYS}, {})
        number = self._groups_begun
        self._groups_begun += 1
        return Topic(self, schedule, (CONSUMER_OFFSETS, number), group_in(schedule.name, number, self.groups))

    def _names(self) -> list[str]:
        return sorted({one.partition[0] for one in self.topics.values()})

    def pictures(self, names: Mapping[int, Collection[str]]) -> dict[tuple[str, int], Picture]:
        """Return each replica's picture, by schedule and broker. ``names``: of schedules, by broker.

        A replica that cannot be read now is left out, and one whose group its leader does not coordinate yet. Raises
        OSError.
        """
        named = {one.partition: one.named for one in self.topics.values()}
        pictures = {}
        for broker, of_broker in names.items():
            partitions = [self.topics[name].partition for name in of_broker]
            read = read_replicas(self.cluster.runtime, broker, partitions, named, self.scratch)
            of_groups = self._fetch_offsets(broker, of_broker)
            for name in of_broker:
                topic = self.topics[name]
                picture = read.get(topic.partition)
                if picture is None or (topic.group and topic.leader_id == broker and topic.group not in of_groups):
                    continue
                pictures[name, broker] = replace(picture, offsets=of_groups.get(topic.group or "", ()))
        return pictures

    def _fetch_offsets(self, broker: int, names: Iterable[str]) -> dict[str, tuple[FetchedOffset, ...]]:
        """Return what a broker answers about the groups of these schedules that it coordinates."""
        topics = [self.topics[name] for name in names]
        groups = [one.group for one in topics if one.group is not None and one.leader_id == broker]
        if not groups:
            return {}
        with closing(Connection(self.cluster.runtime.address(broker))) as connection:
            return fetch_offsets(connection, groups)

    def move_on(self) -> None:
        """Wait until the clock is later than any batch."""
        since_ms = self.cluster.clock.time_ms()
        self.cluster.wait(lambda: self.cluster.clock.time_ms() > since_ms + BETWEEN_WRITES_MS, "the clock to move on")

    @contextmanager
    def during(self, step: Operation) -> Iterator[None]:
        """Apply a step to the whole cluster; the block's end undoes it."""
        undo = self._apply(step)
        yield
        if undo:
            undo()

    def _apply(self, step: Operation) -> Callable[[], None] | None:
        match step:
            case Inject(fault=fault):
                self._leave(fault)
            case Heal():
                self._return()
            case CleanerPass(brokers=brokers, keeps=keeps):
                return self._clean(brokers, is_kept=keeps)
            case TimePasses():
                until_ms = max(self.kept_until_ms, default=0)
                self.cluster.wait(
                    lambda: self.cluster.clock.time_ms() > until_ms, "every delete horizon", KEPT_MS / 1000 + SETTLE_S
                )
                self.kept_until_ms.clear()
            case ProducersExpire():
                live = live_brokers(self.cluster.runtime)
                self._set(live, {EXPIRATION: "1"})
                return lambda: self._set(live, {EXPIRATION: A_DAY})
            case _:
                raise ValueError(f"'{step}' is not an operation of a cluster")
        return None

    def _leave(self, how: str) -> None:
        self._how = how
        runtime = self.cluster.runtime
        {KILL: runtime.kill, STOP: runtime.stop}.get(how, runtime.pause)(ABSENT)
        self.cluster.wait(lambda: not any(ABSENT in one.isr for one in self._states()), f"{ABSENT} to leave every ISR")

    def _return(self) -> None:
        runtime = self.cluster.runtime
        (runtime.start if self._how in {KILL, STOP} else runtime.resume)(ABSENT)
        self.cluster.wait_registered([ABSENT])
        self.cluster.wait(
            lambda: all(set(one.isr) == set(one.replicas) for one in self._states()), "every replica to be in its ISR"
        )

    def _clean(self, brokers: Sequence[int], *, is_kept: bool) -> Callable[[], None]:
        live = [broker for broker in brokers if self.cluster.runtime.is_up(broker)]
        retention_ms = (KEPT_MS if self.will_age else DAY_MS) if is_kept else AT_ONCE_MS
        self._set(live, {RATIO: ALWAYS_PASSES, RETENTION: str(retention_ms)})

        def rest() -> None:
            self._set(live, {RATIO: NEVER_PASSES, RETENTION: A_DAY})
            if min(self.kept_until_ms, default=math.inf) <= self.cluster.clock.time_ms():
                raise HarnessError("brokers took too long: a delete horizon has come that the schedule wants kept")

        return rest

    def _set(self, brokers: Sequence[int], settings: dict[str, str]) -> None:
        for broker in brokers:
            self.cluster.admin.alter_broker(broker, self.cluster.runtime.address(broker), settings)

        def is_known() -> bool:
            settings_by_broker = [
                self.cluster.admin.broker_settings(broker, self.cluster.runtime.address(broker)) for broker in brokers
            ]
            return all(settings.items() <= one.items() for one in settings_by_broker)

        self.cluster.wait(is_known, "brokers to know their settings")

    def _states(self) -> Collection[PartitionState]:
        return self.cluster.control.states(self._names()).values()


@contextmanager
def running(equipment: Equipment, workspace: Workspace, logs: Path, groups: int) -> Iterator[Brokers]:
    """Boot three brokers, with the transaction coordinator on those that stay, and end them with the block.

    ``groups``: see `Brokers`.
    """
    # Coordinators count the partitions once, as they start (``partitionFor``).
    settings = {**BROKER_SETTINGS, "offsets.topic.num.partitions": str(max(groups, 1))}
    spec = ClusterSpec(workspace.run_id, workspace.path, logs, settings, BROKERS)
    with booted_cluster(equipment, spec, settle_s=SETTLE_S) as cluster:
        cluster.coordinate_on(STAYING)
        yield Brokers(cluster, workspace.path / "copied", groups)
