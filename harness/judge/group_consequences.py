"""What a group was seen to suffer from a broker that coordinates it, compared with a broker that never was away.

From the operations ``fetch offsets`` and ``consume`` of the history, see `workloads.group_consumers`. Nothing is
concluded from logs: a sentence says what a coordinator answered, or what a consumer was delivered.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harness.broker_files.internal_topics.phrases import offsets_text
from harness.kafka_api.error_names import NO_COORDINATOR_YET
from harness.run_folder.history import CONSUME, FETCH_OFFSETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from harness.judge.finding import Place

Event: TypeAlias = "Mapping[str, Any]"
FIELDS: Final = (f'"f": "{FETCH_OFFSETS}"', f'"f": "{CONSUME}"')


@dataclass
class _View:
    """What one broker gave a group as its coordinator: offsets by input partition, by protocol the first offsets."""

    group: str = ""
    topic: str = ""
    offsets: Mapping[str, int] = field(default_factory=dict)
    answer: str | None = None
    first: dict[str, Mapping[str, int]] = field(default_factory=dict)
    within_s: float = 0.0


def read_group_events(path: Path) -> list[Event]:
    """Return the completed operations about groups of a history. Its lines were checked when they were judged."""
    with path.open() as lines:
        events = [json.loads(line) for line in lines if any(field in line for field in FIELDS)]
    return [event for event in events if event["type"] == "ok"]


def group_consequences(events: Iterable[Event], absent: Sequence[int]) -> dict[tuple[Place, int], list[str]]:
    """Return sentences by partition of ``__consumer_offsets`` and broker that was away; none where nothing differs."""
    views: dict[Place, dict[int, _View]] = {}
    for event in events:
        by_broker = views.setdefault((event["topic"], event["partition"]), {})
        view = by_broker.setdefault(event["broker"], _View(event["group"], event["input"]))
        if event["f"] == CONSUME:
            view.first[event["protocol"]], view.within_s = event["first"], event["within_s"]
        elif event["stable"]:
            view.offsets, view.answer = event["offsets"], event.get("answer")
    found = {}
    for place, by_broker in views.items():
        others = [broker for broker in by_broker if broker not in absent]
        for broker in (broker for broker in by_broker if broker in absent and others):
            if sentences := _sentences(by_broker[broker], broker, by_broker[others[0]], others[0]):
                found[place, broker] = sentences
    return found


def _sentences(here: _View, broker: int, there: _View, other: int) -> list[str]:
    does = "leads the partition of" if here.answer in NO_COORDINATOR_YET else "coordinates"
    who, whose = f"while broker {broker} {does} group {here.group}", f"with broker {other}"
    by_sentence: dict[str, list[str]] = {}
    for protocol, right in there.first.items():
        for sentence in _consumed(here, here.first.get(protocol, {}), right, whose):
            by_sentence.setdefault(sentence, []).append(protocol)
    consumed = [f"{who}, a consumer ({', '.join(names)} protocol) {text}" for text, names in by_sentence.items()]
    back = {number: offset for number, offset in here.offsets.items() if number not in there.offsets}
    return consumed + [
        f"{who}, offset {offset} of {here.topic}-{number} is committed, which {whose} is deleted"
        for number, offset in back.items()
    ]


def _consumed(here: _View, first: Mapping[str, int], right: Mapping[str, int], whose: str) -> list[str]:
    if right and not first:
        starts = ", ".join(f"{here.topic}-{number} at offset {offset}" for number, offset in right.items())
        answer = f" (the broker answers {here.answer})" if here.answer else ""
        return [f"got no record at all within {here.within_s:g} s{answer}; {whose} it begins {starts}"]
    return [
        f"{_skipped(first[number], offset)} of {here.topic}-{number}; {whose} it begins at offset {offset}"
        for number, offset in right.items()
        if first.get(number, offset) != offset
    ]


def _skipped(here: int, there: int) -> str:
    return f"{'skips' if here > there else 'repeats'} {offsets_text(*sorted((here, there)))}"
