"""Redpanda under test: requests that are not part of Kafka's protocol go to its admin API.

Source: Redpanda's documentation, and its source as of 25.1 (its metadata has every replica in the ISR, only leaders
answer DescribeProducers, and Fetch ignores replica ids). Tried with stand-ins only, as no binary was available.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from harness.broker_files.segments.redpanda import is_segment, to_kafka
from harness.errors import HarnessError
from harness.kafka_api import TopicPartition
from harness.kafka_api.admin import Admin
from harness.kafka_api.connection import Connection
from harness.kafka_api.fetch import ReplicaReader, WireReader
from harness.kafka_api.metadata import PartitionState
from harness.kafka_api.redpanda_admin import COORDINATED_COMPACTION, INTERNAL, KAFKA, TX_BATCH_REMOVAL, RedpandaAdmin
from harness.runtimes.base import AdminApi, Runtime, ability, live_addresses, live_brokers
from harness.schedules.placement import Placement
from harness.schedules.timers import DAY_MS, Timers
from harness.systems import System, SystemSettings
from harness.targets import REDPANDA, Target

COORDINATOR, CONTROLLER = ("tx", 0), ("controller", 0)
CONTROLLERS = "redpanda"
"""The namespace of the controllers' own partition."""

COMPACTION_INTERVAL = "log_compaction_interval_ms"
RAW_FOLDER = "redpanda"
"""The subfolder of a partition with the unchanged files of the broker."""
CONVERTED_LOG = f"{0:020}.log"

SMALL_CLUSTER = {
    # A single coordinator can be moved to the brokers that stay up.
    "transaction_coordinator_partitions": "1",
    "internal_topic_replication_factor": "3",
    "auto_create_topics_enabled": "false",
    # The harness moves leaders.
    "enable_leader_balancer": "false",
    "partition_autobalancing_mode": "off",
    # Acknowledged records survive SIGKILL.
    "write_caching_default": "false",
    # Segments roll by the topic's setting.
    "log_segment_ms_min": "1",
}

FROM_KAFKA = {"broker.session.timeout.ms": "alive_timeout_ms", "log.cleaner.backoff.ms": COMPACTION_INTERVAL}
"""Redpanda's names of timers; other timers have no counterpart."""

TOPIC_SETTINGS = ("cleanup.policy", "delete.retention.ms", "segment.ms")
ANY_DIRT = {"min.cleanable.dirty.ratio": "0.0"}

PROOF = COORDINATED_COMPACTION, TX_BATCH_REMOVAL
LEAST_WINDOW_S = 60.0
"""Replicas report every 1/24 of the retention, their leader answers three seconds later, and a marker is removed two
rolled segments after the answer."""

UNSUPPORTED_NEMESES = frozenset(
    {
        "bridge", "catch-up", "clock-skew", "controller-kill", "crash-in-cleaning", "disk-full", "join",
        "power-failure", "reassigned", "relay", "ring",
    }
)  # fmt: skip


