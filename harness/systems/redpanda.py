"""Redpanda under test: what Kafka's protocol does not have is read from the admin API.

Source: Redpanda's documentation, and its source as of 25.1 (metadata names every replica as in sync; leaders alone
answer DescribeProducers; Fetch pays no attention to replica ids). Run against stand-ins only: no binary is to be had
where this was written.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.broker_files.segments.redpanda import is_segment, to_kafka
from harness.errors import HarnessError
from harness.kafka_api.connection import Connection
from harness.kafka_api.redpanda_admin import (
    COORDINATED_COMPACTION,
    INTERNAL,
    KAFKA,
    TX_BATCH_REMOVAL,
    RedpandaAdmin,
)
from harness.kafka_api.replica import WireReader
from harness.runtimes.abilities import AdminApi, ability
from harness.runtimes.base import live_addresses, live_brokers
from harness.schedules.timers import DAY_MS
from harness.systems import System
from harness.targets import REDPANDA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from harness.kafka_api.admin import Admin
    from harness.kafka_api.messages import TopicPartition
    from harness.kafka_api.metadata import PartitionState
    from harness.kafka_api.replica import ReplicaReader
    from harness.runtimes.base import Runtime
    from harness.schedules.placement import Placement
    from harness.schedules.timers import Timers
    from harness.targets import Target

COORDINATOR, CONTROLLER = ("tx", 0), ("controller", 0)
CONTROLLERS = "redpanda"
"""The namespace of the controllers' own partition."""

COMPACTION_INTERVAL = "log_compaction_interval_ms"
RAW_FOLDER = "redpanda"
"""Below a partition's files: those that the broker has on disk, as they are."""
WHOLE_LOG = f"{0:020}.log"

SMALL_CLUSTER = {
    # One, so that there is one coordinator to be kept among the brokers that stay.
    "transaction_coordinator_partitions": "1",
    "internal_topic_replication_factor": "3",
    "auto_create_topics_enabled": "false",
    # Leaders stay where they were put.
    "enable_leader_balancer": "false",
    "partition_autobalancing_mode": "off",
    # What was acknowledged survives SIGKILL.
    "write_caching_default": "false",
    # Segments roll as often as the topic asks.
    "log_segment_ms_min": "1",
}

FROM_KAFKA = {
    "broker.session.timeout.ms": "alive_timeout_ms",
    "log.cleaner.backoff.ms": COMPACTION_INTERVAL,
}
"""Timers that Redpanda has under names of its own; the others have no counterpart."""

TOPIC_SETTINGS = ("cleanup.policy", "delete.retention.ms", "segment.ms")
ANY_DIRT = {"min.cleanable.dirty.ratio": "0.0"}

