"""Decode keys and values of internal topics, by the topic's name.

Each decoder raises ``ValueError`` with the reason for bytes of an unknown format. It returns text as it is stored; the
caller must escape it (`harness.escape`) before printing.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from harness.broker_files.internal_topics.coordinator_messages import (
    GROUP_KEYS,
    KEYS,
    SHARE_KEYS,
    TRANSACTION_KEYS,
    VALUES,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
KAFKAS_OWN: Final = (CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE)
"""The topics that brokers create for themselves (``Topic.INTERNAL_TOPICS``)."""
COMPACTED_BY_DEFAULT: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE)
"""The internal topics that brokers create as compacted topics.

``__share_group_state`` has ``cleanup.policy=delete``: the share coordinator removes old records by DeleteRecords
(``ShareCoordinatorService.shareGroupStateTopicConfigs``, ``performRecordPruning``)."""

CONNECTOR: Final = "Connector"
TASK: Final = "Task"
SOURCE_OFFSET: Final = "SourceOffset"

_INT16 = struct.Struct(">h")
_CONNECT = re.compile(
    r"(?:.*[-._])?(?:connect|mm2)(?:[-._].*)?[-._]"
    r"(?P<role>config|offset(?!-syncs)|status)(?:s|es)?(?:[-._].*)?",
    re.IGNORECASE,
)
"""Names of Connect's topics in documentation and tools; users may choose others."""
_SCHEMAS = re.compile(r"(?:.*[-._])?_?schemas")
_CHANGELOG = re.compile(r".+-changelog")
"""``<application id>-<store>-changelog`` (``ProcessorStateManager.storeChangelogTopic``)."""


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


def internal_topic(topic: str) -> InternalTopic | None:
    """Return the decoders of a topic; None for a topic of applications."""
    if topic in _BY_NAME:
        return _BY_NAME[topic]
    if connect := _CONNECT.fullmatch(topic):
        return _CONNECT_TOPICS[connect["role"].lower()]
    return next((decoders for pattern, decoders in _BY_PATTERN.items() if pattern.fullmatch(topic)), None)


def _coordinator_topic(kind: str, types: Mapping[int, str]) -> InternalTopic:
    def read_key(key: bytes) -> DecodedKey:
        number = _int16(key, "a key")
        if number not in types:
            raise ValueError(f"unknown key type {number} of a {kind}")
        return DecodedKey(types[number], KEYS[f"{types[number]}Key"].decode(key[_INT16.size :], 0))

    def read_value(key: DecodedKey, value: bytes) -> dict[str, Any]:
        return VALUES[f"{key.type}Value"].decode(value[_INT16.size :], _int16(value, "a value"))

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
    content = _json(data)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  (wrong data, not a wrong argument)
    return content


def _value_object(_: DecodedKey, value: bytes) -> dict[str, Any]:
    return _json_object(value)


def _by_shapes(kind: str, shapes: Mapping[str, str]) -> Callable[[bytes], DecodedKey]:
    """Return a decoder of text keys. ``shapes``: regular expressions with named groups, by type."""
    compiled = {type_: re.compile(shape, re.DOTALL) for type_, shape in shapes.items()}

    def read_key(key: bytes) -> DecodedKey:
        text = key.decode()
        for type_, shape in compiled.items():
            if match := shape.fullmatch(text):
                return DecodedKey(type_, match.groupdict())
        raise ValueError(f"it is not a key of a {kind}")

    return read_key


def _source_offset_key(key: bytes) -> DecodedKey:
    match _json(key):
        case [str(connector), partition]:
            return DecodedKey(SOURCE_OFFSET, {"connector": connector, "partition": partition})
    raise ValueError("it is not a key of a Connect offset topic")


def _schema_key(key: bytes) -> DecodedKey:
    match _json_object(key):
        case {"keytype": str(type_), **fields}:
            return DecodedKey(type_, fields)
    raise ValueError("it has no keytype of a schema topic")


def _unreadable(key: bytes) -> DecodedKey:
    raise ValueError(f"a key of {len(key)} bytes in the format of the application")


_CONNECT_CONFIG: Final = {
    "SessionKey": r"session-key",
    "TargetState": r"target-state-(?P<connector>.*)",
    "TaskCommit": r"commit-(?P<connector>.*)",
    "Restart": r"restart-connector-(?P<connector>.*)",
    "LoggerLevel": r"logger-cluster-(?P<logger>.*)",
    CONNECTOR: r"connector-(?P<connector>.*)",
    TASK: r"task-(?P<connector>.*)-(?P<task>\d+)",
}
"""Keys of a config topic (``KafkaConfigBackingStore``)."""
_CONNECT_STATUS: Final = {
    "ConnectorStatus": r"status-connector-(?P<connector>.*)",
    "TaskStatus": r"status-task-(?P<connector>.*)-(?P<task>\d+)",
    "TopicStatus": r"status-topic-(?P<topic>[^:]*):connector-(?P<connector>.*)",
}
"""Keys of a status topic (``KafkaStatusBackingStore``)."""

_CONNECT_TOPICS: Final = {
    "config": InternalTopic("Connect config topic", _by_shapes("Connect config topic", _CONNECT_CONFIG), _value_object),
    "offset": InternalTopic("Connect offset topic", _source_offset_key, _value_object),
    "status": InternalTopic("Connect status topic", _by_shapes("Connect status topic", _CONNECT_STATUS), _value_object),
}
_BY_NAME: Final = {
    CONSUMER_OFFSETS: _coordinator_topic("group coordinator's topic", GROUP_KEYS),
    TRANSACTION_STATE: _coordinator_topic("transaction coordinator's topic", TRANSACTION_KEYS),
    SHARE_GROUP_STATE: _coordinator_topic("share coordinator's topic", SHARE_KEYS),
}
_BY_PATTERN: Final = {
    _SCHEMAS: InternalTopic("Schema Registry topic", _schema_key, _value_object),
    _CHANGELOG: InternalTopic("Kafka Streams changelog", _unreadable, lambda _key, _value: {}),
}
