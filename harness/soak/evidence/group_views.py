"""The offsets that each broker would answer from its replica of ``__consumer_offsets``, and the coordinator's answers.

A broker that becomes the coordinator replays its replica (`harness.models.world.groups`): so every replica is a view,
and a wrong view does harm as soon as its broker coordinates.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS, decode_offset_key, internal_topic
from harness.broker_files.segments.batches import iter_records, marker
from harness.broker_files.segments.records import MARKERS
from harness.kafka_api.connection import Connection
from harness.kafka_api.error_names import UNSTABLE_OFFSET
from harness.kafka_api.groups import fetch_offsets
from harness.models.world.groups import Commit, End, Offsets
from harness.soak.evidence.replica_log import batches_in

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from harness.kafka_api.address import Address
    from harness.kafka_api.messages import TopicPartition
    from harness.soak.evidence.group_log import GroupKey

ANSWERS: Final = "group-offsets.json"
"""In the folder of a round: the coordinator's answers in the end."""


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


def _entries(folder: Path) -> Iterator[tuple[int, GroupKey | None, int | None, Commit | End]]:
    decoders = internal_topic(CONSUMER_OFFSETS)
    assert decoders is not None  # noqa: S101  (one of Kafka's own topics)
    for batch in batches_in(folder):
        control = marker(batch, source=folder.name)
        if control is not None and control.type in MARKERS:
            yield batch.last_offset, None, None, End(batch.producer_id, control.type)
        producer = batch.producer_id if batch.is_transactional else None
        for record in () if batch.is_control else iter_records(batch, source=folder.name):
            decoded = decode_offset_key(record.key or b"")
            if decoded is not None:  # else of a member, or of the group itself
                key = (decoded.group, (decoded.topic, decoded.partition))
                value = None
                if record.value is not None:
                    value = int(decoders.value(decoders.key(record.key or b""), record.value)["offset"])
                yield record.offset, key, value, Commit(record.offset, json.dumps(key), value is None, producer)


def ask(coordinator: Address, groups: Mapping[str, Collection[TopicPartition]]) -> list[dict[str, Any]]:
    """Return the coordinator's answers about the offsets of groups, as `ANSWERS` has them. Raises OSError."""
    answers = []
    with closing(Connection(coordinator)) as connection:
        for group, partitions in groups.items():
            for topic, partition in partitions:
                answer = connection.ask(fetch_offsets(group, [(topic, partition)], require_stable=True))
                offset = answer.offsets.get((topic, partition))
                answers.append(
                    {"group": group, "topic": topic, "partition": partition, "offset": offset, "error": answer.error}
                )
    return answers


def answered(content: Mapping[str, Any]) -> GroupView:
    """Return the view of a coordinator by its answers: ``broker``, ``partition``, ``answers`` and ``refusal``."""
    keyed = [((answer["group"], (answer["topic"], answer["partition"])), answer) for answer in content["answers"]]
    return GroupView(
        content["broker"],
        content["partition"],
        "its answer as the coordinator",
        {key: a["offset"] for key, a in keyed if a["error"] != UNSTABLE_OFFSET and a["offset"] is not None},
        {key: () for key, a in keyed if a["error"] == UNSTABLE_OFFSET},
        content.get("refusal", ""),
    )


def errors_of(answers: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the errors in answers that give no offset: another broker coordinates, or it is not ready."""
    return {answer["error"] for answer in answers if answer["error"] not in {None, UNSTABLE_OFFSET}}
