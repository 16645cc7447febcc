"""What each replica of ``__consumer_offsets`` would have its broker answer, and what the coordinator of now answers.

A broker that becomes the coordinator replays its own replica (`harness.models.world.groups`): so every replica is a
view, and a wrong one does harm as soon as its broker coordinates.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS, decode_offset_key, internal_topic
from harness.broker_files.segments.batches import iter_batches, iter_records, marker
from harness.broker_files.segments.folder import live_segments
from harness.broker_files.segments.records import MARKERS
from harness.kafka_api.connection import Connection
from harness.kafka_api.error_names import UNSTABLE_OFFSET
from harness.kafka_api.groups import fetch_offsets
from harness.models.world.groups import Commit, End, Offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from harness.kafka_api.address import Address
    from harness.kafka_api.messages import TopicPartition
    from harness.soak.evidence.group_log import GroupKey

ANSWERS: Final = "group-offsets.json"
"""In the folder of a round: what coordinators answered in the end."""


@dataclass(frozen=True)
class GroupView:
    """Offsets by group and partition. ``pending``: those that no marker has ended. ``source``: whose view, in words.

    ``refusal``: why the broker cannot load the partition as its coordinator, in words of its own.
    """

    broker: int
    partition: int
    source: str
    committed: Mapping[GroupKey, int] = field(default_factory=dict)
    pending: Mapping[GroupKey, Collection[int]] = field(default_factory=dict)
    refusal: str = ""


def replayed(folder: Path, broker: int, *, drops_pending: bool) -> GroupView:
    """Return what a coordinator reads from a replica. ``drops_pending``: see `Offsets.apply`."""
    offsets, values, keys = Offsets(), {}, {}
    for at, key, value, entry in _entries(folder):
        if key is not None:
            keys[_name(key)] = key
            if value is not None:
                values[at] = value
        offsets.apply(entry, drops_pending=drops_pending)
    pending: dict[GroupKey, set[int]] = {}
    for some in offsets.pending.values():
        for name, at in some.items():
            pending.setdefault(keys[name], set()).add(values[at])
    committed = {keys[name]: values[at] for name, at in offsets.committed.items()}
    return GroupView(broker, int(folder.name.rpartition("-")[2]), "its replica", committed, pending)


def _entries(folder: Path) -> Iterator[tuple[int, GroupKey | None, int | None, Commit | End]]:
    decoders = internal_topic(CONSUMER_OFFSETS)
    assert decoders is not None  # noqa: S101  (one of Kafka's own topics)
    for segment in live_segments(folder).segments:
        for batch in iter_batches((folder / segment.log).read_bytes(), source=segment.log):
            control = marker(batch, source=segment.log)
            if control is not None and control.type in MARKERS:
                yield batch.last_offset, None, None, End(batch.producer_id, control.type)
            if batch.is_control:
                continue
            producer = batch.producer_id if batch.is_transactional else None
            for record in iter_records(batch, source=segment.log):
                decoded = decode_offset_key(record.key or b"")
                if decoded is None:
                    continue  # of a member, or of the group itself
                key = (decoded.group, (decoded.topic, decoded.partition))
                value = None
                if record.value is not None:
                    value = int(decoders.value(decoders.key(record.key or b""), record.value)["offset"])
                yield record.offset, key, value, Commit(record.offset, _name(key), value is None, producer)


def _name(key: GroupKey) -> str:
    return json.dumps(key)


def ask(coordinator: Address, groups: Mapping[str, Collection[TopicPartition]]) -> list[dict[str, Any]]:
    """Return what the coordinator answers about groups, as `ANSWERS` has it. Raises OSError."""
    found = []
    with closing(Connection(coordinator)) as connection:
        for group, partitions in groups.items():
            for topic, partition in partitions:
                answer = connection.ask(fetch_offsets(group, [(topic, partition)], require_stable=True))
                offset = answer.offsets.get((topic, partition))
                found.append(
                    {"group": group, "topic": topic, "partition": partition, "offset": offset, "error": answer.error}
                )
    return found


def answered(content: Mapping[str, Any]) -> GroupView:
    """Return the view of a coordinator by what it answered: ``broker``, ``partition``, ``answers`` and ``refusal``."""
    committed: dict[GroupKey, int] = {}
    pending: dict[GroupKey, tuple[int, ...]] = {}
    for one in content["answers"]:
        key = (one["group"], (one["topic"], one["partition"]))
        if one["error"] == UNSTABLE_OFFSET:
            pending[key] = ()
        elif one["offset"] is not None:
            committed[key] = one["offset"]
    refusal = content.get("refusal", "")
    return GroupView(
        content["broker"], content["partition"], "its answer as the coordinator", committed, pending, refusal
    )


def errors_of(answers: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the errors in answers that say nothing of offsets: another broker coordinates, or it is not ready."""
    return {one["error"] for one in answers if one["error"] not in {None, UNSTABLE_OFFSET}}
