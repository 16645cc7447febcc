"""Records of ``__cluster_metadata`` (KIP-631) about topics, partitions and brokers.

A record's value is a frame: version of the frame, type and version of the message as unsigned varints, then the message
(``AbstractApiMessageSerde``). The tables below have the fields of ``metadata/src/main/resources/common/metadata`` in
Kafka's sources, as of 3.9.2 and 4.4.0. Tagged fields that are not listed are skipped, as brokers do. Messages of other
types are not decoded.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.schemas.fields import StructField
from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

FRAME_VERSION: Final = 1
UNCHANGED_LEADER: Final = -2
"""``NO_LEADER_CHANGE``: a PartitionChangeRecord leaves leader and leader epoch as they are."""

_NULL = "null"


class RecordType(IntEnum):
    """The types that are decoded, by their stored number (``apiKey``)."""

    REGISTER_BROKER = 0
    TOPIC = 2
    PARTITION = 3
    PARTITION_CHANGE = 5
    REMOVE_TOPIC = 9
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a message. Versions 0 to ``newest_version`` are known.

    ``struct`` decodes and encodes a message; None where no field is of use here.
    """

    newest_version: int
    struct: Any


@dataclass(frozen=True, slots=True)
class Frame:
    """A record's value; ``message`` is not decoded yet. ``type``: a `RecordType`, or the number of another type."""

    type: int
    version: int
    message: bytes


def read_frame(value: bytes | None) -> Frame:
    """Split a record's value. Raises ``ValueError`` for another version of the frame, and for a malformed one."""
    data = BytesIO(value or b"")
    try:
        frame_version, number, version = (UnsignedVarInt32.decode(data) for _ in range(3))
    except struct.error as error:
        raise ValueError(f"malformed frame of a metadata record: {error}") from error
    if frame_version != FRAME_VERSION:
        raise ValueError(f"frame version {frame_version} of a metadata record: only version {FRAME_VERSION} is known")
    return Frame(number, version, data.read())


def decode_message(frame: Frame) -> dict[str, Any]:
    """Return the message's fields by their names in snake case; an absent tagged field is left out.

    Arrays are lists, UUIDs text as Kafka prints them. Raises ``ValueError`` for an unsupported newer version, and for a
    malformed message. The frame's type is one of `RecordType`.
    """
    schema = SCHEMAS[RecordType(frame.type)]
    name = RecordType(frame.type).name
    if frame.version > schema.newest_version:
        raise ValueError(
            f"{name} record of version {frame.version}: only versions up to {schema.newest_version} are known"
        )
    if schema.struct is None:
        return {}
    data = BytesIO(frame.message)
    try:
        fields: dict[str, Any] = schema.struct.decode(data, version=frame.version, compact=True, tagged=True)
    except (struct.error, ValueError) as error:
        raise ValueError(f"malformed {name} record: {error}") from error
    if rest := len(data.read()):
        raise ValueError(f"malformed {name} record: {rest} bytes follow the message")
    for field in schema.struct.untagged_fields(frame.version):
        if fields[field.name] is None and field.is_array():
            raise ValueError(f"malformed {name} record: {field.name} is null")
    return {field: _readable(schema.struct.fields.get(field), value) for field, value in fields.items()}


def uuid_text(value: UUID | None) -> str:
    """Return a UUID as ``org.apache.kafka.common.Uuid`` prints it; None, the decoded zero, is zero."""
    return base64.urlsafe_b64encode(value.bytes if value else bytes(16)).decode().rstrip("=")


def _readable(field: Any, value: Any) -> Any:
    if field is None or not field.type_str.endswith("uuid") or (field.is_array() and value is None):
        return value
    return [uuid_text(one) for one in value] if field.is_array() else uuid_text(value)


def _field(
    name: str, kind: str, *, tag: int | None = None, default: str = "", since: int = 0, fields: list[Any] | None = None
) -> Mapping[str, Any]:
    versions = f"{since}+"
    described: dict[str, Any] = {"name": name, "type": kind, "versions": versions, "default": default}
    if tag is not None:
        described |= {"tag": tag, "taggedVersions": versions}
    if default == _NULL:
        described["nullableVersions"] = versions
    return {**described, "fields": fields} if fields else described


def _schema(name: str, newest_version: int, *fields: Mapping[str, Any]) -> Schema:
    described = {"name": name, "type": name, "versions": f"0-{newest_version}", "fields": fields}
    return Schema(newest_version, StructField(described))


_ENDPOINT = [
    _field("Name", "string"), _field("Host", "string"), _field("Port", "uint16"), _field("SecurityProtocol", "int16"),
]  # fmt: skip
_FEATURE = [
    _field("Name", "string"), _field("MinSupportedVersion", "int16"), _field("MaxSupportedVersion", "int16"),
]  # fmt: skip

SCHEMAS: Final[Mapping[RecordType, Schema]] = {
    RecordType.REGISTER_BROKER: _schema(
        "RegisterBrokerRecord",
        4,
        _field("BrokerId", "int32"),
        _field("IsMigratingZkBroker", "bool", since=2),
        _field("IncarnationId", "uuid"),
        _field("BrokerEpoch", "int64"),
        _field("EndPoints", "[]BrokerEndpoint", fields=_ENDPOINT),
        _field("Features", "[]BrokerFeature", fields=_FEATURE),
        _field("Rack", "string", default=_NULL),
        _field("Fenced", "bool", default="true"),
        _field("InControlledShutdown", "bool", since=1),
        _field("LogDirs", "[]uuid", since=3, tag=0),
    ),
    RecordType.TOPIC: _schema("TopicRecord", 0, _field("Name", "string"), _field("TopicId", "uuid")),
    RecordType.PARTITION: _schema(
        "PartitionRecord",
        2,
        _field("PartitionId", "int32", default="-1"),
        _field("TopicId", "uuid"),
        _field("Replicas", "[]int32"),
        _field("Isr", "[]int32"),
        _field("RemovingReplicas", "[]int32"),
        _field("AddingReplicas", "[]int32"),
        _field("Leader", "int32", default="-1"),
        _field("LeaderRecoveryState", "int8", tag=0),
        _field("LeaderEpoch", "int32", default="-1"),
        _field("PartitionEpoch", "int32", default="-1"),
        _field("Directories", "[]uuid", since=1),
    ),
    RecordType.PARTITION_CHANGE: _schema(
        "PartitionChangeRecord",
        2,
        _field("PartitionId", "int32", default="-1"),
        _field("TopicId", "uuid"),
        _field("Isr", "[]int32", tag=0, default=_NULL),
        _field("Leader", "int32", tag=1, default=str(UNCHANGED_LEADER)),
        _field("Replicas", "[]int32", tag=2, default=_NULL),
        _field("RemovingReplicas", "[]int32", tag=3, default=_NULL),
        _field("AddingReplicas", "[]int32", tag=4, default=_NULL),
        _field("LeaderRecoveryState", "int8", tag=5, default="-1"),
        _field("Directories", "[]uuid", since=1, tag=8, default=_NULL),
    ),
    RecordType.REMOVE_TOPIC: _schema("RemoveTopicRecord", 0, _field("TopicId", "uuid")),
    RecordType.BEGIN_TRANSACTION: Schema(0, None),
    RecordType.END_TRANSACTION: Schema(0, None),
    RecordType.ABORT_TRANSACTION: Schema(0, None),
}
"""RegisterBrokerRecord 4 adds a tagged field (KIP-1066) that is skipped here."""
