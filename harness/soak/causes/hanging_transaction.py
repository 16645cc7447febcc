"""A transaction that is open on every replica although clients have ended it; no coordinator skipped its marker."""

from collections import defaultdict

from harness.soak.causes.cause import Cause, Explained, RoundEvidence, Symptoms
from harness.soak.judge.truth import STUCK


def explain(evidence: RoundEvidence, symptoms: Symptoms) -> Explained:
    """Return the transactions that are open on each of two replicas or more."""
    wrongs, stuck = evidence.truth.wrongs, defaultdict[object, set[int]](set)
    for (broker, tp), of_replica in wrongs.items():
        for wrong in of_replica:
            if wrong.kind == STUCK:
                stuck[tp, wrong.transaction].add(broker)
    return {
        symptom: ""
        for symptom in symptoms
        if symptom.wrong is not None and symptom.wrong.kind == STUCK
        if len(brokers := stuck[symptom.partition, symptom.wrong.transaction]) > 1
        if brokers == {broker for broker, tp in wrongs if tp == symptom.partition}
    }


CAUSE = Cause(
    "hanging-transaction", "a transaction that has ended is open on every replica", explain, is_seen_by_both=False
)
