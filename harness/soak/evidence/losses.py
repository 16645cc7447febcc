"""Offsets that a broker lost with its power, if it was alone in the ISR, led uncleanly, or lost a middle segment.

Kafka acknowledges records that every member of the ISR has written, not records that any of them has synced to disk
(``min.insync.replicas``, ``flush.messages``). A broker that ended uncleanly is removed from the ISR when it registers
(KIP-966). If all members did, the last one leads (``PartitionChangeBuilder``, ``lastKnownElr``): an unclean election. A
power failure of one of several members loses nothing: that member copies the lost offsets again, but for a hole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from harness.broker_files.metadata_log.history import ClusterMetadata
    from harness.kafka_api.messages import TopicPartition
    from harness.soak.evidence.replica_log import Replica

TRANSACTION_STATE: Final = "__transaction_state"
"""Outcomes of transactions can be lost there, whatever their partitions."""
_POWER_FAILURE: Final = "power failure"


@dataclass(frozen=True)
class Loss:
    """Offsets that a broker lost. ``was_alone``: in the ISR. ``is_hole``: the broker has a later segment.

    ``led_uncleanly``: the broker was elected uncleanly in this round.
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
        """Return the loss in a sentence."""
        topic, number = self.partition
        elected = "was elected uncleanly" if self.led_uncleanly else "has a later segment, so that it goes on there"
        return (
            f"offsets {self.first_offset} to {self.last_offset} of {topic}-{number} were lost with the power of broker"
            f" {self.broker}, which had not synced them and {'was alone in the ISR' if self.was_alone else elected}"
        )


def unclean_leaders(metadata: ClusterMetadata | None) -> set[Replica]:
    """Return the replicas that were elected uncleanly to lead, by the metadata log."""
    histories = {} if metadata is None else metadata.histories
    return {(state.leader, tp) for tp, history in histories.items() for state in history.states if state.recovering}


def losses_of(events: Iterable[Mapping[str, Any]], unclean: Collection[Replica] = frozenset()) -> tuple[Loss, ...]:
    """Return the losses and holes of a history. ``unclean``: the replicas that were elected uncleanly to lead."""
    losses = (
        Loss(
            event["broker"],
            tp := (cut["topic"], cut["partition"]),
            cut["first_offset"],
            cut["last_offset"],
            was_alone=cut["isr"] == [event["broker"]],
            is_hole="next_segment" in cut,
            led_uncleanly=(event["broker"], tp) in unclean,
        )
        for event in events
        if event["f"] == _POWER_FAILURE and event["type"] == "ok"
        for cut in event["cut"]
        if "records" in cut
    )
    return tuple(loss for loss in losses if loss.is_followed or loss.is_hole)
