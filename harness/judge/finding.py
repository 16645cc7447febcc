"""The findings of ``verdict.json``: a wrong replica, or a dispute between replicas, at an offset."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from harness.broker_files.internal_topics.phrases import subject
from harness.escape import in_sentence

CheckerRow: TypeAlias = Mapping[str, Any]
"""A row that a checker returned: columns by name."""
Place: TypeAlias = tuple[str, int]
"""Topic and partition."""
T = TypeVar("T", "Finding", CheckerRow)


class PlaceOf:
    """A property: topic and partition of an object with these fields."""

    def __get__(self, item: Any, _: type) -> Place:
        return item.topic, item.partition


@dataclass(frozen=True, kw_only=True)
class ServedState:
    """The decoded value that some replicas serve for a record of an internal topic.

    ``committed_offset``: only for groups. ``pending``: whether an open transaction has another value.
    """

    brokers: tuple[int, ...]
    state: str
    committed_offset: int | None
    pending: bool


@dataclass(frozen=True, kw_only=True)
class CoordinatorStatus:
    """The coordinator or leader of a finding's partition. ``is_``: right, wrong, …"""

    broker: int | None
    is_: str
    text: str


@dataclass(frozen=True, kw_only=True)
class InternalRecord:
    """The decoded record of a finding, in a topic that brokers or their tools keep.

    ``type`` and ``key``: None if the key cannot be decoded; ``note`` has the reason. Only audits set the other fields:
    ``consumers``: where the group starts with each coordinator; ``commit``: a command that commits the right offset.
    """

    topic_kind: str
    text: str
    type: str | None = None
    key: Mapping[str, Any] | None = None
    note: str | None = None
    states: tuple[ServedState, ...] | None = None
    coordinator: CoordinatorStatus | None = None
    consumers: str | None = None
    commit: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReplicaGroup:
    """The replicas that serve the same state of a disputed key."""

    brokers: tuple[int, ...]
    serves: str


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One entry of ``findings``; the schema describes the fields. Only audits set the fields from ``decided_by`` on."""

    anomaly: str
    candidates: tuple[str, ...] = ()
    broker: int
    topic: str
    partition: int
    offset: int
    key: bytes | None
    record: InternalRecord | None = None
    producer_id: int | None
    effect: str
    explanation: str
    witness: Mapping[str, Any]
    decided: bool = True
    consequence: str | None = None
    impact: str | None = None
    cause: str | None = None
    decided_by: tuple[str, ...] | None = None
    assumptions: tuple[str, ...] | None = None
    right: tuple[int, ...] | None = None
    disagree: tuple[ReplicaGroup, ...] | None = None
    means: str | None = None
    do: str | None = None
    commands: tuple[str, ...] | None = None

    place = PlaceOf()

    @property
    def names(self) -> tuple[str, ...]:
        """The anomaly, and the other names that the evidence does not exclude."""
        return tuple(dict.fromkeys((self.anomaly, *self.candidates)))

    @property
    def where(self) -> str:
        """The place in one phrase, which names a broker only if the finding is decided."""
        broker = f"broker {self.broker}, " if self.decided else ""
        return f"{broker}{self.topic}-{self.partition}, offset {self.offset}"

    def __str__(self) -> str:
        others = [name for name in self.candidates if name != self.anomaly]
        names = f"{self.anomaly} (or {' or '.join(others)})" if others else self.anomaly
        return f"{names}: {self.where}: {self.explanation} [{self.effect}]"


def finding_of(row: CheckerRow) -> Finding:
    """Return the finding of a checker's row.

    The key of a topic that brokers or their tools keep is decoded: ``record``, and its text in the explanation.
    """
    key, explanation = None if row["key"] is None else bytes(row["key"]), row["explanation"]
    record = None
    if (about := subject(row["topic"], key)) is not None:
        record = InternalRecord(topic_kind=about.kind, text=about.text, note=about.note or None)
        if about.key is not None:
            record = replace(record, type=about.key.type, key=about.key.fields)
            if key is not None:
                explanation = explanation.replace(in_sentence(key), f'"{about.text}"')
    names = ("anomaly", "broker", "topic", "partition", "offset", "producer_id", "effect")
    facts = {name: row[name] for name in names}
    candidates, witness = tuple(row["candidates"]), json.loads(row["witness"])
    return Finding(**facts, candidates=candidates, key=key, record=record, explanation=explanation, witness=witness)


def place_of(item: Finding | CheckerRow) -> Place:
    """Return the partition of a finding or of a checker's row."""
    return item.place if isinstance(item, Finding) else (item["topic"], item["partition"])


def by_place(items: Iterable[T]) -> dict[Place, list[T]]:
    """Group findings, or checkers' rows, by partition."""
    places: dict[Place, list[T]] = {}
    for item in items:
        places.setdefault(place_of(item), []).append(item)
    return places


def name_of(place: Place) -> str:
    """Return the name of a partition's folders, which Kafka prints too."""
    return f"{place[0]}-{place[1]}"


def brokers_text(numbers: Iterable[int]) -> str:
    """Return "broker 1" or "brokers 1, 2" for a sentence."""
    names = [str(number) for number in numbers]
    return f"broker{'s' if len(names) > 1 else ''} {', '.join(names)}"


def finding_about(
    anomaly: str, place: Place, brokers: Sequence[int], witness: Mapping[str, Any], **facts: Any
) -> Finding:
    """Return a finding about Kafka itself, which no comparison of replicas shows; on the first of these brokers."""
    replica: dict[str, Any] = {"broker": brokers[0], "topic": place[0], "partition": place[1]}
    witness = {**witness, "brokers": list(brokers)}
    return Finding(anomaly=anomaly, **replica, key=None, producer_id=None, witness=witness, **facts)
