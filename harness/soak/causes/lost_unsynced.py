"""Offsets that a broker lost with its power, if it was alone in the ISR, led uncleanly, or lost a middle segment.

Kafka acknowledges records that every member of the ISR has written, not records that any of them has synced to disk
(``min.insync.replicas``, ``flush.messages``). A broker that ended uncleanly is removed from the ISR when it registers
(KIP-966). If all members did, the last one leads (``PartitionChangeBuilder``, ``lastKnownElr``): an unclean election. A
power failure of one of several members loses nothing: that member copies the lost offsets again, but for a hole.

The cause of this module: all replicas agree, and contradict the history of clients. Kafka promises no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.kafka_api import TopicPartition
from harness.soak.causes.cause import Cause, RoundEvidence, Symptom, Symptoms, with_key, wrong_groups
from harness.soak.evidence.replica_log import Replica
from harness.soak.judge.truth import STATE, Wrong

if TYPE_CHECKING:
    from harness.broker_files.metadata_log.history import ClusterMetadata

TRANSACTION_STATE: Final = "__transaction_state"
"""Outcomes of transactions can be lost there, whatever their partitions."""


@dataclass(frozen=True)
class Loss:
    """Lost offsets. ``was_alone``: in the ISR. ``is_hole``: a segment follows. ``led_uncleanly``: in this round."""

    broker: int
    partition: TopicPartition
    first_offset: int
    last_offset: int
    was_alone: bool = False
    is_hole: bool = False
    led_uncleanly: bool = False

    @property
    def is_followed(self) -> bool:
        """True where every replica follows this broker, and loses the same offsets."""
        return self.was_alone or self.led_uncleanly

    def __str__(self) -> str:
        """Return the loss in a sentence."""
        topic, number = self.partition
        elected = "was elected uncleanly" if self.led_uncleanly else "has a later segment, where its log continues"
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
        if event["f"] == "power failure" and event["type"] == "ok"
        for cut in event["cut"]
        if "records" in cut
    )
    return tuple(loss for loss in losses if loss.is_followed or loss.is_hole)


def explain(evidence: RoundEvidence, symptoms: Symptoms) -> dict[Symptom, object]:
    """Return the symptoms that every replica has in the same way, of a partition that lost records.

    Outside of transactions, only of keys that were written to an offset where records were lost, or after it.
    Symptoms of transactions of any partition are included where their outcomes may be lost. A key about which replicas
    differ, or about which a replica is right, has diverged.
    """
    followed = [loss for loss in evidence.losses if loss.is_followed]
    by_partition = {loss.partition: loss for loss in followed}
    lost_outcomes = next((loss for loss in followed if loss.partition[0] == TRANSACTION_STATE), None)
    replicas: dict[TopicPartition, list[Sequence[Wrong]]] = defaultdict(list)
    for (_, tp), wrongs in evidence.truth.wrongs.items():
        replicas[tp].append(wrongs)
    keys: dict[TopicPartition, dict[str, Loss]] = defaultdict(dict)
    for tp, of_replicas in replicas.items() if by_partition else ():
        for key in {wrong.key for wrongs in of_replicas for wrong in wrongs}:
            about = [[wrong for wrong in wrongs if wrong.key == key] for wrongs in of_replicas]
            in_transaction = any(wrong.transaction or wrong.due for wrongs in about for wrong in wrongs)
            reached = evidence.truth.reached.get((tp, key), -1)
            here = [it for it in followed if it.partition == tp and (in_transaction or it.first_offset <= reached)]
            loss = next(iter(here), lost_outcomes if in_transaction else None)
            states = [sorted(wrong.here for wrong in wrongs if wrong.kind == STATE) for wrongs in about]
            if loss is not None and all(about) and states == states[:1] * len(states):
                keys[tp][key] = loss
    return with_key(symptoms, keys) | wrong_groups(symptoms, by_partition, evidence.brokers)


CAUSE = Cause(
    "lost-unsynced",
    "a power failure took acknowledged records that every replica follows",
    explain,
    before=frozenset({"hole-after-power-failure"}),
    is_anomaly=False,
    is_seen_by_both=False,
)
