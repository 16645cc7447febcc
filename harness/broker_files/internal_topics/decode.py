"""Decode keys and values of internal topics, by the topic's name.

Each decoder raises ``ValueError`` with the reason for bytes of an unknown format. It returns text as it is stored; the
caller must escape it (`harness.escape`) before printing.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from harness.broker_files.internal_topics.message_format import message_formats
from harness.broker_files.segments.records import Record

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
CLUSTER_METADATA: Final = "__cluster_metadata"
"""The metadata log, which no client sees."""
KAFKAS_OWN: Final = (CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE)
"""The topics that brokers create for themselves (``Topic.INTERNAL_TOPICS``)."""
COMPACTED_BY_DEFAULT: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE)
"""The internal topics that brokers create as compacted topics.

``__share_group_state`` has ``cleanup.policy=delete``: the share coordinator removes old records by DeleteRecords
(``ShareCoordinatorService.shareGroupStateTopicConfigs``, ``performRecordPruning``)."""

ONGOING: Final = "Ongoing"
STATES: Final = (
    "Empty", ONGOING, "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
)  # fmt: skip
"""States of a transactional id by stored number (`TransactionState`)."""
FINISHED: Final = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
"""States without an open transaction: the coordinator writes no marker. In the Prepare… states it is writing them."""

_INT16 = struct.Struct(">h")
_TRANSACTION_KEY, _TRANSACTION_VALUE = struct.Struct(">hh"), struct.Struct(">hqhib")
_CONNECT = re.compile(
    r"(?:.*[-._])?(?:connect|mm2)(?:[-._].*)?[-._]"
    r"(?P<role>config|offset(?!-syncs)|status)(?:s|es)?(?:[-._].*)?",
    re.IGNORECASE,
)
"""Names of Connect's topics in documentation and tools; users may choose others."""


@dataclass(frozen=True, slots=True)
class DecodedKey:
    """The type of a record, and the fields of its key."""

    type: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The decoders of a topic's records. ``kind``: a noun phrase for the topic."""

    kind: str
    key: Callable[[bytes], DecodedKey]
    value: Callable[[DecodedKey, bytes], dict[str, Any]]


class OffsetKey(NamedTuple):
    """The group, and the partition for which it commits offsets: an ``OffsetCommitKey``."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The state of a transactional id; ``producer_id`` and ``state`` are None if it has expired."""

    transactional_id: str
    producer_id: int | None
    state: str | None


def internal_topic(topic: str) -> InternalTopic | None:
    """Return the decoders of a topic; None for a topic of applications."""
    if topic in _BY_NAME:
        return _BY_NAME[topic]
    if connect := _CONNECT.fullmatch(topic):
        return _CONNECT_TOPICS[connect["role"].lower()]
    return next((decoders for pattern, decoders in _BY_PATTERN.items() if pattern.fullmatch(topic)), None)


def encode_offset_key(key: OffsetKey) -> bytes:
    """Return the key of the record that a coordinator writes for a committed offset."""
    return _encode_group_coordinator_key("OffsetCommitKey", key._asdict())


def encode_group_key(group: str) -> bytes:
    """Return the key of the record that a coordinator writes for a classic group."""
    return _encode_group_coordinator_key("GroupMetadataKey", {"group": group})


def decode_offset_key(content: bytes) -> OffsetKey | None:
    """Return the key of a committed offset; None for the key of another record."""
    try:
        key = _BY_NAME[CONSUMER_OFFSETS].key(content)
    except ValueError:
        return None
    return OffsetKey(**key.fields) if key.type == "OffsetCommit" else None


def transaction_state(record: Record) -> TransactionState | None:
    """Read a record of ``__transaction_state``; None for an unsupported version. Raises ``ValueError``.

    Reads a ``TransactionLogKey`` of version 0, and a ``TransactionLogValue`` of version 0 or 1 up to the state, as ids
    that are not UTF-8 and values whose other fields are damaged are evidence too.
    """
    key = record.key or b""
    try:
        version, size = _TRANSACTION_KEY.unpack_from(key)
        if version != 0:
            return None
        if len(key) != _TRANSACTION_KEY.size + size:
            raise ValueError(f"a transactional id of {size} bytes in a key of {len(key)}")
        transactional_id = key[_TRANSACTION_KEY.size :].decode("utf-8", "backslashreplace")
        if record.value is None:
            return TransactionState(transactional_id, None, None)
        version, producer_id, _, _, number = _TRANSACTION_VALUE.unpack_from(record.value)
    except struct.error as error:
        raise ValueError(f"malformed transaction state: {error}") from error
    if version not in {0, 1}:
        return None
    if not 0 <= number < len(STATES):
        raise ValueError(f"transaction state {number}")
    return TransactionState(transactional_id, producer_id, STATES[number])


def _encode_group_coordinator_key(name: str, fields: Mapping[str, object]) -> bytes:
    key = _FORMATS[CONSUMER_OFFSETS][name]
    return _INT16.pack(max(key.api_keys)) + bytes(key.struct.encode(fields, version=0))


