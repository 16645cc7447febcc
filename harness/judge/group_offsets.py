"""The committed offsets in a broker's replica of ``__consumer_offsets``, compared with the offsets that it answers.

A broker that becomes the leader of the partition loads its own replica (``CoordinatorLoaderImpl``). If the replica
stayed in sync, it is complete, and the broker must answer with the offsets in it.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS, decode_offset_key, internal_topic
from harness.broker_files.segments.batches import iter_records, marker
from harness.broker_files.segments.folder import batches_in
from harness.broker_files.segments.records import MARKERS
from harness.judge.finding import Finding, finding_about
from harness.kafka_api import TopicPartition
from harness.models.world.groups import Commit, Offsets, TransactionEnd
from harness.run_folder.history import FETCH_OFFSETS
from harness.run_folder.store import AFTER_REJOIN, BROKERS, RunFolder

WRONG_OFFSET: Final = "wrong-offset"

GroupKey = tuple[str, TopicPartition]
"""A group, and the partition whose offset it commits."""


@dataclass(frozen=True)
class GroupView:
    """Offsets by group and partition. ``pending``: offsets that no marker has ended. ``source``: whose view, in words.

    ``refusal``: why the broker cannot load the partition as its coordinator, in the broker's words.
    """

    broker: int
    partition: int
    source: str
    committed: Mapping[GroupKey, int] = field(default_factory=dict)
    pending: Mapping[GroupKey, Collection[int]] = field(default_factory=dict)
    refusal: str = ""


def replayed(folder: Path, broker: int, *, drops_pending: bool) -> GroupView:
    """Return the offsets that a coordinator reads from a replica. ``drops_pending``: see `Offsets.apply`."""
    offsets, values, keys = Offsets(), {}, {}
    for at, key, value, entry in _entries(folder):
        if key is not None:
            keys[json.dumps(key)] = key
            if value is not None:
                values[at] = value
        offsets.apply(entry, drops_pending=drops_pending)
    pending: dict[GroupKey, set[int]] = defaultdict(set)
    for by_name in offsets.pending.values():
        for name, at in by_name.items():
            pending[keys[name]].add(values[at])
    committed = {keys[name]: values[at] for name, at in offsets.committed.items()}
    return GroupView(broker, int(folder.name.rpartition("-")[2]), "its replica", committed, pending)


def _entries(folder: Path) -> Iterator[tuple[int, GroupKey | None, int | None, Commit | TransactionEnd]]:
    decoders = internal_topic(CONSUMER_OFFSETS)
    assert decoders is not None  # noqa: S101  (one of Kafka's own topics)
    for batch in batches_in(folder):
        control = marker(batch, source=folder.name)
        if control is not None and control.type in MARKERS:
            yield batch.last_offset, None, None, TransactionEnd(batch.producer_id, control.type)
        producer = batch.producer_id if batch.is_transactional else None
        for record in () if batch.is_control else iter_records(batch, source=folder.name):
            decoded = decode_offset_key(record.key or b"")
            if decoded is not None:  # else of a member, or of the group itself
                key = (decoded.group, (decoded.topic, decoded.partition))
                value = None
                if record.value is not None:
                    value = int(decoders.value(decoders.key(record.key or b""), record.value)["offset"])
                yield record.offset, key, value, Commit(record.offset, json.dumps(key), value is None, producer)


def wrong_offsets(events: Iterable[Mapping[str, Any]], absent: Sequence[int], folder: RunFolder) -> Iterator[Finding]:
    """Yield ``wrong-offset`` for each coordinator that stayed and answers other offsets than its replica has.

    ``events``: completed operations about groups (`workloads.group_consumers`). Replicas were copied before them, when
    no client wrote any more. Either rule about tombstones and pending offsets may apply (`Offsets.apply`).
    """
    for event in events:
        broker, topic, number = event["broker"], event["topic"], event["partition"]
        copy = folder.path / BROKERS / str(broker) / AFTER_REJOIN / f"{topic}-{number}"
        if event["f"] != FETCH_OFFSETS or event["stable"] or broker in absent or not folder.has(copy):
            continue
        group, answered = event["group"], event["offsets"]
        stored = _stored(copy, group, drops_pending=True)
        if answered != stored and answered != _stored(copy, group, drops_pending=False):
            here, there = _in_words(answered), _in_words(stored)
            text = f"broker {broker} answers as offsets of group {group}: {here}; its replica has: {there}"
            facts = {"offset": 0, "effect": "visible", "explanation": text}
            yield finding_about(
                WRONG_OFFSET, (topic, number), [broker], {"answered": answered, "stored": stored}, **facts
            )


def _stored(replica: Path, group: str, *, drops_pending: bool) -> dict[str, int]:
    """Return a group's committed offsets in a replica by partition of its input."""
    view = replayed(replica, 0, drops_pending=drops_pending)
    return {str(number): offset for (name, (_, number)), offset in view.committed.items() if name == group}


def _in_words(offsets: Mapping[str, int]) -> str:
    return ", ".join(f"{offset} in partition {number}" for number, offset in sorted(offsets.items())) or "none"
