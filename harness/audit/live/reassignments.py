"""Replicas that are being added, and the pace of their copies.

Samples a few seconds apart give the pace: of the segments' bytes where
brokers report them, else of offsets. A throttled copy grows in steps of ``replica.fetch.max.bytes``: a copy that has
not grown is sampled a few times more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from harness.errors import HarnessError
from harness.kafka_api.fetch import list_log_ends
from harness.kafka_api.topics import describe_log_dirs, list_reassignments

if TYPE_CHECKING:
    from collections.abc import Collection

    from harness.audit.live.cluster import AuditedCluster
    from harness.host.clock import Clock
    from harness.kafka_api.messages import Caller, TopicPartition

SAMPLE_S, SAMPLES = 3.0, 5
BYTES, OFFSETS = "bytes", "offsets"

Sizes: TypeAlias = "dict[tuple[int, TopicPartition, str], int]"
"""By broker, partition and unit."""


@dataclass(frozen=True)
class CopyProgress:
    """A replica that is being added: ``done`` of ``total``, in ``unit``, and the pace a second.

    ``is_measured``: False where its broker or its leader did not describe it, so that the progress is unknown.
    """

    broker: int
    partition: TopicPartition
    unit: str = OFFSETS
    done: int = 0
    total: int = 0
    pace_s: float = 0.0
    is_measured: bool = True

    @property
    def took_s(self) -> float | None:
        """How long the copy has taken so far, at its present pace; None where it stands still."""
        return self.done / self.pace_s if self.pace_s > 0 else None

    @property
    def left_s(self) -> float | None:
        """How long the copy still takes, at its present pace; None where it stands still."""
        return max(self.total - self.done, 0) / self.pace_s if self.pace_s > 0 else None


def find_copies(cluster: AuditedCluster) -> tuple[tuple[CopyProgress, ...], tuple[str, ...]]:
    """Return the replicas that are being added, and a note where they are unknown.

    Where there are any, this takes `SAMPLE_S` seconds, and up to `SAMPLES` times that while a copy does not grow.
    """
    partitions, clock = cluster.state.partitions, cluster.client.clock
    try:
        listed = cluster.client.ask_any(list_reassignments(partitions))
    except (OSError, HarnessError) as error:
        return (), (str(error),)
    adding = {(broker, tp) for tp, reassignment in listed.items() for broker in reassignment.adding}
    if not adding:
        return (), ()
    leaders = {tp: partitions[tp].leader for _, tp in adding}
    replicas = adding | {(leader, tp) for tp, leader in leaders.items()}
    first, began_s, copies = _samples(cluster, replicas), clock.now_s(), []
    for number in range(1, SAMPLES + 1):
        _wait(clock, began_s + SAMPLE_S * number)
        latest, took_s = _samples(cluster, replicas), clock.now_s() - began_s
        copies = [_copy(one, leaders[one[1]], first, latest, took_s) for one in sorted(adding)]
        if all(copy.pace_s > 0 for copy in copies if copy.is_measured):
            break
    return tuple(copies), ()


def _wait(clock: Clock, due_s: float) -> None:
    clock.wait_until(lambda: clock.now_s() >= due_s, SAMPLE_S * 2 + 1, "the next sample of the copies")


def _copy(replica: tuple[int, TopicPartition], leader: int, first: Sizes, latest: Sizes, took_s: float) -> CopyProgress:
    """Return how a replica grew between two samples."""
    broker, partition = replica
    for unit in (BYTES, OFFSETS):
        total, done = latest.get((leader, partition, unit)), latest.get((broker, partition, unit))
        before = first.get((broker, partition, unit))
        if total is not None and done is not None and before is not None:
            return CopyProgress(broker, partition, unit, done, total, (done - before) / took_s)
    return CopyProgress(broker, partition, is_measured=False)


def _samples(cluster: AuditedCluster, replicas: Collection[tuple[int, TopicPartition]]) -> Sizes:
    """Return bytes and offsets of each replica, as far as its broker reports them."""

    def ask(broker: int, caller: Caller) -> Sizes:
        partitions = [tp for b, tp in replicas if b == broker]
        ends = caller.ask(list_log_ends(partitions))
        sizes = caller.ask(describe_log_dirs(partitions)).sizes_bytes
        return {(broker, tp, BYTES): size for tp, size in sizes.items()} | {
            (broker, tp, OFFSETS): end for tp, end in ends.items() if isinstance(end, int)
        }

    answers = cluster.client.ask_all({broker for broker, _ in replicas}, ask).values()
    return {key: value for sizes in answers if isinstance(sizes, dict) for key, value in sizes.items()}