class RedpandaControl:
    """Implements `harness.systems.Control`."""

    coordinator = COORDINATOR

    def __init__(self, runtime: Runtime, admin: Admin) -> None:
        self._runtime = runtime
        self._kafka = admin
        self._redpanda = RedpandaAdmin(
            lambda: {broker: ability(runtime, AdminApi).admin_address(broker) for broker in live_brokers(runtime)}
        )
        self.registered, self.identities = self._redpanda.brokers, self._redpanda.uuids
        self._interval_ms: int | None = None
        self._frozen_version = 0

    def active_controller(self) -> int | None:
        """Return the leader of the controllers' partition."""
        return self._redpanda.leader(CONTROLLER, CONTROLLERS)

    def states(self, topics: Sequence[str]) -> dict[TopicPartition, PartitionState]:
        """Return the metadata with the live replicas as the ISR, as Redpanda's ISR has every replica."""
        alive = self._redpanda.brokers()
        states = self._kafka.partitions(topics)
        return {tp: replace(state, isr=tuple(b for b in state.replicas if b in alive)) for tp, state in states.items()}

    def lead(self, _orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Do nothing: replicas do not move, and `leads` transfers leadership."""

    def leads(self, orders: Mapping[TopicPartition, Sequence[int]]) -> bool:
        """Transfer leadership, and then compare the metadata of every broker."""
        late = [tp for tp, order in orders.items() if self._redpanda.leader(tp, _namespace(tp)) != order[0]]
        for tp in late:
            # Fails if a follower has not caught up, or during an election; the next call tries again.
            with suppress(HarnessError):
                self._redpanda.transfer_leadership(tp, orders[tp][0], _namespace(tp))
        leaders = {tp: order[0] for tp, order in orders.items() if tp != COORDINATOR}
        if late or not leaders:
            return not late
        topics = sorted({topic for topic, _ in leaders})
        views = (self._kafka.partitions(topics, at=address) for address in live_addresses(self._runtime))
        return all(tp in view and view[tp].leader == leader for view in views for tp, leader in leaders.items())

    def freeze(self, _topics: Sequence[str]) -> None:
        """Set the compaction interval of the cluster to a day."""
        if self._interval_ms is None:
            self._interval_ms = int(self._redpanda.config()[COMPACTION_INTERVAL])
        self._frozen_version = self._redpanda.set_config({COMPACTION_INTERVAL: DAY_MS})

    def is_frozen(self, _topics: Sequence[str]) -> bool:
        """Compare the version of each broker's configuration."""
        versions = self._redpanda.config_versions()
        return all(versions.get(broker, 0) >= self._frozen_version for broker in live_brokers(self._runtime))

    def thaw(self, _topics: Sequence[str], _settings: Mapping[str, str]) -> None:
        """Restore the compaction interval."""
        if self._interval_ms is not None:
            self._redpanda.set_config({COMPACTION_INTERVAL: self._interval_ms})

    def rest(self, _brokers: Sequence[int], _for_ms: int | None = None) -> None:
        """Do nothing: a single broker has no such setting, and a disconnected replica removes no records."""

    def is_resting(self, _brokers: Sequence[int], _for_ms: int | None = None) -> bool:
        """Return True: there is nothing to wait for."""
        return True

    def wake(self, _brokers: Sequence[int]) -> None:
        """Do nothing."""

    def reader(self, broker: int) -> ReplicaReader:
        """Connect to the broker. The reader does not list open transactions, which only leaders of Redpanda list."""
        return WireReader(Connection(self._runtime.address(broker)), lists_open=False)

    def compaction(self, partition: TopicPartition) -> dict[int, dict[str, int | None]]:
        """Return MCCO, MTRO, MXFO and MXRO of each replica, and ``cleaner_offset``: the Kafka offset of the MCCO.

        The Kafka offset is a lower bound, as it subtracts all offsets that Raft has used up to the end of the log.
        """
        progress = {}
        for broker, state in self._redpanda.compaction(partition).items():
            raft_offsets = max(state["committed"] - state["high_watermark"], 0)
            progress[broker] = {**state, "cleaner_offset": max((state["cleanly_compacted"] or 0) - raft_offsets, 0)}
        return progress

    def file_logs(self, folder: Path, *, is_up: bool) -> None:
        """Move the broker's files to a subfolder, and convert the files of a broker that is down to Kafka batches.

        The files of a live broker may lag behind its Fetch responses, which are the evidence then.
        """
        raw = folder / RAW_FOLDER
        raw.mkdir(exist_ok=True)
        for path in [path for path in folder.iterdir() if is_segment(path.name)]:
            path.rename(raw / path.name)
        if not is_up:
            segments = {path.name: path.read_bytes() for path in raw.iterdir()}
            (folder / CONVERTED_LOG).write_bytes(to_kafka(segments))

    def coordination(self) -> dict[str, bool]:
        """Return whether each requirement is met; False if no broker answers."""
        met = False, False
        with suppress(HarnessError):
            met = self._redpanda.coordinates_compaction(), self._redpanda.removes_markers()
        return dict(zip(PROOF, met, strict=True))


def _namespace(partition: TopicPartition) -> str:
    return INTERNAL if partition == COORDINATOR else KAFKA


def _settings(target: Target, timers: Timers, _nemesis_settings: Mapping[str, str]) -> SystemSettings:
    topic = {name: timers.topic[name] for name in TOPIC_SETTINGS} | ANY_DIRT
    named = {FROM_KAFKA[name]: value for name, value in timers.broker.items() if name in FROM_KAFKA}
    return topic, {**SMALL_CLUSTER, **named, **target.broker_settings}


def _why_unfit(placement: Placement) -> str | None:
    replicas, absent = placement.replication_factor, len(placement.absent)
    if replicas % 2 == 0:
        return f"--replication-factor {replicas}: Redpanda takes odd numbers only"
    for group, count in (("replicas of a partition", replicas), ("brokers", len(placement.brokers))):
        if 2 * absent >= count:
            return f"--absent {absent}: with {count} {group} no majority is left, and Raft writes nothing"
    return None


SYSTEMS = {
    REDPANDA: System(
        name="Redpanda",
        settings=_settings,
        control=RedpandaControl,
        why_unfit=_why_unfit,
        unsupported_nemeses=UNSUPPORTED_NEMESES,
        proof=PROOF,
        has_odd_replicas=True,
        least_window_s=LEAST_WINDOW_S,
    )
}
