"""Offsets of groups: by the history of clients, by each broker's replica, and by the answers of the coordinator.

Every operation of a round commits another offset (see `harness.soak.draw.workload`), so that an offset identifies the
operation that committed it. Operations of several clients overlap: an operation that began after another was answered
is later; of all others no client knows the order.

A broker that becomes the coordinator replays its replica of ``__consumer_offsets`` (`harness.models.world.groups`): so
every replica is a view, and a wrong view does harm as soon as its broker coordinates.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.broker_files.internal_topics.decode import CONSUMER_OFFSETS, decode_offset_key, internal_topic
from harness.broker_files.segments.batches import iter_records, marker
from harness.broker_files.segments.records import MARKERS
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.connection import Connection
from harness.kafka_api.error_names import UNSTABLE_OFFSET
from harness.kafka_api.groups import fetch_offsets
from harness.models.world.groups import Commit, Offsets, TransactionEnd
from harness.soak.evidence.client_log import (
    ABORTED,
    COMMITTED,
    FAIL,
    INVOKE,
    OK,
    OUTCOMES,
    RECREATE,
    UNKNOWN,
    transaction_of,
    transactions_of,
)
from harness.soak.evidence.replica_log import batches_in

ANSWERS: Final = "group-offsets.json"
"""In the folder of a round: the coordinator's answers in the end."""
SEND_OFFSET, COMMIT_OFFSET, DELETE_GROUP = "send offset", "commit offset", "delete group"
NEVER: Final = float("inf")

GroupKey = tuple[str, "TopicPartition"]
"""A group, and the partition whose offset it commits."""


@dataclass(frozen=True)
class OffsetChange:
    """An offset that is committed, or deleted where ``offset`` is None.

    ``began``, ``answered``: by the order of the history; `NEVER` where no answer says that it was done.
    ``ended``: when its transaction was acknowledged as ended; outside of transactions, as ``answered``.
    """

    offset: int | None
    began: float
    answered: float
    ended: float
    outcome: str
    in_transaction: bool = False

    @property
    def is_certain(self) -> bool:
        """True for a change that was certainly made, and is committed."""
        return self.outcome == COMMITTED and self.answered < NEVER

    def replaces(self, other: OffsetChange) -> bool:
        """Return whether this change is certain, and certainly later.

        A coordinator orders the offsets of transactions by when they were sent (``OffsetMetadataManager``). Only a
        deletion does not: the old coordinator deletes no pending offset (`harness.models.world.groups`).
        """
        return self.is_certain and self.began > (other.ended if self.offset is None else other.answered)


@dataclass(frozen=True)
class GroupLog:
    """Changes by group and partition."""

    changes: Mapping[GroupKey, Sequence[OffsetChange]] = field(default_factory=dict)

    def possible(self, key: GroupKey) -> dict[int | None, OffsetChange | None]:
        """Return the offsets that the group may have in the end, each with the change that makes it so.

        None stands for no offset: of a deletion, or where it is not certain that any was committed.
        """
        counting = [change for change in self.changes.get(key, ()) if change.outcome != ABORTED]
        offsets: dict[int | None, OffsetChange | None] = {
            change.offset: change for change in counting if not any(other.replaces(change) for other in counting)
        }
        if not any(change.is_certain and change.offset is not None for change in counting):
            offsets.setdefault(None, None)
        return offsets

    def change(self, key: GroupKey, offset: int | None) -> OffsetChange | None:
        """Return the change that committed this offset; None where no client did."""
        changes = () if offset is None else self.changes.get(key, ())
        return next((change for change in changes if change.offset == offset), None)


def group_log_of(events: Sequence[Mapping[str, Any]]) -> GroupLog:
    """Return the changes of offsets in a history."""
    outcomes = transactions_of(events)
    answers = {event["op"]: (event["type"], at) for at, event in enumerate(events) if event["type"] != INVOKE}
    ends = {
        transaction_of(event): float(at)
        for at, event in enumerate(events)
        if event["f"] in OUTCOMES and event["type"] == OK
    }
    changes: dict[GroupKey, list[OffsetChange]] = defaultdict(list)
    deletions = []
    for at, event in enumerate(events):
        if event["type"] != INVOKE:
            continue
        kind, answered_at = answers.get(event["op"], ("", 0))
        answered = float(answered_at) if kind == OK else NEVER
        if event["f"] in {SEND_OFFSET, COMMIT_OFFSET}:
            topic, _, partition = event["input"].rpartition("-")
            ended, outcome = answered, {OK: COMMITTED, FAIL: ABORTED}.get(kind, UNKNOWN)
            in_transaction = event["f"] == SEND_OFFSET
            if in_transaction:
                ended = ends.get(transaction_of(event), NEVER)
                outcome = outcomes.get(transaction_of(event), UNKNOWN)
            changes[event["group"], (topic, int(partition))].append(
                OffsetChange(event["committed"], float(at), answered, ended, outcome, in_transaction)
            )
        elif event["f"] in {DELETE_GROUP, RECREATE}:
            # Coordinators hear of a topic's deletion some time later, and its offsets may be committed again.
            outcome = COMMITTED if kind == OK and event["f"] == DELETE_GROUP else UNKNOWN
            deletions.append((event, OffsetChange(None, float(at), answered, answered, outcome)))
    for event, deletion in deletions:
        for (group, tp), of_key in changes.items():
            if group == event.get("group") or (event["f"] == RECREATE and tp[0] == event["topic"]):
                of_key.append(deletion)
    return GroupLog(changes)


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


def ask(coordinator: Address, groups: Mapping[str, Collection[TopicPartition]]) -> list[dict[str, Any]]:
    """Return the coordinator's answers about the offsets of groups, in the form of `ANSWERS`. Raises OSError."""
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
