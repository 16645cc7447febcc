"""What power failures make wrong, which is none of the four anomalies: losses of a cluster, and holes in a replica.

**Losses** (`LOST`) are of records that a broker acknowledged which was alone in the ISR, or led uncleanly afterwards.

Kafka acknowledges what every member of the ISR has written, not what any of them has synced to disk
(``min.insync.replicas``, ``flush.messages``). Where the ISR has one member, its power failure may take what it
acknowledged; every replica follows it when it leads again. So all replicas agree, and are wrong by what clients know.
A broker that ended uncleanly is taken out of the ISR when it registers (KIP-966). Where all did, the one that was in it
last leads (``PartitionChangeBuilder``, ``lastKnownElr``): an unclean election, which promises nothing.
A power failure of one of several members takes nothing: what it lost it copies again, but for holes.

**Holes** (`HOLE`) are of a broker that lost records of a segment while the file of the next one is there: a segment
that had rolled, and was not synced yet (``UnifiedLog.roll`` syncs in the background). A broker that starts finds
nothing wrong with an empty segment (``LogLoader.recoverLog``), goes on at the end of the last one, and never asks for
what is missing.
That is an anomaly: acknowledged records are gone from a replica that is in the ISR, and may lead.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harness.soak.judge.truth import STATE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from harness.broker_files.metadata_log.history import ClusterMetadata
    from harness.kafka_api.messages import TopicPartition
    from harness.soak.evidence.replica_log import Replica
    from harness.soak.judge.truth import Truth

LOST: Final = "lost-unsynced"
"""The name of what is wrong on every replica after such a loss. It is no anomaly."""
TRANSACTION_STATE: Final = "__transaction_state"
"""Where outcomes of transactions can be lost, of whatever partitions they are."""
_POWER_FAILURE: Final = "power failure"
LostKeys: TypeAlias = "Mapping[TopicPartition, Mapping[str, Loss]]"
"""The keys of a partition that a loss made wrong."""


@dataclass(frozen=True)
class Loss:
    """Offsets that a broker lost with its power, of a partition. ``is_hole``: see above.

    ``was_alone``: in the ISR. ``led_uncleanly``: it was elected so in this round.
    """

    broker: int
    partition: TopicPartition
    first_offset: int
    last_offset: int
    was_alone: bool = False
    is_hole: bool = False
    led_uncleanly: bool = False

    @property
    def is_followed(self) -> bool:
        """Whether every replica follows this broker, and loses the same."""
        return self.was_alone or self.led_uncleanly

    def __str__(self) -> str:
        """Return it in words."""
        topic, number = self.partition
        how = (
            "was alone in the ISR"
            if self.was_alone
            else "was elected uncleanly"
            if self.led_uncleanly
            else "has a later segment, so that it goes on there"
        )
        return (
            f"offsets {self.first_offset} to {self.last_offset} of {topic}-{number} were lost with the power of broker"
            f" {self.broker}, which had not synced them and {how}"
        )


def unclean_leaders(metadata: ClusterMetadata | None) -> set[Replica]:
    """Return the replicas that were elected uncleanly to lead, by the metadata log."""
    histories = {} if metadata is None else metadata.histories
    return {(state.leader, tp) for tp, history in histories.items() for state in history.states if state.recovering}


def losses_of(events: Iterable[Mapping[str, Any]], unclean: Collection[Replica] = frozenset()) -> tuple[Loss, ...]:
    """Return the losses and holes that a history has; not what a broker copies again.

    ``unclean``: the replicas that were elected uncleanly to lead.
    """
    lost = (
        Loss(
            event["broker"],
            (one["topic"], one["partition"]),
            one["first_offset"],
            one["last_offset"],
            was_alone=one["isr"] == [event["broker"]],
            is_hole="next_segment" in one,
            led_uncleanly=(event["broker"], (one["topic"], one["partition"])) in unclean,
        )
        for event in events
        if event["f"] == _POWER_FAILURE and event["type"] == "ok"
        for one in event["cut"]
        if "records" in one
    )
    return tuple(one for one in lost if one.is_followed or one.is_hole)


def lost_keys(truth: Truth, losses: Sequence[Loss]) -> LostKeys:
    """Return the keys about which every replica is wrong, and in the same way, where that may come of a loss.

    Of a partition that lost records, or of transactions whose outcomes may be lost. A key about which replicas differ,
    or about which one is right, has diverged.
    """
    by_partition = {loss.partition: loss for loss in losses if loss.is_followed}
    of_outcomes = next((loss for loss in by_partition.values() if loss.partition[0] == TRANSACTION_STATE), None)
    states: dict[TopicPartition, dict[str, list[tuple[str, ...]]]] = defaultdict(lambda: defaultdict(list))
    holders: dict[TopicPartition, int] = defaultdict(int)
    in_transaction: set[tuple[TopicPartition, str]] = set()
    for (_, tp), wrongs in truth.wrongs.items():
        holders[tp] += 1
        for key in {wrong.key for wrong in wrongs}:
            here = sorted(wrong.here for wrong in wrongs if wrong.key == key and wrong.kind == STATE)
            states[tp][key].append(tuple(here))
        in_transaction |= {(tp, wrong.key) for wrong in wrongs if wrong.transaction or wrong.due}
    return {
        tp: {
            key: loss
            for key, seen in keys.items()
            if len(seen) == holders[tp] and len(set(seen)) == 1
            if (loss := by_partition.get(tp) or (of_outcomes if (tp, key) in in_transaction else None))
        }
        for tp, keys in states.items()
    }


def hole_keys(truth: Truth, losses: Iterable[Loss]) -> dict[Replica, dict[str, Loss]]:
    """Return the keys of what clients wrote to the offsets of a replica's holes, or ended by a marker there."""
    found: dict[Replica, dict[str, Loss]] = defaultdict(dict)
    holes = [loss for loss in losses if loss.is_hole]
    for (tp, offset), write in truth.at.items():
        markers = () if write.transaction is None else truth.markers.get((tp, write.transaction), ())
        for hole in holes:
            if tp == hole.partition and any(hole.first_offset <= at <= hole.last_offset for at in (offset, *markers)):
                found[hole.broker, tp][write.key] = hole
    return found