def _coordinator_topic(topic: str, kind: str) -> InternalTopic:
    formats = _FORMATS[topic]
    keys = {number: message for message in formats.values() for number in message.api_keys}

    def read_key(key: bytes) -> DecodedKey:
        number = _int16(key, "a key")
        if number not in keys:
            raise ValueError(f"unknown key type {number} of a {kind}")
        return DecodedKey(keys[number].name.removesuffix("Key"), keys[number].decode(key[_INT16.size :], 0))

    def read_value(key: DecodedKey, value: bytes) -> dict[str, Any]:
        return formats[f"{key.type}Value"].decode(value[_INT16.size :], _int16(value, "a value"))

    return InternalTopic(kind, read_key, read_value)


def _int16(data: bytes, description: str) -> int:
    if len(data) < _INT16.size:
        raise ValueError(f"{description} of {len(data)} bytes has no version")
    return int(_INT16.unpack_from(data)[0])


def _json(data: bytes) -> Any:
    """Parse JSON. Raises ``ValueError`` also for JSON that is nested too deeply, and for NaN, which is not JSON."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(data.decode(), parse_constant=refuse)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _json_object(data: bytes) -> dict[str, Any]:
    match _json(data):
        case dict(content):
            return content
    raise ValueError("it is not a JSON object")


def _by_shapes(kind: str, shapes: Mapping[str, str]) -> Callable[[bytes], DecodedKey]:
    """Return a decoder of text keys. ``shapes``: regular expressions with named groups, by type."""

    def read_key(key: bytes) -> DecodedKey:
        text = key.decode()
        for type_, shape in shapes.items():
            if match := re.fullmatch(shape, text, re.DOTALL):
                return DecodedKey(type_, match.groupdict())
        raise ValueError(f"it is not a key of a {kind}")

    return read_key


def _source_offset_key(key: bytes) -> DecodedKey:
    match _json(key):
        case [str(connector), partition]:
            return DecodedKey("SourceOffset", {"connector": connector, "partition": partition})
    raise ValueError("it is not a key of a Connect offset topic")


def _schema_key(key: bytes) -> DecodedKey:
    match _json_object(key):
        case {"keytype": str(type_), **fields}:
            return DecodedKey(type_, fields)
    raise ValueError("it has no keytype of a schema topic")


def _unreadable(key: bytes) -> DecodedKey:
    raise ValueError(f"a key of {len(key)} bytes in the format of the application")


def _json_topic(kind: str, read_key: Callable[[bytes], DecodedKey]) -> InternalTopic:
    return InternalTopic(kind, read_key, lambda _, value: _json_object(value))


_CONNECT_CONFIG: Final = {
    "SessionKey": r"session-key",
    "TargetState": r"target-state-(?P<connector>.*)",
    "TaskCommit": r"commit-(?P<connector>.*)",
    "Restart": r"restart-connector-(?P<connector>.*)",
    "LoggerLevel": r"logger-cluster-(?P<logger>.*)",
    "Connector": r"connector-(?P<connector>.*)",
    "Task": r"task-(?P<connector>.*)-(?P<task>\d+)",
}
"""Keys of a config topic (``KafkaConfigBackingStore``)."""
_CONNECT_STATUS: Final = {
    "ConnectorStatus": r"status-connector-(?P<connector>.*)",
    "TaskStatus": r"status-task-(?P<connector>.*)-(?P<task>\d+)",
    "TopicStatus": r"status-topic-(?P<topic>[^:]*):connector-(?P<connector>.*)",
}
"""Keys of a status topic (``KafkaStatusBackingStore``)."""

_CONNECT_TOPICS: Final = {
    "config": _json_topic("Connect config topic", _by_shapes("Connect config topic", _CONNECT_CONFIG)),
    "offset": _json_topic("Connect offset topic", _source_offset_key),
    "status": _json_topic("Connect status topic", _by_shapes("Connect status topic", _CONNECT_STATUS)),
}
_FORMATS: Final = {topic: message_formats(topic) for topic in KAFKAS_OWN}
_BY_NAME: Final = {
    CONSUMER_OFFSETS: _coordinator_topic(CONSUMER_OFFSETS, "group coordinator's topic"),
    TRANSACTION_STATE: _coordinator_topic(TRANSACTION_STATE, "transaction coordinator's topic"),
    SHARE_GROUP_STATE: _coordinator_topic(SHARE_GROUP_STATE, "share coordinator's topic"),
}
_BY_PATTERN: Final = {
    re.compile(r"(?:.*[-._])?_?schemas"): _json_topic("Schema Registry topic", _schema_key),
    # <application id>-<store>-changelog (`ProcessorStateManager.storeChangelogTopic`)
    re.compile(r".+-changelog"): InternalTopic("Kafka Streams changelog", _unreadable, lambda _key, _value: {}),
}
