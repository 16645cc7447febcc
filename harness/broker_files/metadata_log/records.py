"""Records of ``__cluster_metadata`` (KIP-631) about topics, partitions and brokers.

A record's value is a frame: version of the frame, type and version of the message as unsigned varints, then the message
(``AbstractApiMessageSerde``). The table below has the fields of ``metadata/src/main/resources/common/metadata`` in
Kafka's sources of 3.9.2 and 4.4.0. Unlisted tagged fields are skipped, and messages of other types are not decoded.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32

from harness.broker_files.internal_topics.message_format import MessageFormat, message_formats

if TYPE_CHECKING:
    from collections.abc import Mapping

FRAME_VERSION: Final = 1
UNCHANGED_LEADER: Final = -2
"""``NO_LEADER_CHANGE``: a PartitionChangeRecord changes neither leader nor leader epoch."""
TOPIC_RESOURCE: Final = 2
"""``ConfigResource.Type.TOPIC``"""


class RecordType(IntEnum):
    """The decoded types, by stored number (``apiKey``)."""

    REGISTER_BROKER = 0
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    REMOVE_TOPIC = 9
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25


@dataclass(frozen=True, slots=True)
class Frame:
    """A record's value; ``message`` is not decoded yet. ``type``: a `RecordType`, or the number of another type."""

    type: int
    version: int
    message: bytes


def read_frame(value: bytes | None) -> Frame:
    """Split a record's value. Raises ``ValueError`` for an unknown version of the frame, and for a malformed frame."""
    data = BytesIO(value or b"")
    try:
        frame_version, number, version = (UnsignedVarInt32.decode(data) for _ in range(3))
    except struct.error as error:
        raise ValueError(f"malformed frame of a metadata record: {error}") from error
    if frame_version != FRAME_VERSION:
        raise ValueError(f"frame version {frame_version} of a metadata record: only version {FRAME_VERSION} is known")
    return Frame(number, version, data.read())


def decode_message(frame: Frame) -> dict[str, Any]:
    """Return the message's fields as `MessageFormat.decode` does. The frame's type must be a `RecordType`."""
    return SCHEMAS[RecordType(frame.type)].decode(frame.message, frame.version)


_FORMATS: Final = message_formats(f"""
RegisterBrokerRecord 0-4 flexible 0+
    BrokerId int32
    IsMigratingZkBroker bool 2+
    IncarnationId uuid
    BrokerEpoch int64
    EndPoints []BrokerEndpoint
        Name string
        Host string
        Port uint16
        SecurityProtocol int16
    Features []BrokerFeature
        Name string
        MinSupportedVersion int16
        MaxSupportedVersion int16
    Rack string = null
    Fenced bool = true
    InControlledShutdown bool 1+
    LogDirs []uuid tag 0 3+
TopicRecord 0 flexible 0+
    Name string
    TopicId uuid
PartitionRecord 0-2 flexible 0+
    PartitionId int32 = -1
    TopicId uuid
    Replicas []int32
    Isr []int32
    RemovingReplicas []int32
    AddingReplicas []int32
    Leader int32 = -1
    LeaderRecoveryState int8 tag 0
    LeaderEpoch int32 = -1
    PartitionEpoch int32 = -1
    Directories []uuid 1+
ConfigRecord 0 flexible 0+
    ResourceType int8
    ResourceName string
    Name string
    Value string nullable
PartitionChangeRecord 0-2 flexible 0+
    PartitionId int32 = -1
    TopicId uuid
    Isr []int32 tag 0 = null
    Leader int32 tag 1 = {UNCHANGED_LEADER}
    Replicas []int32 tag 2 = null
    RemovingReplicas []int32 tag 3 = null
    AddingReplicas []int32 tag 4 = null
    LeaderRecoveryState int8 tag 5 = -1
    Directories []uuid tag 8 1+ = null
RemoveTopicRecord 0 flexible 0+
    TopicId uuid
BeginTransactionRecord 0 flexible 0+
EndTransactionRecord 0 flexible 0+
AbortTransactionRecord 0 flexible 0+
""")
"""The tagged field of RegisterBrokerRecord 4 (KIP-1066) and the fields of a transaction's records are not read."""

SCHEMAS: Final[Mapping[RecordType, MessageFormat]] = {
    record_type: _FORMATS[f"{record_type.name.title().replace('_', '')}Record"] for record_type in RecordType
}
