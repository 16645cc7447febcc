"""Metadata logs as brokers write them: records, segments and snapshots of ``__cluster_metadata-0``.

A log is a list of records in order; each becomes a separate batch at the next offset::

    log = [topic("t"), partition("t", 0, replicas=(1, 2, 3)), change("t", 0, leader=2, isr=(2, 3))]
    write_metadata_log(log_dir, log)

Omitted values are those that a controller of Kafka 4.4 would write.
"""

import struct
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka.protocol.schemas.fields.codecs.types import UnsignedVarInt32

from harness.broker_files.internal_topics.message_format import uuid_text
from harness.broker_files.metadata_log.copy import SCHEMAS, RecordType
from harness.broker_files.metadata_log.history import ClusterMetadata
from harness.broker_files.metadata_log.join import read_metadata_logs
from harness.broker_files.segments.batches import Record
from harness.broker_files.segments.encode import encode_batch

FOLDER = "__cluster_metadata-0"
SNAPSHOT_HEADER, SNAPSHOT_FOOTER = 3, 4
_NAMESPACE = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


@dataclass(frozen=True)
class Written:
    """A record to write: its type, the version of the message, and the fields that are given."""

    type: RecordType
    version: int
    fields: Mapping[str, Any] = field(default_factory=dict)


def topic_uuid(name: str, generation: int = 0) -> uuid.UUID:
    """Return the id of the topic that has the name for the time ``generation``."""
    return uuid.uuid5(_NAMESPACE, f"{name}/{generation}")


def topic_id(name: str, generation: int = 0) -> str:
    """Return the id as ``partition.metadata`` has it."""
    return uuid_text(topic_uuid(name, generation))


def directory_uuid(broker: int) -> uuid.UUID:
    return uuid.uuid5(_NAMESPACE, f"directory of {broker}")


def topic(name: str, generation: int = 0) -> Written:
    return Written(RecordType.TOPIC, 0, {"name": name, "topic_id": topic_uuid(name, generation)})


def config(owner: str, value: str | None, name: str = "cleanup.policy", kind: int = 2) -> Written:
    """Return the record of a setting, by default the cleanup policy of a topic; None: of its deletion."""
    return Written(RecordType.CONFIG, 0, {"resource_type": kind, "resource_name": owner, "name": name, "value": value})


def remove_topic(name: str, generation: int = 0) -> Written:
    return Written(RecordType.REMOVE_TOPIC, 0, {"topic_id": topic_uuid(name, generation)})


def partition(name: str, number: int, replicas: Sequence[int], generation: int = 0, **given: Any) -> Written:
    """Return the record of a new partition, whose first replica leads an ISR of all; ``given``: other fields."""
    fields = {
        "partition_id": number, "topic_id": topic_uuid(name, generation), "replicas": list(replicas),
        "isr": list(replicas), "removing_replicas": [], "adding_replicas": [], "leader": replicas[0],
        "leader_recovery_state": 0, "leader_epoch": 0, "partition_epoch": 0,
        "directories": [directory_uuid(broker) for broker in replicas],
    }  # fmt: skip
    return Written(RecordType.PARTITION, 2, {**fields, **_lists(given)})


def change(name: str, number: int, generation: int = 0, **given: Any) -> Written:
    """Return the record of a partition that changes; ``given``: fields of PartitionChangeRecord."""
    fields = {"partition_id": number, "topic_id": topic_uuid(name, generation)}
    return Written(RecordType.PARTITION_CHANGE, 2, {**fields, **_lists(given)})


def register(broker: int, epoch: int, **given: Any) -> Written:
    """Return the record of a broker that registers; ``given``: fields of RegisterBrokerRecord."""
    fields = {
        "broker_id": broker, "is_migrating_zk_broker": False,
        "incarnation_id": uuid.uuid5(_NAMESPACE, f"{broker}/{epoch}"), "broker_epoch": epoch,
        "end_points": [{"name": "CLIENT", "host": "broker", "port": 9092, "security_protocol": 0}],
        "features": [{"name": "metadata.version", "min_supported_version": 7, "max_supported_version": 33}],
        "rack": None, "fenced": True, "in_controlled_shutdown": False, "log_dirs": [directory_uuid(broker)],
    }  # fmt: skip
    return Written(RecordType.REGISTER_BROKER, 3, {**fields, **given})


def frame(written: Written) -> bytes:
    struct_of = SCHEMAS[written.type].struct
    message = (
        b"\0" if struct_of is None
        else struct_of.encode(dict(written.fields), version=written.version, compact=True, tagged=True)
    )  # fmt: skip
    return b"".join(UnsignedVarInt32.encode(number) for number in (1, written.type, written.version)) + bytes(message)


def encode_log(
    log: Sequence[Written], *, first_offset: int = 0, epoch: int = 1, epochs: Mapping[int, int] | None = None
) -> bytes:
    """Return a segment: a batch for each record. ``epochs``: that of the controller from an offset on."""
    data = []
    for offset, written in enumerate(log, first_offset):
        epoch = (epochs or {}).get(offset, epoch)
        data.append(encode_value(frame(written), offset, epoch))
    return b"".join(data)


def encode_value(value: bytes | None, offset: int, epoch: int = 1) -> bytes:
    return encode_batch(base_offset=offset, records=[Record(offset, 0, None, value)], leader_epoch=epoch)


def encode_snapshot(state: Sequence[Written], *, footer: bool = True) -> bytes:
    records = [Record(1 + index, 0, None, frame(written)) for index, written in enumerate(state)]
    data = [_control(0, SNAPSHOT_HEADER, struct.pack(">hqb", 0, 0, 0))]
    if records:
        data.append(encode_batch(base_offset=1, records=records, leader_epoch=1))
    if footer:
        data.append(_control(1 + len(records), SNAPSHOT_FOOTER, struct.pack(">hb", 0, 0)))
    return b"".join(data)


def write_metadata_log(
    log_dir: Path,
    log: Sequence[Written],
    *,
    first_offset: int = 0,
    epochs: Mapping[int, int] | None = None,
    snapshots: Mapping[int, Sequence[Written]] | None = None,
) -> Path:
    """Write ``__cluster_metadata-0`` into a log directory, and return its folder. ``snapshots`` by end offset."""
    folder = log_dir / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{first_offset:020}.log").write_bytes(encode_log(log, first_offset=first_offset, epochs=epochs))
    for end_offset, state in (snapshots or {}).items():
        (folder / snapshot_name(end_offset)).write_bytes(encode_snapshot(state))
    return folder


def snapshot_name(end_offset: int, epoch: int = 1) -> str:
    return f"{end_offset:020}-{epoch:010}.checkpoint"


def write_topic_id(folder: Path, name: str, generation: int = 0) -> None:
    """Write the ``partition.metadata`` of a partition's folder."""
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(name, generation)}\n")


def _lists(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def _control(offset: int, number: int, value: bytes) -> bytes:
    record = Record(offset, 0, struct.pack(">hh", 0, number), value)
    return encode_batch(base_offset=offset, records=[record], is_control=True, leader_epoch=1)


def read_metadata_log(folder: Path, topics: Collection[str] | None = None) -> ClusterMetadata:
    """Read one copy of the metadata log, which is to be usable."""
    joined = read_metadata_logs({1: folder}, topics)
    assert joined.metadata is not None, joined.notes
    return joined.metadata
