"""Schedules on one cluster of real brokers: a topic for each schedule, or a partition of ``__consumer_offsets``.

Brokers must do only the operations of a schedule. Segments roll with every write (``segment.ms`` is a millisecond, and
the clock advances between writes). Cleaners rest except for the pass of a step. Producers expire only by a step. A
recovering broker reads its log from the beginning. Pictures of replicas are made of the brokers' answers and files.
"""

import math
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.broker_files.segments.batches import CorruptLogError, iter_batches
from harness.broker_files.side_files.checkpoints import read_checkpoint, read_leader_epochs
from harness.broker_files.side_files.producer_state import iter_txnindex, read_producer_snapshot
from harness.cluster.boot import Equipment, booted_cluster
from harness.cluster.cluster import Cluster
from harness.errors import HarnessError
from harness.host.workspace import Workspace
from harness.kafka_api import UNSTABLE_OFFSET
from harness.kafka_api import client_requests as groups_api
from harness.kafka_api.client_requests import fetch_offsets_of_groups
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import CONSUMER_REPLICA_ID, WireReader
from harness.kafka_api.transactions import describe_producers
from harness.model_checking.conform.partition import BrokerPartition
from harness.model_checking.conform.picture import (
    ALL_KEYS,
    NO_OFFSET,
    UNSTABLE,
    FetchedOffset,
    Named,
    ReplicaPicture,
    aborts_of,
    is_of_groups,
    log_fields,
    states_of,
)
from harness.model_checking.conform.schedules import STAYING
from harness.models.world.world import ABSENT, BROKERS, KILL, STOP, Rules
from harness.runtimes.base import ClusterSpec, live_brokers
from harness.schedules.operations import CleanerPass, Heal, Inject, Operation, ProducersExpire, TimePasses
from harness.schedules.scenario import CONSUMER_OFFSETS, group_in
from harness.schedules.schedule import Schedule
from harness.schedules.timers import DAY_MS

