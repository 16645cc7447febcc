"""Phrases for the subject of an internal topic's record, and for the state in its value.

Every name that comes from a record is escaped here. As Connect's values may contain secrets, only sizes and names of
states are shown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.broker_files.internal_topics.decode import CONNECTOR, SOURCE_OFFSET, TASK, DecodedKey, internal_topic
from harness.broker_files.internal_topics.transaction_state import STATES
from harness.escape import escape, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OFFSET_COMMIT: Final = "OffsetCommit"
TRANSACTION_LOG: Final = "TransactionLog"
CLASSIC_GROUP: Final = "GroupMetadata"

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a record. ``kind``: of its topic. ``text``: a phrase.

    ``key``: None if it cannot be decoded; ``note`` has the reason.
    """

    kind: str
    text: str
    key: DecodedKey | None = None
    note: str = ""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the key; empty if it cannot be decoded."""
        return {} if self.key is None else self.key.fields

    def as_json(self) -> Fields:
        """Return the form of ``verdict.json``."""
        if self.key is None:
            return {"topic_kind": self.kind, "text": self.text, "note": self.note}
        return {"topic_kind": self.kind, "text": self.text, "type": self.key.type, "key": dict(self.key.fields)}


@dataclass(frozen=True, slots=True)
class _Words:
    """Phrases for a type of record: ``subject`` has fields of the key in braces, ``absent`` is for a tombstone."""

    subject: str
    state: Callable[[Fields], str]
    absent: str = "no record"


def subject(topic: str, key: bytes | None) -> Subject | None:
    """Return the subject of a record; None for a topic of applications."""
    decoders = internal_topic(topic)
    if decoders is None or key is None:
        return None
    try:
        decoded = decoders.key(key)
    except ValueError as error:
        return Subject(decoders.kind, f"key {shortened(key)}", note=f"the key is shown escaped: {escape(str(error))}")
    words = _WORDS.get(decoded.type)
    if words is None:
        return Subject(decoders.kind, f"{escape(decoded.type)} {_compact(decoded.fields)}", decoded)
    texts = {name: _text(value) for name, value in decoded.fields.items()}
    try:
        return Subject(decoders.kind, words.subject.format_map(texts), decoded)
    except KeyError as error:
        note = f"the key is shown escaped: it has no {error.args[0]}"
        return Subject(decoders.kind, f"key {shortened(key)}", note=note)


def state(topic: str, subject: Subject, value: bytes | None) -> str:
    """Return the state that a record's value gives. ``value`` None: a tombstone, or no record."""
    decoders = internal_topic(topic)
    words = None if subject.key is None else _WORDS.get(subject.key.type)
    if value is None:
        return words.absent if words else "no record"
    if decoders is None or subject.key is None or words is None:
        return f"a value of {len(value):,} bytes"
    try:
        return words.state(decoders.value(subject.key, value))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return f"a value of {len(value):,} bytes that cannot be decoded ({escape(str(error))})"


def offsets_text(first: int, end: int) -> str:
    """Return a phrase for the offsets from ``first`` to before ``end``."""
    return f"offset {first}" if end - first == 1 else f"offsets {first} to {end - 1}"


def committed_offset(topic: str, subject: Subject, value: bytes | None) -> int | None:
    """Return the offset that a group has committed by this record; None for another record or a tombstone."""
    decoders = internal_topic(topic)
    if decoders is None or subject.key is None or subject.key.type != OFFSET_COMMIT or value is None:
        return None
    try:
        return int(decoders.value(subject.key, value)["offset"])
    except ValueError:
        return None


def _text(value: Any) -> str:
    return escape(value) if isinstance(value, str) else _compact(value)


