"""The timeline of a run: the operations of clients and the nemesis, and the state of every replica."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.broker_files.internal_topics.phrases import OFFSET_COMMIT, subject
from harness.errors import UsageError
from harness.escape import escape
from harness.report.pictures.replica_offsets import ReplicaOffsets
from harness.run_folder.history import key_of, read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.run_folder.store import RunFolder

MARKERS, EMPTY = ("commit", "abort"), "empty"
"""Kinds of batches, as `harness.cluster.observe` calls them."""
_DONE = {"begin": "begins", "commit": "commits", "abort": "aborts"}


@dataclass(frozen=True)
class StoryEvent:
    """An operation of a client: seconds since the first operation, the process, a text, and its transaction.

    ``names_transaction``: the text does, as that of a transaction's begin or end.
    """

    at_s: float
    process: str
    what: str
    transaction: int | None = None
    names_transaction: bool = False


@dataclass(frozen=True)
class Away:
    """When brokers were away: from the fault's begin until they were back; None: to the end."""

    brokers: tuple[int, ...]
    from_s: float
    to_s: float | None


@dataclass
class Lane:
    """The observations of one replica. ``removed``: (seconds, offset, kind)."""

    offsets: ReplicaOffsets = field(default_factory=ReplicaOffsets)
    removed: list[tuple[float, int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Seen:
    """What was ever seen at an offset, on any replica; ``background``: it does not belong to the payload."""

    kind: str
    producer_id: int
    background: bool


@dataclass(frozen=True)
class Story:
    """All by topic and partition; ``lanes`` and ``seen`` then by broker or offset. ``events``: of payloads.

    ``ends_s``: the time of the last event.
    """

    events: Mapping[tuple[str, int], Sequence[StoryEvent]]
    away: Sequence[Away]
    lanes: Mapping[tuple[str, int], Mapping[int, Lane]]
    seen: Mapping[tuple[str, int], Mapping[int, Seen]]
    ends_s: float

    def removals(self, topic: str, partition: int) -> dict[tuple[int, int], str]:
        """Return by broker and offset: the kind of record and the time of its removal, as text."""
        texts: dict[tuple[int, int], str] = {}
        for broker, lane in self.lanes.get((topic, partition), {}).items():
            for at_s, offset, kind in lane.removed:
                # An emptied batch is removed later: keep the first.
                texts.setdefault((broker, offset), f"{kind}, removed at {at_s:.1f} s")
        return texts


def read_story(folder: RunFolder) -> Story:
    """Read history and observations. Raises `UsageError` for a damaged folder."""
    history = read_lines(folder.history_path)
    seen = read_lines(folder.observations_path) if folder.observations_path.exists() else []
    times = [line["time_ms"] for line in (*history, *seen)]
    begins_ms = min(times, default=0)

    def since_s(line: Mapping[str, Any]) -> float:
        return float(line["time_ms"] - begins_ms) / 1000

    lanes: dict[tuple[str, int], dict[int, Lane]] = defaultdict(lambda: defaultdict(Lane))
    for line in seen:
        lane = lanes[line["topic"], line["partition"]][line["broker"]]
        lane.offsets.add(since_s(line), line["log_end"], line["high_watermark"], line["last_stable_offset"])
        lane.removed += [(since_s(line), one["offset"], one["kind"]) for one in line["removed"]]
    try:
        events = _events(history, since_s)
    except ValueError as error:
        problem = f"{folder.history_path}: a record's key is not valid: {error}"
        raise UsageError(f"the run folder is damaged: {problem}") from error
    return Story(
        events,
        _away(history, since_s),
        lanes,
        _seen(history, seen),
        (max(times, default=0) - begins_ms) / 1000,
    )


def _events(
    history: Sequence[Mapping[str, Any]], since_s: Callable[[Mapping[str, Any]], float]
) -> dict[tuple[str, int], list[StoryEvent]]:
    """Return what payloads did. Where a transaction begins and ends, its client's history names no partition."""
    shown = {"produce", *_DONE}
    done = [line for line in history if line["part"] == "payload" and line["type"] == "ok" and line["f"] in shown]
    written: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for line in done:
        if line["f"] == "produce":
            written[line["process"]].add((line["topic"], line["partition"]))
    events: dict[tuple[str, int], list[StoryEvent]] = defaultdict(list)
    for line in done:
        event = StoryEvent(since_s(line), line["process"], _event_text(line), line.get("txn"), line["f"] in _DONE)
        places = {(line["topic"], line["partition"])} if line["f"] == "produce" else written[line["process"]]
        for place in places:
            events[place].append(event)
    return events


def _seen(
    history: Sequence[Mapping[str, Any]], observed: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, int], dict[int, Seen]]:
    """Return records and markers by offset; clients' own offsets distinguish the payloads' from the background's."""
    written = {
        (line["topic"], line["partition"], line["offset"])
        for line in history
        if line["part"] == "payload" and line.get("offset") is not None
    }
    appeared = [(line["topic"], line["partition"], one) for line in observed for one in line["appeared"]]
    producers = {
        (topic, one["producer_id"])
        for topic, partition, one in appeared
        if (topic, partition, one["offset"]) in written and one["producer_id"] >= 0
    }
    seen_by_offset: dict[tuple[str, int], dict[int, Seen]] = defaultdict(dict)
    for topic, partition, one in appeared:
        of_payload = (topic, partition, one["offset"]) in written or (
            one["kind"] in MARKERS and (topic, one["producer_id"]) in producers
        )
        if one["kind"] != EMPTY:
            seen_by_offset[topic, partition].setdefault(
                one["offset"], Seen(one["kind"], one["producer_id"], not of_payload)
            )
    return seen_by_offset


def _away(history: Sequence[Mapping[str, Any]], since_s: Callable[[Mapping[str, Any]], float]) -> list[Away]:
    acts = [line for line in history if line["part"] == "nemesis"]
    left = [line for line in acts if (line["f"], line["type"]) == ("leave", "invoke")]
    back = [since_s(line) for line in acts if line["f"] == "come back" and line["type"] == "ok"]
    return [Away(tuple(line["brokers"]), since_s(line), max(back, default=None)) for line in left]


def _event_text(line: Mapping[str, Any]) -> str:
    if line["f"] in _DONE:
        return f"{_DONE[line['f']]} transaction {line['txn']}"
    at = f" at {line['offset']}" if line.get("offset") is not None else ""
    return f"{_what(line)}{at}"


def _what(line: Mapping[str, Any]) -> str:
    deletes, key = line.get("tombstone", False), key_of(line)
    about = None if key is None else subject(line["topic"], key)
    if about is not None and about.key is not None and about.key.type == OFFSET_COMMIT:
        # The topic's name, which may be long, is with the record on the page.
        partition = f"of partition {about.fields['partition']}"
        return f"deletes the offset {partition}" if deletes else f"commits offset {escape(line['value'])} {partition}"
    name = "a record without a key" if key is None else escape(key) if about is None else about.text
    return f"{'deletes' if deletes else 'writes'} {name}"
