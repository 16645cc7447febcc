"""Simulated brokers: their state, the schedule of their cleaners, their files, and the links between them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from harness.broker_files.side_files.producer_state import encode_producer_snapshot, encode_txnindex
from harness.kafka_api import TopicPartition
from harness.models.cluster.partition import SimPartition
from harness.models.cluster.settings import Settings
from harness.models.log.batch import encoded
from harness.models.log.replica import ModelSegment, Replica

FASTEST_S, SLOWEST_S = 0.0005, 0.005
LOST: Final = 0.01
"""The fraction of lost messages in a healthy network: a lost message is sent again, where TCP would deliver it late."""


@dataclass
class Broker:
    """A broker. ``is_registered``: whether it has a session with the controller.

    ``changes`` counts starts, failures and the like: an action that was due before a change may be obsolete.
    ``phase_s``: the time of its cleaner's first check; ``look_at_s``: of the next check of the partitions that have
    ``changed`` since the last one. ``free_at_s``: when it may copy more, if it is throttled. ``stray``: the logs of
    replicas that were unassigned while the broker was down. A replica that is assigned again before the broker starts
    has its old log; the broker deletes the other logs when it starts (``LogManager.isStrayReplica``).
    """

    number: int
    settings: Settings
    phase_s: float
    is_running: bool = False
    is_paused: bool = False
    is_registered: bool = False
    was_killed: bool = False
    look_at_s: float = math.inf
    changed: dict[SimPartition, None] = field(default_factory=dict)
    skew_ms: int = 0
    changes: int = 0
    free_at_s: float = 0.0
    stray: dict[SimPartition, Replica] = field(default_factory=dict)

    @property
    def is_active(self) -> bool:
        """True while the broker copies, cleans and answers."""
        return self.is_running and not self.is_paused

    def seconds_of(self, name: str) -> float:
        """Return a setting of milliseconds in seconds."""
        return self.settings.numbers[name] / 1000

    def next_look_s(self, after_s: float) -> float:
        """Return the time of its cleaner's first check after some moment (``log.cleaner.backoff.ms``)."""
        pause_s = self.seconds_of("log.cleaner.backoff.ms")
        return self.phase_s + (math.floor((after_s - self.phase_s) / pause_s) + 1) * pause_s


@dataclass
class Network:
    """The links between brokers: ``cut`` brokers; ``lost`` fraction and added ``delays_s`` of a broker's messages."""

    random: Random
    cut: set[int] = field(default_factory=set)
    lost: dict[int, float] = field(default_factory=dict)
    delays_s: dict[int, float] = field(default_factory=dict)

    def takes_s(self, sender: int, receiver: int) -> float | None:
        """Return how long a message takes; None if it does not arrive."""
        chance = self.random.random()
        latency_s = self.random.uniform(FASTEST_S, SLOWEST_S)
        is_lost = chance < max(LOST, self.lost.get(sender, 0.0), self.lost.get(receiver, 0.0))
        return None if is_lost or self.cut & {sender, receiver} else latency_s + self.delays_s.get(sender, 0.0)

    def clear(self) -> None:
        """Remove losses and delays of all links; disconnected brokers stay disconnected."""
        self.lost.clear()
        self.delays_s.clear()


def write_replica(folder: Path, replica: Replica) -> None:
    """Write a partition's folder, which exists."""
    for segment in replica.segments:
        write_segment(folder, segment)
    epochs = "".join(f"{epoch} {start}\n" for epoch, start in sorted(replica.epochs.items()))
    (folder / "leader-epoch-checkpoint").write_text(f"0\n{len(replica.epochs)}\n{epochs}")
    for at, producers in replica.snapshots.items():
        (folder / f"{at:020d}.snapshot").write_bytes(encode_producer_snapshot(list(producers.values())))


def write_segment(folder: Path, segment: ModelSegment, suffix: str = "") -> None:
    """Write one segment's files; ``suffix``: the suffix that the cleaner gives them."""
    name = f"{folder}/{segment.base_offset:020d}"
    with open(f"{name}.log{suffix}", "wb") as log:  # noqa: PTH123  many small files: a Path each costs as much again
        log.write(b"".join([encoded(batch) for batch in segment.batches]))
    if segment.aborted:
        with open(f"{name}.txnindex{suffix}", "wb") as index:  # noqa: PTH123
            index.write(encode_txnindex(segment.aborted))


def write_checkpoint(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Write one offset for each partition (``OffsetCheckpointFile``)."""
    lines = [f"{topic} {number} {at}\n" for (topic, number), at in offsets.items()]
    path.write_text(f"0\n{len(lines)}\n{''.join(lines)}")
