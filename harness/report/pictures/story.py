"""The timeline of a run: the operations of clients and the nemesis, and the state of every replica."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.broker_files.internal_topics.phrases import OFFSET_COMMIT, subject
from harness.errors import UsageError, raised_as
from harness.escape import escape
from harness.judge.finding import Place
from harness.run_folder.history import key_of, read_lines
from harness.run_folder.store import RunFolder

MARKERS, TOMBSTONE, EMPTY = ("commit", "abort"), "tombstone", "empty"
"""Kinds of batches, as `harness.cluster.observe` calls them."""
_DONE = {"begin": "begins", "commit": "commits", "abort": "aborts"}


@dataclass(frozen=True)
class StoryEvent:
    """An operation of a client. ``names_transaction``: the text names it, as those of a begin or an end do."""

    at_s: float
    process: str
    text: str
    transaction: int | None = None
    names_transaction: bool = False


@dataclass(frozen=True)
class Outage:
    """The time from the beginning of a fault until its brokers were back; None: they did not come back."""

    from_s: float
    to_s: float | None
    brokers: tuple[int, ...] = ()


@dataclass
class ReplicaTimeline:
    """The offsets of a replica at each observation, in order, and ``removed``: (seconds, offset, kind)."""

    at_s: list[float] = field(default_factory=list)
    log_end: list[int] = field(default_factory=list)
    high_watermark: list[int] = field(default_factory=list)
    last_stable_offset: list[int] = field(default_factory=list)
    removed: list[tuple[float, int, str]] = field(default_factory=list)

    def add(self, at_s: float, log_end: int, high_watermark: int, last_stable_offset: int) -> None:
        """Add an observation that is not earlier than the previous one."""
        self.at_s.append(at_s)
        self.log_end.append(log_end)
        self.high_watermark.append(high_watermark)
        self.last_stable_offset.append(last_stable_offset)

    def log_end_at(self, at_s: float) -> int:
        """Return the last log end offset that was observed by a time; 0 before the first observation."""
        index = bisect_right(self.at_s, at_s)
        return self.log_end[index - 1] if index else 0


@dataclass(frozen=True)
class ObservedEntry:
    """A record or marker that any replica ever had at an offset; ``background``: it does not belong to a payload."""

    kind: str
    producer_id: int
    background: bool


@dataclass(frozen=True)
class Story:
    """A run, by topic and partition; ``replicas`` and ``entries`` then by broker or offset. ``events``: of payloads."""

    events: Mapping[Place, Sequence[StoryEvent]]
    outages: Sequence[Outage]
    replicas: Mapping[Place, Mapping[int, ReplicaTimeline]]
    entries: Mapping[Place, Mapping[int, ObservedEntry]]
    ends_s: float

    def diverges_s(self, place: Place) -> float | None:
        """Return when a record that an absent replica lacks was first removed from all others; None if none was.

        From then on the absent replica cannot copy that tombstone or marker from any broker.
        """
        moments, entries, replicas = [], self.entries.get(place, {}), self.replicas.get(place, {})
        for outage in self.outages:
            others = [
                {offset: at_s for at_s, offset, kind in reversed(replica.removed) if kind in (*MARKERS, TOMBSTONE)}
                for broker, replica in replicas.items()
                if broker not in outage.brokers
            ]
            ends = [it.log_end_at(outage.from_s) for broker, it in replicas.items() if broker in outage.brokers]
            for offset in set[int]().union(*others[:1]).intersection(*others):
                at_s = max(removed[offset] for removed in others)
                is_inside = outage.from_s <= at_s <= (self.ends_s if outage.to_s is None else outage.to_s)
                if is_inside and offset >= min(ends, default=0) and not entries[offset].background:
                    moments.append(at_s)
        return min(moments, default=None)

    def removals(self, place: Place) -> dict[tuple[int, int], str]:
        """Return by broker and offset: the kind of record and the time of its removal, as text."""
        # An emptied batch is removed later: the first removal of an offset is the record's, so it is set last.
        return {
            (broker, offset): f"{kind}, removed at {at_s:.1f} s"
            for broker, replica in self.replicas.get(place, {}).items()
            for at_s, offset, kind in reversed(replica.removed)
        }


def read_story(folder: RunFolder) -> Story:
    """Read history and observations. Raises `UsageError` for a damaged folder."""
    history = read_lines(folder.history_path)
    observed = read_lines(folder.observations_path) if folder.observations_path.is_file() else []
    times = [line["time_ms"] for line in (*history, *observed)]
    begins_ms = min(times, default=0)

    def since_s(line: Mapping[str, Any]) -> float:
        return float(line["time_ms"] - begins_ms) / 1000

    replicas: dict[Place, dict[int, ReplicaTimeline]] = defaultdict(lambda: defaultdict(ReplicaTimeline))
    for line in observed:
        replica = replicas[line["topic"], line["partition"]][line["broker"]]
        replica.add(since_s(line), line["log_end"], line["high_watermark"], line["last_stable_offset"])
        replica.removed += [(since_s(line), removal["offset"], removal["kind"]) for removal in line["removed"]]
    damaged = f"the run folder is damaged: {folder.history_path}"
    with raised_as(UsageError, f"{damaged}: a record's key is invalid", ValueError):
        events = _events(history, since_s)
    nemesis = [line for line in history if line["part"] == "nemesis"]
    back = [line for line in nemesis if (line["f"], line["type"]) == ("come back", "ok")]
    left = [line for line in nemesis if (line["f"], line["type"]) == ("leave", "invoke")]
    back_s = max(map(since_s, back), default=None)
    outages = [Outage(since_s(line), back_s, tuple(line.get("brokers", ()))) for line in left]
    return Story(events, outages, replicas, _entries(history, observed), (max(times, default=0) - begins_ms) / 1000)


def _events(
    history: Sequence[Mapping[str, Any]], since_s: Callable[[Mapping[str, Any]], float]
) -> dict[Place, list[StoryEvent]]:
    """Return the operations of payloads. A begin or an end names no partition: it is shown where its client wrote."""
    shown = {"produce", *_DONE}
    done = [line for line in history if line["part"] == "payload" and line["type"] == "ok" and line["f"] in shown]
    written: dict[str, set[Place]] = defaultdict(set)
    for line in done:
        if line["f"] == "produce":
            written[line["process"]].add((line["topic"], line["partition"]))
    events: dict[Place, list[StoryEvent]] = defaultdict(list)
    for line in done:
        event = StoryEvent(since_s(line), line["process"], _event_text(line), line.get("txn"), line["f"] in _DONE)
        places = {(line["topic"], line["partition"])} if line["f"] == "produce" else written[line["process"]]
        for place in places:
            events[place].append(event)
    return events


def _entries(
    history: Sequence[Mapping[str, Any]], observed: Sequence[Mapping[str, Any]]
) -> dict[Place, dict[int, ObservedEntry]]:
    """Return records and markers by offset; the history has the offsets of payloads."""
    payload = (line for line in history if line["part"] == "payload" and line.get("offset") is not None)
    written = {(line["topic"], line["partition"], line["offset"]) for line in payload}
    appeared = [(line["topic"], line["partition"], entry) for line in observed for entry in line["appeared"]]
    producers = {
        (topic, entry["producer_id"])
        for topic, partition, entry in appeared
        if (topic, partition, entry["offset"]) in written and entry["producer_id"] >= 0
    }
    entries: dict[Place, dict[int, ObservedEntry]] = defaultdict(dict)
    for topic, partition, entry in appeared:
        offset, kind, producer_id = entry["offset"], entry["kind"], entry["producer_id"]
        is_payload = (topic, partition, offset) in written or (kind in MARKERS and (topic, producer_id) in producers)
        if kind != EMPTY:
            entries[topic, partition].setdefault(offset, ObservedEntry(kind, producer_id, not is_payload))
    return entries


def _event_text(line: Mapping[str, Any]) -> str:
    if line["f"] in _DONE:
        return f"{_DONE[line['f']]} transaction {line['txn']}"
    at = f" at {line['offset']}" if line.get("offset") is not None else ""
    deletes, key = line.get("tombstone", False), key_of(line)
    about = None if key is None else subject(line["topic"], key)
    if about is not None and about.key is not None and about.key.type == OFFSET_COMMIT:
        # The topic's name, which may be long, is with the record on the page.
        committed = "deletes the offset" if deletes else f"commits offset {escape(line['value'])}"
        return f"{committed} of partition {about.fields['partition']}{at}"
    name = "a record without a key" if key is None else escape(key) if about is None else about.text
    return f"{'deletes' if deletes else 'writes'} {name}{at}"
