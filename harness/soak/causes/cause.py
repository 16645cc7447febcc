"""A cause, the symptoms that it explains, and the evidence by which it does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from harness.judge.verdict import CLIENTS
from harness.kafka_api import TopicPartition
from harness.schedules.catalog import Anomaly
from harness.soak.judge.truth import HIDDEN, SERVED, STATE, STUCK, Truth, Wrong

if TYPE_CHECKING:
    from harness.soak.causes.lost_unsynced import Loss

ANOMALIES: Final = frozenset(map(str, Anomaly))
GROUPS: Final = "groups"
"""The judge of groups' offsets, by the history of clients."""


@dataclass(frozen=True)
class Symptom:
    """An error of a replica.

    ``judge``: `CLIENTS`, `CHECKERS`, `GROUPS`, or `BROKER`, whose answer contradicts its log. ``wrong``: for clients.
    ``anomaly``: the name that the judge gives, if any. ``offset``: of an open transaction. ``count``: the number of
    errors that are alike. ``explanation`` and ``witness``: of the first one.
    """

    judge: str
    broker: int
    partition: TopicPartition
    key: str | None = None
    wrong: Wrong | None = None
    anomaly: str = ""
    offset: int | None = None
    count: int = field(default=1, compare=False)
    explanation: str = field(default="", compare=False)
    witness: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class RoundEvidence:
    """The evidence of a round.

    ``losses``: by power failures. ``skipped``: lines of ``skipped-markers.jsonl``. ``open_again``: offsets of
    transactions that replicas had open again for some time.
    """

    truth: Truth
    brokers: Collection[int] = ()
    losses: Sequence[Loss] = ()
    skipped: Sequence[Mapping[str, Any]] = ()
    open_again: Mapping[tuple[int, TopicPartition], Collection[int]] = field(default_factory=dict)


Symptoms: TypeAlias = "Sequence[Symptom]"
Explained: TypeAlias = "Mapping[Symptom, object]"
"""Symptoms that a cause explains, each with words that follow its own explanation: the empty string for none."""


@dataclass(frozen=True)
class Cause:
    """A cause of findings, which have its name.

    ``explain`` returns the symptoms that it explains. ``before``: causes that are asked later, and only about
    symptoms that this cause does not explain. ``is_anomaly``: whether it is a fault of the cluster.
    ``is_seen_by_both``: whether both clients and checkers can see its symptoms.
    """

    name: str
    summary: str
    explain: Callable[[RoundEvidence, Symptoms], Explained]
    before: frozenset[str] = ANOMALIES
    is_anomaly: bool = True
    is_seen_by_both: bool = True


class Diagnosis(NamedTuple):
    """The name of the cause of a symptom, and words that follow the symptom's own explanation."""

    name: str
    words: str


def symptoms_of(truth: Truth) -> list[Symptom]:
    """Return the symptoms that clients know. Of a key with a misjudged record, the final state is the same error."""
    symptoms = []
    for (broker, tp), wrongs in truth.wrongs.items():
        misjudged = {wrong.key for wrong in wrongs if wrong.kind in {SERVED, HIDDEN, STUCK}}
        symptoms += [
            Symptom(CLIENTS, broker, tp, wrong.key, wrong, explanation=str(wrong), witness=vars(wrong))
            for wrong in wrongs
            if wrong.kind != STATE or wrong.key not in misjudged
        ]
    return symptoms


def with_key(symptoms: Symptoms, by_key: Mapping[TopicPartition, Mapping[str, object]]) -> dict[Symptom, object]:
    """Return the symptoms of clients and checkers about these keys, by partition."""
    return {
        symptom: by_key[symptom.partition][symptom.key]
        for symptom in symptoms
        if symptom.key is not None and symptom.key in by_key.get(symptom.partition, ())
    }


def wrong_groups(
    symptoms: Symptoms, by_partition: Mapping[TopicPartition, object], brokers: Collection[int]
) -> dict[Symptom, object]:
    """Return the symptoms about groups' offsets in these partitions, where every broker has the same."""
    by_error = defaultdict[tuple["TopicPartition", str], dict[int, Symptom]](dict)
    for symptom in symptoms:
        if symptom.judge == GROUPS and symptom.partition in by_partition:
            by_error[symptom.partition, symptom.anomaly][symptom.broker] = symptom
    return {
        symptom: by_partition[symptom.partition]
        for by_broker in by_error.values()
        if set(by_broker) == set(brokers)
        for symptom in by_broker.values()
    }


def with_wrong(holds: Callable[[Truth, Symptom, Wrong], bool]) -> Callable[[RoundEvidence, Symptoms], Explained]:
    """Return an ``explain`` for the symptoms of clients for which ``holds`` is true, without words."""
    return lambda evidence, symptoms: {
        symptom: ""
        for symptom in symptoms
        if symptom.wrong is not None and holds(evidence.truth, symptom, symptom.wrong)
    }
