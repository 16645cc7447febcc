"""Records of the metadata log: against values written by Kafka 3.9.2 and 4.4.0, and broken ones."""

import random
from typing import Any

import pytest
from metadata_logs import Written, change, directory_uuid, frame, partition, register, remove_topic, topic
from metadata_logs import topic_id as id_of

from harness.broker_files.internal_topics.message_format import uuid_text
from harness.broker_files.metadata_log.copy import FRAME_VERSION, SCHEMAS, RecordType, decode_record

# Copied from the metadata logs of running brokers.
TOPIC = "010200027493453a9babc24aaba35e55b3c79cd37700"
PARTITION_3_9 = (
    "0103010000000093453a9babc24aaba35e55b3c79cd3770400000001000000020000000304000000010000000200000003010100000001"
    "000000000000000004b7f9fb6fa3ad56a6ae79a7036a3cddd0e9a444699f1b579867cc8b4e727993bd7e2038fb8e5c32ab57d63eb36a677333"
    "00"
)
REASSIGNED_3_9 = (
    "0105010000000093453a9babc24aaba35e55b3c79cd37702020d040000000300000002000000010831047e2038fb8e5c32ab57d63eb36a6773"
    "33e9a444699f1b579867cc8b4e727993bdb7f9fb6fa3ad56a6ae79a7036a3cddd0"
)
ELECTED_4_4 = "01050200000000eb1285b9f4804c979aff2010c4e5e96701010400000003"
SHRUNK_3_9 = "0105010000000093453a9babc24aaba35e55b3c79cd377020009030000000100000002010400000002"
REGISTERED_4_4 = (
    "01000400000002"
    "00052ef5f57ca2445d869130d733cc70d5"
    "000000000000000e"
    "0207434c49454e540a3132372e302e302e3156e1"
    "0000000821656c696769626c652e6c65616465722e7265706c696361732e76657273696f6e00000001001474"
    "72616e73616374696f6e2e76657273696f6e00000002001073747265616d732e76657273696f6e00000001000e67726f75702e76657273696f"
    "6e00000001000e6b726166742e76657273696f6e00000001000e73686172652e76657273696f6e0000000200116d657461646174612e766572"
    "73696f6e00070021000001000100110226d28abda8fbca5823b3d803078aeaa9"
)
BEGIN = "01170001001212426f6f747374726170207265636f726473"
END = "01180000"


def decoded(value: bytes) -> dict[str, Any]:
    return decode_record(value)[2]


CHANGE = RecordType.PARTITION_CHANGE
T_0 = {"partition_id": 0, "topic_id": "k0U6m6vCSqujXlWzx5zTdw"}
AS_CREATED = {"removing_replicas": [], "adding_replicas": [], "leader_epoch": 0, "partition_epoch": 0}
DIRECTORIES = ["t_n7b6OtVqaueacDajzd0A", "6aREaZ8bV5hnzItOcnmTvQ", "fiA4-45cMqtX1j6zamdzMw"]
PARTITION = {**T_0, **AS_CREATED, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "directories": DIRECTORIES}


@pytest.mark.parametrize(
    ("text", "type_", "version", "fields"),
    [
        (TOPIC, RecordType.TOPIC, 0, {"name": "t", "topic_id": "k0U6m6vCSqujXlWzx5zTdw"}),
        (PARTITION_3_9, RecordType.PARTITION, 1, PARTITION),
        (REASSIGNED_3_9, CHANGE, 1, {**T_0, "replicas": [3, 2, 1], "directories": DIRECTORIES[::-1]}),
        (ELECTED_4_4, CHANGE, 2, {"partition_id": 0, "topic_id": "6xKFufSATJea_yAQxOXpZw", "leader": 3}),
        (SHRUNK_3_9, CHANGE, 1, {**T_0, "isr": [1, 2], "leader": 2}),
        (BEGIN, RecordType.BEGIN_TRANSACTION, 0, {}),
        (END, RecordType.END_TRANSACTION, 0, {}),
    ],
)
def test_records_of_kafka_and_changes_have_what_changes_alone(
    text: str, type_: RecordType, version: int, fields: dict[str, Any]
) -> None:
    assert decode_record(bytes.fromhex(text)) == (type_, version, fields)


def test_brokers_of_kafka() -> None:
    type_, version, broker = decode_record(bytes.fromhex(REGISTERED_4_4))
    assert (type_, version) == (RecordType.REGISTER_BROKER, 4)
    assert (broker["broker_id"], broker["broker_epoch"], broker["fenced"]) == (2, 14, True)
    assert (broker["incarnation_id"], broker["log_dirs"]) == ("BS719XyiRF2GkTDXM8xw1Q", ["JtKKvaj7ylgjs9gDB4rqqQ"])


def test_the_encoder_writes_what_kafka_writes() -> None:
    fields = decoded(frame(partition("t", 7, (3, 1), leader_recovery_state=1, leader=-1)))
    assert fields == {
        **AS_CREATED, "partition_id": 7, "topic_id": id_of("t"), "replicas": [3, 1], "isr": [3, 1], "leader": -1,
        "leader_recovery_state": 1, "directories": [uuid_text(directory_uuid(broker)) for broker in (3, 1)],
    }  # fmt: skip
    assert frame(Written(RecordType.END_TRANSACTION, 0)) == bytes.fromhex(END)


@pytest.mark.parametrize("of", sorted(SCHEMAS))
def test_a_newer_version_is_refused(of: RecordType) -> None:
    newest = SCHEMAS[of].newest_version
    with pytest.raises(ValueError, match=f"{SCHEMAS[of].name} of version {newest + 1}: only versions up to {newest}"):
        decode_record(bytes([FRAME_VERSION, of, newest + 1, 0]))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "malformed frame"),
        (None, "malformed frame"),
        (b"\1\2", "malformed frame"),
        (b"\0\2\0", "frame version 0"),
        (b"\2\2\0", "frame version 2"),
        (bytes.fromhex(TOPIC)[:-1], "malformed TopicRecord"),
        (bytes.fromhex(TOPIC) + b"\0", "1 bytes follow"),
        (bytes.fromhex(PARTITION_3_9).replace(b"\4\0\0\0\1", b"\0\0\0\0\1", 1), "malformed PartitionRecord"),
    ],
)
def test_malformed_records_are_refused(value: bytes | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decoded(value or b"")


def test_whatever_the_bytes_are_they_are_read_or_refused() -> None:
    chance = random.Random(1)  # noqa: S311
    written = [topic("t"), remove_topic("t"), partition("t", 0, (1, 2)), change("t", 0, isr=(1,)), register(1, 5)]
    refused = 0
    for value in (frame(one) for one in written):
        for _ in range(300):
            broken = bytearray(value)
            broken[chance.randrange(3, len(broken))] = chance.randrange(256)
            try:
                decoded(bytes(broken))
            except ValueError:
                refused += 1
    assert refused
