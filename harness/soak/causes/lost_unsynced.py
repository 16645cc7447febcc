"""Acknowledged records of a broker that was alone in the ISR, or led uncleanly: see `harness.soak.evidence.losses`.

All replicas agree, and are wrong by what clients know. Kafka promises no more.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from harness.soak.causes.cause import Cause, RoundEvidence, Symptom, Symptoms, with_key, wrong_groups
from harness.soak.evidence.losses import TRANSACTION_STATE
from harness.soak.judge.truth import STATE

if TYPE_CHECKING:
    from harness.kafka_api.messages import TopicPartition
    from harness.soak.evidence.losses import Loss


def explain(evidence: RoundEvidence, symptoms: Symptoms) -> dict[Symptom, object]:
    """Return the symptoms that every replica has in the same way, of a partition that lost records.

    Also those of transactions of any partition whose outcomes may be lost. A key about which replicas differ, or about
    which a replica is right, has diverged.
    """
    by_partition = {loss.partition: loss for loss in evidence.losses if loss.is_followed}
    of_outcomes = next((loss for loss in by_partition.values() if loss.partition[0] == TRANSACTION_STATE), None)
    states: dict[TopicPartition, dict[str, list[list[str]]]] = defaultdict(lambda: defaultdict(list))
    replicas: dict[TopicPartition, int] = defaultdict(int)
    in_transaction: set[tuple[TopicPartition, str]] = set()
    for (_, tp), wrongs in evidence.truth.wrongs.items():
        replicas[tp] += 1
        for key in {wrong.key for wrong in wrongs}:
            states[tp][key].append(sorted(one.here for one in wrongs if one.key == key and one.kind == STATE))
        in_transaction |= {(tp, wrong.key) for wrong in wrongs if wrong.transaction or wrong.due}

    def loss_of(tp: TopicPartition, key: str) -> Loss | None:
        return by_partition.get(tp) or (of_outcomes if (tp, key) in in_transaction else None)

    keys = {
        tp: {
            key: loss
            for key, of_replicas in of_partition.items()
            if of_replicas == of_replicas[:1] * replicas[tp] and (loss := loss_of(tp, key))
        }
        for tp, of_partition in states.items()
    }
    return with_key(symptoms, keys) | wrong_groups(symptoms, by_partition, evidence.brokers)


CAUSE = Cause(
    "lost-unsynced",
    "a power failure took acknowledged records that every replica follows",
    explain,
    before=frozenset({"hole-after-power-failure"}),
    is_anomaly=False,
    is_seen_by_both=False,
)