def _compact(value: Any) -> str:
    return escape(json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def _count(number: int, singular: str, plural: str = "") -> str:
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def _partitions(value: Fields, *names: str) -> int:
    return sum(len(assignment["partitions"]) for name in names for assignment in value[name])


def _transaction(value: Fields) -> str:
    number = value["transaction_status"]
    status = STATES[number] if 0 <= number < len(STATES) else f"state {number}"
    return f"{status} of producer {value['producer_id']}, epoch {value['producer_epoch']}"


def _share_state(value: Fields) -> str:
    batches = _count(len(value["state_batches"]), "state batch", "state batches")
    return f"snapshot epoch {value['snapshot_epoch']}, start offset {value['start_offset']}, {batches}"


def _schema(value: Fields) -> str:
    deleted = ", deleted" if value.get("deleted") else ""
    return f"schema id {_text(value['id'])}{deleted}"


def _properties(value: Fields) -> str:
    return f"a configuration of {_count(len(value['properties']), 'property', 'properties')}"


_GROUP, _MEMBER = "group {group_id}", "group {group_id}, member {member_id}"
_TARGET_EPOCH = "target assignment of epoch {assignment_epoch}"
_TASKS = ("active_tasks", "standby_tasks", "warmup_tasks")


def _assigned(*names: str) -> Callable[[Fields], str]:
    return lambda value: f"{_count(_partitions(value, *names), 'partition')} assigned"


def _target(value: Fields) -> str:
    return _TARGET_EPOCH.format(**value)


def _metadata_of_topics(value: Fields) -> str:
    return f"partition metadata of {_count(len(value['topics']), 'topic')}"


def _member_epoch(*names: str) -> Callable[[Fields], str]:
    return lambda value: f"member epoch {value['member_epoch']}, {_assigned(*names)(value)}"


def _client(value: Fields) -> str:
    return f"client {_text(value['client_id'])} at {_text(value['client_host'])}"


def _epoch(value: Fields) -> str:
    return f"group epoch {value['epoch']}"


def _status(value: Fields) -> str:
    return f"status {_text(value['state'])} on worker {_text(value['worker_id'])}"


_WORDS: Final[Mapping[str, _Words]] = {
    OFFSET_COMMIT: _Words(
        "group {group}, {topic}-{partition}",
        lambda value: f"committed offset {value['offset']}",
        "no committed offset",
    ),
    CLASSIC_GROUP: _Words(
        "group {group}",
        lambda value: f"generation {value['generation']} with {_count(len(value['members']), 'member')}",
        "no group metadata",
    ),
    "ConsumerGroupMetadata": _Words(_GROUP, _epoch),
    "ConsumerGroupPartitionMetadata": _Words(f"{_GROUP}, partition metadata", _metadata_of_topics),
    "ConsumerGroupMemberMetadata": _Words(_MEMBER, _client, "no member"),
    "ConsumerGroupTargetAssignmentMetadata": _Words(f"{_GROUP}, target assignment", _target),
    "ConsumerGroupTargetAssignmentMember": _Words(f"{_MEMBER}, target assignment", _assigned("topic_partitions")),
    "ConsumerGroupCurrentMemberAssignment": _Words(
        f"{_MEMBER}, current assignment", _member_epoch("assigned_partitions")
    ),
    "ConsumerGroupRegularExpression": _Words(
        "group {group_id}, regular expression {regular_expression}",
        lambda value: f"{_count(len(value['topics']), 'topic')} resolved at version {value['version']}",
    ),
    "ShareGroupMetadata": _Words(f"share {_GROUP}", _epoch),
    "ShareGroupPartitionMetadata": _Words(f"share {_GROUP}, partition metadata", _metadata_of_topics),
    "ShareGroupMemberMetadata": _Words(f"share {_MEMBER}", _client, "no member"),
    "ShareGroupTargetAssignmentMetadata": _Words(f"share {_GROUP}, target assignment", _target),
    "ShareGroupTargetAssignmentMember": _Words(f"share {_MEMBER}, target assignment", _assigned("topic_partitions")),
    "ShareGroupCurrentMemberAssignment": _Words(
        f"share {_MEMBER}, current assignment", _member_epoch("assigned_partitions")
    ),
    "ShareGroupStatePartitionMetadata": _Words(
        f"share {_GROUP}, state of partitions",
        lambda value: (
            f"{_partitions(value, 'initializing_topics')} initializing and "
            f"{_count(_partitions(value, 'initialized_topics'), 'initialized partition')}"
        ),
    ),
    "StreamsGroupMetadata": _Words(f"streams {_GROUP}", _epoch),
    "StreamsGroupPartitionMetadata": _Words(f"streams {_GROUP}, partition metadata", _metadata_of_topics),
    "StreamsGroupMemberMetadata": _Words(f"streams {_MEMBER}", _client, "no member"),
    "StreamsGroupTargetAssignmentMetadata": _Words(f"streams {_GROUP}, target assignment", _target),
    "StreamsGroupTargetAssignmentMember": _Words(f"streams {_MEMBER}, target assignment", _assigned(*_TASKS)),
    "StreamsGroupCurrentMemberAssignment": _Words(f"streams {_MEMBER}, current assignment", _member_epoch(*_TASKS)),
    "StreamsGroupTopology": _Words(
        f"streams {_GROUP}, topology",
        lambda value: (
            f"epoch {value['epoch']} with {_count(len(value['subtopologies']), 'subtopology', 'subtopologies')}"
        ),
        "no topology",
    ),
    TRANSACTION_LOG: _Words("transactional id {transactional_id}", _transaction, "no transactional id"),
    "ShareSnapshot": _Words("share group {group_id}, topic id {topic_id}, partition {partition}", _share_state),
    "ShareUpdate": _Words("share group {group_id}, topic id {topic_id}, partition {partition}, update", _share_state),
    CONNECTOR: _Words("connector {connector}", _properties, "no connector"),
    TASK: _Words("connector {connector}, task {task}", _properties, "no task"),
    "TaskCommit": _Words(
        "connector {connector}, number of tasks", lambda value: _count(int(value["tasks"]), "task"), "no tasks"
    ),
    "TargetState": _Words(
        "connector {connector}, target state",
        lambda value: f"target state {_text(value.get('state.v2', value['state']))}",
        "no target state",
    ),
    "SessionKey": _Words("the session key of the workers", lambda value: f"a key of {value['creation-timestamp']}"),
    "Restart": _Words("connector {connector}, restart request", lambda _: "a restart request"),
    "LoggerLevel": _Words("logger {logger}", lambda value: f"level {_text(value['level'])}"),
    "ConnectorStatus": _Words("connector {connector}, status", _status, "no status"),
    "TaskStatus": _Words("connector {connector}, task {task}, status", _status, "no status"),
    "TopicStatus": _Words("connector {connector}, topic {topic}", lambda _: "an active topic", "not an active topic"),
    SOURCE_OFFSET: _Words(
        "connector {connector}, source partition {partition}",
        lambda value: f"source offset {_compact(value)}",
        "no source offset",
    ),
    "SCHEMA": _Words("subject {subject}, version {version}", _schema, "no schema"),
    "CONFIG": _Words(
        "compatibility of subject {subject}",
        lambda value: f"compatibility {_text(value['compatibilityLevel'])}",
        "no compatibility",
    ),
    "MODE": _Words("mode of subject {subject}", lambda value: f"mode {_text(value['mode'])}", "no mode"),
    "DELETE_SUBJECT": _Words(
        "deletion of subject {subject}", lambda value: f"deleted up to version {_text(value['version'])}", "not deleted"
    ),
    "CLEAR_SUBJECT": _Words("clearing of subject {subject}", lambda _: "cleared", "not cleared"),
}
"""Phrases by the type of a record."""
