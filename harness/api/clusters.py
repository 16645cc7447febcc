"""Clusters of processes of this host, for regression tests of brokers: docs/extending/library.md has an example.

Retention and cleaners are as fast as in ``harness run --timers fast``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.api.commands import FilePath, audit_live
from harness.broker_files.segments.batches import iter_records
from harness.clients.librdkafka import LibrdkafkaProducer
from harness.clients.recorded import RecordingProducer
from harness.cluster.boot import booted_cluster, equip
from harness.cluster.cluster import START_S, Cluster
from harness.errors import HarnessError, UsageError
from harness.host.java import find_java
from harness.host.workspace import Workspace
from harness.judge.verdict import CLEAN
from harness.kafka_api import TopicPartition
from harness.kafka_api.fetch import ReplicaState
from harness.kafka_api.metadata import describe_cluster
from harness.run_folder.history import History
from harness.run_folder.store import new_run_id
from harness.runtimes import LOCAL, RUNTIMES
from harness.runtimes.base import ClusterSpec, RuntimeRequest, bootstrap_servers
from harness.schedules.placement import MOST_BROKERS
from harness.schedules.timers import FAST
from harness.suggest import known_name
from harness.systems import find_system
from harness.targets import WITH_JARS, Target, find_target
from harness.targets.settings import BROKER, raise_if_unfit
from nemesis import FAULTS
from nemesis.fault import FaultContext

TEST: Final = "test"
FILLER: Final = "filler"
"""The key of records that let segments roll."""
NEWEST: Final = list(WITH_JARS)[-1]


@dataclass(frozen=True)
class LocalCluster:
    """A running cluster: its target, and ``bootstrap``, the servers for clients of your own.

    ``spec``: of its brokers. ``settings``: of new topics. ``running``: for all other requests.
    """

    target: Target
    bootstrap: str
    spec: ClusterSpec
    settings: Mapping[str, str]
    running: Cluster
    producer: RecordingProducer

    def create_topic(self, name: str, *, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Create a compacted topic with a replica on every broker, and wait until it exists.

        ``settings`` replace the cluster's. Raises `HarnessError` where a broker refuses.
        """
        brokers = self.spec.brokers
        replicas = {(name, n): brokers[n % len(brokers) :] + brokers[: n % len(brokers)] for n in range(partitions)}
        self.running.admin.create_topics(replicas, {**self.settings, **(settings or {})})
        self.running.wait(lambda: replicas.keys() <= self.partitions().keys(), f"the topic {name}")

    def write(self, topic: str, key: str | bytes, value: str | None, partition: int = 0) -> int:
        """Write a record with acks=all, a tombstone without a value; return its offset. Raises `HarnessError`."""
        return self.producer.put(topic, partition, key, value)

    def wait_removed(self, topic: str, offset: int, partition: int = 0) -> None:
        """Write filler until cleaners have removed a record from each replica that is up. Raises `WaitTimeoutError`."""
        place = (topic, partition)

        def is_removed() -> bool:
            self.write(topic, FILLER, "", partition)
            replicas = [self.running.read(broker, [place])[place] for broker in self.running.present(place)]
            return all(not isinstance(replica, str) and offset not in _offsets(replica) for replica in replicas)

        self.running.replicas = self.partitions()
        self.running.wait(is_removed, f"the record at {topic}-{partition}, offset {offset}, to be removed")

    def partitions(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the brokers of every partition that has several replicas."""
        states = self.running.admin.client.ask_any(describe_cluster(None)).partitions
        return {tp: tuple(state.replicas) for tp, state in states.items() if len(state.replicas) > 1}


def _offsets(replica: ReplicaState) -> set[int]:
    return {record.offset for batch in replica.batches for record in iter_records(batch, source="a replica")}


@contextmanager
def local_cluster(
    target: str = NEWEST,
    folder: FilePath = ".",
    *,
    brokers: int = 3,
    faults: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> Iterator[LocalCluster]:
    """Boot a cluster of processes of this host, whose data is deleted after the block.

    ``folder``: of the brokers' logs. ``faults``: faults that need more than processes, such as partition.
    ``settings``: of brokers, in addition to short timers. Raises `HarnessError`.
    """
    row, injected = find_target(target), [FAULTS[known_name("fault", name, FAULTS)] for name in faults]
    if not RUNTIMES[LOCAL].runs(row):
        raise UsageError(f"{row.name} cannot run as processes of this host")
    if not 1 < brokers <= MOST_BROKERS:
        raise UsageError(f"brokers={brokers}: give 2 to {MOST_BROKERS}, as topics need several replicas")
    raise_if_unfit(row, {BROKER: settings or {}})
    system = find_system(row)
    for_faults = {name: value for fault in injected for name, value in fault.broker_settings.items()}
    topic_settings, broker_settings = system.settings(row, FAST, for_faults)
    needs = frozenset[str]().union(*(fault.needs for fault in injected))
    equipment = equip(RuntimeRequest(row, find_java(), lambda *_: None, needs), LOCAL, has_jvm_clients=False)
    all_settings, numbers = {**broker_settings, **(settings or {})}, tuple(range(1, brokers + 1))
    with Workspace(f"test-{new_run_id()}", Path(folder)) as workspace:
        # Every broker is a controller, so that any of them may be absent.
        of_brokers = (Path(folder), all_settings, numbers, numbers)
        spec = ClusterSpec(workspace.run_id, workspace.path, *of_brokers, needs=needs)
        with booted_cluster(equipment, spec, settle_s=START_S) as running:
            running.tolerated = (HarnessError, OSError)
            bootstrap = bootstrap_servers(running.runtime)
            with closing(History(workspace.path / "history.jsonl", running.clock)) as history:
                producer = RecordingProducer(lambda name: LibrdkafkaProducer(bootstrap, name, {}), history, TEST, TEST)
                yield LocalCluster(row, bootstrap, spec, topic_settings, running, producer)


@contextmanager
def absent(cluster: LocalCluster, broker: int, fault: str = "kill") -> Iterator[None]:
    """Inject a fault on a broker, and heal it after the block.

    The block begins when the broker has left every ISR, if the fault makes it leave. Afterwards it is waited for until
    the broker is back in every ISR, and its replicas end where the others do. Raises `UsageError` for a fault that this
    cluster was not started for, and `WaitTimeoutError`.
    """
    injected, running = FAULTS[known_name("fault", fault, FAULTS)], cluster.running
    spec = cluster.spec
    if not (injected.needs <= spec.needs and injected.broker_settings.items() <= spec.settings.items()):
        raise UsageError(f"this cluster was not started for {fault}: give faults=[{fault!r}]")
    if broker not in running.brokers or broker in running.absent:
        raise UsageError(f"broker {broker} is not among the brokers that are up")
    running.replicas = cluster.partitions()
    if not running.replicas:
        raise UsageError("no topic has several replicas: create one first, so that the broker is missed")
    before = running.absent, running.away
    running.absent = (*running.absent, broker)
    context = FaultContext(running, (broker,), FAST.copy_bytes_per_s, FAST.window_s, lambda *_, **__: None)
    try:
        injected.inject(context)
        if injected.leaves_isr:
            running.away |= {broker}
            running.wait_absent_left()
        yield
    finally:
        injected.heal(context)
        running.absent, running.away = before
    running.replicas = cluster.partitions()
    running.wait_in_isr([broker])
    if not running.away:
        running.wait_level(running.replicas)


def assert_replicas_agree(cluster: LocalCluster, topics: Sequence[str]) -> None:
    """Audit the topics as ``harness audit live`` does. Raises AssertionError unless the verdict is clean."""
    __tracebackhide__ = True
    verdict = audit_live(bootstrap_server=cluster.bootstrap, topic=topics)
    if verdict.verdict != CLEAN:
        raise AssertionError("\n".join(map(str, verdict.findings)) or f"{verdict.verdict}: {verdict.reason}")