SETTLE_S: Final = 60.0
BETWEEN_WRITES_MS: Final = 5
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
    RATIO: "1.0",  # never passes
    RETENTION: A_DAY,
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

    ``groups``: the number of schedules of groups, and of partitions of ``__consumer_offsets``. ``kept_until_ms``:
    delete horizons that must not pass before time does, as a step.
    """

    cluster: Cluster
    scratch: Path
    rules: Rules
    groups: int = 0
    will_age: bool = False
    partitions: Mapping[str, BrokerPartition] = field(default_factory=dict)
    kept_until_ms: set[int] = field(default_factory=set)
    _fault: str = KILL
    _groups_begun: int = 0

    def create(self, schedules: Sequence[Schedule]) -> None:
        """Make a topic for each schedule, or give it a group; producers are made at their first use."""
        cluster = self.cluster
        partitions = [
            self._of_group(schedule) if is_of_groups(schedule) else BrokerPartition(self, schedule, (schedule.case, 0))
            for schedule in schedules
        ]
        orders = {it.partition: schedule.plan.brokers for it, schedule in zip(partitions, schedules, strict=True)}
        data = {tp: order for tp, order in orders.items() if tp[0] != CONSUMER_OFFSETS}
        if data:
            cluster.admin.create_topics(data, TOPIC_SETTINGS)
        others = {} if data else {(CONSUMER_OFFSETS, n): schedules[0].plan.brokers for n in range(self.groups)}
        cluster.replicas, cluster.absent = {**others, **orders}, (ABSENT,)
        self.partitions = {it.name: it for it in partitions}
        # The horizons of earlier schedules: time need not pass them.
        self.kept_until_ms.clear()
        cluster.wait(lambda: bool(cluster.states()), "the topics to exist")
        cluster.elect(orders)

    def _of_group(self, schedule: Schedule) -> BrokerPartition:
        """Return the partition of a schedule that is about a group, the first of which makes the topics."""
        number = self._groups_begun
        if number == 0:
            replicas = {(CONSUMER_OFFSETS, n): schedule.plan.brokers for n in range(self.groups)}
            self.cluster.admin.create_topics(replicas, OFFSETS_SETTINGS)
            self.cluster.admin.create_topics({(key, 0): STAYING for key in ALL_KEYS}, {})
        self._groups_begun += 1
        group = group_in(schedule.case, number, self.groups)
        return BrokerPartition(self, schedule, (CONSUMER_OFFSETS, number), group)

    def pictures(self, names: Mapping[int, Collection[str]]) -> dict[tuple[str, int], ReplicaPicture]:
        """Return each replica's picture, by schedule and broker. ``names``: the schedules of each broker.

        Left out are replicas that the broker does not report, replicas whose folder is changing, and those whose group
        its leader does not coordinate yet. Raises OSError.
        """
        pictures: dict[tuple[str, int], ReplicaPicture] = {}
        for broker, names_of_broker in names.items():
            pictures |= self._pictures_of(broker, [self.partitions[name] for name in names_of_broker])
        return pictures

    def _pictures_of(self, broker: int, partitions: Sequence[BrokerPartition]) -> dict[tuple[str, int], ReplicaPicture]:
        runtime, folder, pictures = self.cluster.runtime, self.scratch / str(broker), {}
        groups = [it.group for it in partitions if it.group is not None and it.leader_id == broker]
        with closing(Connection(runtime.address(broker))) as connection:
            read = WireReader(connection).read([it.partition for it in partitions], replica_id=CONSUMER_REPLICA_ID)
            states = {tp: answer for tp, answer in read.items() if not isinstance(answer, str)}
            producers = connection.ask(describe_producers(states))
            offsets = fetch_offsets(connection, groups) if groups else {}
        runtime.copy_checkpoints(broker, folder)
        try:
            path = folder / CLEANED
            cleaned = read_checkpoint(path.read_bytes(), source=path.name) if path.exists() else {}
            for it in partitions:
                tp, named, copied = it.partition, it.named, folder / f"{it.partition[0]}-{it.partition[1]}"
                active = producers.get(tp, "")
                if isinstance(active, str) or (it.leader_id == broker and it.group and it.group not in offsets):
                    continue
                try:
                    runtime.copy_partition(broker, *tp, copied)
                    fields = read_folder(copied, named, cleaned.get(tp))
                except (HarnessError, CorruptLogError):
                    continue
                pictures[it.name, broker] = ReplicaPicture(
                    log_start=states[tp].log_start,
                    high_watermark=states[tp].high_watermark,
                    last_stable_offset=states[tp].last_stable_offset,
                    listed_aborts=aborts_of(states[tp].aborted, named),
                    producers=states_of(active, named),
                    offsets=offsets.get(it.group or "", ()),
                    **fields,
                )
        finally:
            shutil.rmtree(folder)
        return pictures

    def wait_for_next_timestamp(self) -> None:
        """Wait until the clock is later than any batch."""
        since_ms = self.cluster.clock.time_ms()
        self.cluster.wait(lambda: self.cluster.clock.time_ms() > since_ms + BETWEEN_WRITES_MS, "the clock to advance")

    @contextmanager
    def during(self, step: Operation) -> Iterator[None]:
        """Apply a step to the whole cluster; restore the settings of the step at the end of the block."""
        cluster, runtime = self.cluster, self.cluster.runtime
        brokers, settings = list[int](), dict[str, str]()
        match step:
            case Inject(fault=fault):
                self._fault = fault
                {KILL: runtime.kill, STOP: runtime.stop}.get(fault, runtime.pause)(ABSENT)
                cluster.wait_absent_left()
            case Heal():
                (runtime.start if self._fault in {KILL, STOP} else runtime.resume)(ABSENT)
                cluster.wait_registered([ABSENT])
                cluster.wait_absent_back()
            case CleanerPass(keeps=keeps):
                brokers = [broker for broker in step.brokers if runtime.is_up(broker)]
                retention_ms = (KEPT_MS if self.will_age else DAY_MS) if keeps else AT_ONCE_MS
                settings = {RATIO: ALWAYS_PASSES, RETENTION: str(retention_ms)}
            case TimePasses():
                until_ms = max(self.kept_until_ms, default=0)
                cluster.wait(
                    lambda: cluster.clock.time_ms() > until_ms, "every delete horizon", KEPT_MS / 1000 + SETTLE_S
                )
                self.kept_until_ms.clear()
            case ProducersExpire():
                brokers, settings = list(live_brokers(runtime)), {EXPIRATION: "1"}
            case _:
                raise ValueError(f"'{step}' is not an operation of a cluster")
        self._set(brokers, settings)
        yield
        self._set(brokers, {name: BROKER_SETTINGS[name] for name in settings})
        if isinstance(step, CleanerPass) and min(self.kept_until_ms, default=math.inf) <= cluster.clock.time_ms():
            raise HarnessError("brokers took too long: a delete horizon passed that the schedule must keep")

    def _set(self, brokers: Sequence[int], settings: dict[str, str]) -> None:
        admin, address = self.cluster.admin, self.cluster.runtime.address
        for broker in brokers:
            admin.alter_broker(broker, address(broker), settings)
        if brokers:
            self.cluster.wait(
                lambda: all(settings.items() <= admin.broker_settings(it, address(it)).items() for it in brokers),
                "brokers to have their settings",
            )


@contextmanager
def running(equipment: Equipment, workspace: Workspace, logs: Path, rules: Rules, groups: int) -> Iterator[Brokers]:
    """Boot three brokers, with the transaction coordinator on those that stay up. ``groups``: see `Brokers`."""
    # Coordinators count the partitions once, as they start (``partitionFor``).
    settings = {**BROKER_SETTINGS, "offsets.topic.num.partitions": str(max(groups, 1))}
    spec = ClusterSpec(workspace.run_id, workspace.path, logs, settings, BROKERS)
    with booted_cluster(equipment, spec, settle_s=SETTLE_S) as cluster:
        cluster.coordinate_on(STAYING)
        yield Brokers(cluster, workspace.path / "copied", rules, groups)


CLEANED, EPOCHS = "cleaner-offset-checkpoint", "leader-epoch-checkpoint"


def read_folder(folder: Path, named: Named, cleaned_to: int | None) -> dict[str, Any]:
    """Return the fields of a `ReplicaPicture` that a partition's folder gives. Raises `CorruptLogError`."""
    logs = sorted(folder.glob("*.log"))
    batches = [batch for path in logs for batch in iter_batches(path.read_bytes(), source=path.name)]
    indexes = {path: iter_txnindex(path.read_bytes(), source=path.name) for path in sorted(folder.glob("*.txnindex"))}
    epochs = folder / EPOCHS
    return {
        **log_fields(batches, ((int(path.stem), txn) for path, index in indexes.items() for txn in index), named),
        "segments": tuple(int(path.stem) for path in logs),
        "cleaned_to": cleaned_to,
        "epochs": tuple(sorted(read_leader_epochs(epochs.read_bytes(), source=EPOCHS).items()))
        if epochs.exists()
        else (),
        "snapshots": tuple(
            (int(log.stem), states_of(read_producer_snapshot(snapshot.read_bytes(), source=snapshot.name), named))
            for log in logs[1:]
            if (snapshot := log.with_suffix(".snapshot")).exists()
        ),
    }


def fetch_offsets(coordinator: Connection, groups: Sequence[str]) -> dict[str, tuple[FetchedOffset, ...]]:
    """Return answers about the groups that a broker coordinates, ``require_stable`` and not. Raises OSError."""
    partitions = [(name, 0) for name in sorted(ALL_KEYS)]
    stable, current = (
        coordinator.ask(fetch_offsets_of_groups(dict.fromkeys(groups, partitions), require_stable=is_stable))
        for is_stable in (True, False)
    )
    return {
        group: tuple((tp[0], _text(stable[group][tp]), _text(current[group][tp])) for tp in partitions)
        for group in stable.keys() & current.keys()
    }


def _text(answer: int | str) -> str:
    return {groups_api.NO_OFFSET: NO_OFFSET, UNSTABLE_OFFSET: UNSTABLE}.get(answer, str(answer))