LEAST_WINDOW_S = 60.0
"""Replicas report every twenty-fourth of the retention, their leader answers three seconds later, and a marker goes two
rolled segments after that."""

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
        """Remember whom to ask. ``admin`` speaks Kafka's protocol."""
        self._runtime = runtime
        self._kafka = admin
        self._redpanda = RedpandaAdmin(
            lambda: {broker: ability(runtime, AdminApi).admin_address(broker) for broker in live_brokers(runtime)},
        )
        self._own_interval_ms: int | None = None
        self._frozen_at = 0

    def registered(self) -> set[int]:
        """Return the brokers that are alive."""
        return self._redpanda.brokers()

    def active_controller(self) -> int | None:
        """Return who leads the controllers' partition."""
        return self._redpanda.leader(CONTROLLER, CONTROLLERS)

    def states(self, topics: Sequence[str]) -> dict[TopicPartition, PartitionState]:
        """Return the metadata; in sync is who is alive, as the metadata names every replica."""
        alive = self._redpanda.brokers()
        states = self._kafka.partitions(topics)
        return {tp: replace(state, isr=tuple(b for b in state.replicas if b in alive)) for tp, state in states.items()}

    def lead(self, _orders: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Do nothing: replicas stay, and leadership is asked for in `leads`."""

    def leads(self, orders: Mapping[TopicPartition, Sequence[int]]) -> bool:
        """Look who leads, and have leaders give way; then look whether every broker knows."""
        late = [tp for tp, order in orders.items() if self._redpanda.leader(tp, _namespace(tp)) != order[0]]
        for tp in late:
            # A follower that has not caught up is refused, and none leads during an election: asked again.
            with suppress(HarnessError):
                self._redpanda.transfer_leadership(tp, orders[tp][0], _namespace(tp))
        if late:
            return False
        of_clients = {tp: order[0] for tp, order in orders.items() if tp != COORDINATOR}
        topics = sorted({topic for topic, _ in of_clients})
        views = (self._kafka.partitions(topics, at=address) for address in live_addresses(self._runtime))
        return not topics or all(
            tp in view and view[tp].leader == leader for view in views for tp, leader in of_clients.items()
        )

    def freeze(self, _topics: Sequence[str]) -> None:
        """Have compaction wait for a day."""
        if self._own_interval_ms is None:
            self._own_interval_ms = int(self._redpanda.config()[COMPACTION_INTERVAL])
        self._frozen_at = self._redpanda.set_config({COMPACTION_INTERVAL: DAY_MS})

    def is_frozen(self, _topics: Sequence[str]) -> bool:
        """Look which version of the configuration each broker has."""
        versions = self._redpanda.config_versions()
        return all(versions.get(broker, 0) >= self._frozen_at for broker in live_brokers(self._runtime))

    def thaw(self, _topics: Sequence[str], _settings: Mapping[str, str]) -> None:
        """Give compaction its interval back."""
        if self._own_interval_ms is not None:
            self._redpanda.set_config({COMPACTION_INTERVAL: self._own_interval_ms})

    def rest(self, _brokers: Sequence[int], _for_ms: int = DAY_MS) -> None:
        """Do nothing: properties are the cluster's, and a replica that is cut off learns of nothing to remove."""

    def is_resting(self, _brokers: Sequence[int], _for_ms: int = DAY_MS) -> bool:
        """Whether nothing has to be waited for."""
        return True

    def wake(self, _brokers: Sequence[int]) -> None:
        """Do nothing."""

    def reader(self, broker: int) -> ReplicaReader:
        """Connect to the broker.

        It does not list open transactions: only leaders do, and their answers were not compared with their logs yet.
        """
        return WireReader(Connection(self._runtime.address(broker)), lists_open=False)

    def compaction(self, partition: TopicPartition) -> dict[int, dict[str, int | None]]:
        """Return MCCO, MTRO, MXFO and MXRO of each replica, and ``cleaner_offset``: the Kafka offset of the first.

        That is a lower bound: it takes away as many offsets as Raft has used up to the end of the log.
        """
        found = {}
        for broker, state in self._redpanda.compaction(partition).items():
            own = max(state["committed"] - state["high_watermark"], 0)
            found[broker] = {**state, "cleaner_offset": max((state["cleanly_compacted"] or 0) - own, 0)}
        return found

    def identities(self) -> dict[int, str]:
        """Return the id that each broker's data directory was given when it was made."""
        return self._redpanda.uuids()

    def file_logs(self, folder: Path, *, is_up: bool) -> None:
        """Set what the broker has on disk aside; of one that is down, write the same as Kafka batches.

        What a broker that is up has on disk may lag behind what it serves, and what it serves is what is judged then.
        """
        aside = folder / RAW_FOLDER
        aside.mkdir(exist_ok=True)
        for path in [path for path in folder.iterdir() if is_segment(path.name)]:
            path.rename(aside / path.name)
        if not is_up:
            segments = {path.name: path.read_bytes() for path in aside.iterdir()}
            (folder / WHOLE_LOG).write_bytes(to_kafka(segments))

    def coordination(self) -> dict[str, bool]:
        """Return what `SYSTEM` asks as proof; false where nobody answers."""
        try:
            return {
                COORDINATED_COMPACTION: self._redpanda.coordinates_compaction(),
                TX_BATCH_REMOVAL: self._redpanda.removes_markers(),
            }
        except HarnessError:
            return dict.fromkeys(SYSTEM.proof, False)


def _namespace(partition: TopicPartition) -> str:
    return INTERNAL if partition == COORDINATOR else KAFKA


def _settings(
    target: Target, timers: Timers, _nemesis_settings: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    topic = {name: timers.topic[name] for name in TOPIC_SETTINGS} | ANY_DIRT
    named = {FROM_KAFKA[name]: value for name, value in timers.broker.items() if name in FROM_KAFKA}
    return {**topic, **target.topic_settings}, {**SMALL_CLUSTER, **named, **target.broker_settings}


def _why_unfit(placement: Placement) -> str | None:
    if placement.replication_factor % 2 == 0:
        return f"--replication-factor {placement.replication_factor}: Redpanda takes odd numbers only"
    for what, count in (("replicas of a partition", placement.replication_factor), ("brokers", len(placement.brokers))):
        if 2 * len(placement.absent) >= count:
            return f"--absent {len(placement.absent)}: with {count} {what} no majority is left, and Raft writes nothing"
    return None


SYSTEM = System(
    name="Redpanda",
    settings=_settings,
    control=RedpandaControl,
    why_unfit=_why_unfit,
    unsupported_nemeses=UNSUPPORTED_NEMESES,
    proof=(COORDINATED_COMPACTION, TX_BATCH_REMOVAL),
    has_odd_replicas=True,
    least_window_s=LEAST_WINDOW_S,
)
SYSTEMS = {REDPANDA: SYSTEM}
